"""Prompts: one user message as a text, or messages with roles.

Formats render them, and the chat template of the served model turns them into token ids (`Tokenizer.encode_prompt`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptMessage:
    """One message of a prompt."""

    role: str
    """Role in the chat template of the model: `system`, `user`, `assistant`, or a role that only some templates have, such
    as `response_1`."""
    content: str
    """Text of the message."""


Prompt = str | Sequence[PromptMessage]
"""A text, which is one user message, or the messages of a conversation."""


def chat_of(prompt: Prompt) -> list[dict[str, str]]:
    """Return a prompt as messages with `role` and `content`, as chat templates and chat endpoints read them.

    >>> chat_of("Hi")
    [{'role': 'user', 'content': 'Hi'}]
    """
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    return [{"role": message.role, "content": message.content} for message in prompt]
