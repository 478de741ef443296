"""What the bodies of dialects have in common: messages of a chat, labels of any shape, and fields that may be unknown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, JsonValue

from tirjudge.types import ChatMessage, Received, Text


class ForeignRequest(Received):
    """A body in another project's format, which may get new fields at any time."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class ForeignMessage(ForeignRequest):
    """A message of a chat: content is text, or parts with text in them."""

    role: Text
    content: Text | list[dict[str, Any]] | None = None


def one_of(*names: str) -> dict[str, JsonValue]:
    """JSON Schema: at least one of these fields must be given."""
    return {"anyOf": [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in names]}


def text_of(value: Any) -> str | None:
    """A label or a state of any shape as text; None for nothing, and for the empty text that some send instead."""
    if value is None or value == "":
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def chat_message(message: ForeignMessage) -> ChatMessage:
    """The message in our own words; other kinds of parts than text are left out."""
    content = message.content
    if isinstance(content, list):
        content = "".join(part["text"] for part in content if isinstance(part.get("text"), str))
    roles: Mapping[str, Any] = {"developer": "system", "function": "tool", "model": "assistant"}
    role = roles.get(message.role, message.role)
    if role not in ("system", "user", "assistant", "tool"):
        role = "user"
    return ChatMessage(role=role, content=content or "")
