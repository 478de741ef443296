"""Shared parts of dialect bodies: chat messages, labels of any JSON type, and models that ignore unknown fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, JsonValue

from tirjudge.types import ChatMessage, Received, Text

CONVERSATION = [{"role": "user", "content": "Write two words."}, {"role": "assistant", "content": "red fox"}]
"""A conversation in examples of bodies."""

RENDERED_PROMPT = "<|im_start|>user\nWrite two words.<|im_end|>\n<|im_start|>assistant\n"
"""A prompt in examples of bodies, rendered with a chat template."""


class ForeignRequest(Received):
    """A body in another project's format. Unknown fields are ignored, because the project may add fields."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class ForeignMessage(ForeignRequest):
    """A chat message."""

    role: Text
    """Role of the author, in the other project's terms."""
    content: Text | list[dict[str, Any]] | None = None
    """Text, or a list of parts with a `text` field; None: empty."""


def one_of(*names: str) -> dict[str, JsonValue]:
    """A JSON Schema that requires at least one of these fields."""
    return {"anyOf": [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in names]}


def text_of(value: Any) -> str | None:
    """A label or state of any JSON type as text; None for a missing or empty value."""
    if value is None or value == "":
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def chat_message(message: ForeignMessage) -> ChatMessage:
    """Convert a message to the judge's format. Parts other than text are dropped."""
    content = message.content
    if isinstance(content, list):
        content = "".join(part["text"] for part in content if isinstance(part.get("text"), str))
    roles: Mapping[str, Any] = {"developer": "system", "function": "tool", "model": "assistant"}
    role = roles.get(message.role, message.role)
    if role not in ("system", "user", "assistant", "tool"):
        role = "user"
    return ChatMessage(role=role, content=content or "")
