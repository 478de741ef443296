"""Conversations in cells: lists of messages, and transcripts with `Human:` and `Assistant:`.

Messages are `{"role", "content"}` or `{"from", "value"}`. Other keys of a message are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tirjudge.types import ChatMessage

_ROLES = {
    "user": "user", "human": "user", "prompter": "user",
    "assistant": "assistant", "gpt": "assistant", "model": "assistant", "bot": "assistant", "chatbot": "assistant",
    "system": "system", "tool": "tool", "function": "tool",
}  # fmt: skip
"""Role as written, in lower case -> role of a `ChatMessage`."""

_KEYS = (("role", "content"), ("from", "value"))
"""Names of the two keys of a message, in each known form."""

_TURN = re.compile(r"(?:\A|\n\n)(Human|Assistant):")
"""The start of a turn in a transcript."""

Conversation = tuple[ChatMessage, ...]


PYTHON_LISTS = ("[{'role'", "[{'content'", "[{'from'")
"""Starts of lists of messages in Python's notation, as pandas writes them to CSV files."""


def conversation_in(value: Any, *, column: str) -> Conversation | None:
    """Return the conversation in a list of messages. None: the value is not such a list.

    Raises:
        ValueError: the messages cannot be read.
    """
    if not are_messages(value):
        return None
    return tuple(_message(one, where=f"{column}[{place}]") for place, one in enumerate(value))


def are_messages(value: Any) -> bool:
    """Whether a value is a list of messages. Other lists of objects are texts or lists of responses."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return False
    return all(
        isinstance(one, Mapping) and any(role in one and content in one for role, content in _KEYS) for one in value
    )


def _message(given: Mapping[str, Any], *, where: str) -> ChatMessage:
    role, content = next((given[role], given[content]) for role, content in _KEYS if role in given and content in given)
    known = _ROLES.get(str(role).lower())
    if known is None:
        raise ValueError(f"{where}: unknown role {str(role)[:40]!r}; expected {', '.join(_ROLES)}")
    if not isinstance(content, str):
        raise ValueError(f"{where}: the content of the message is not a text")
    return ChatMessage.model_validate({"role": known, "content": content})


def transcript_in(text: str) -> Conversation | None:
    """Return the turns of a transcript. None: the text does not begin with a turn, or has no turn of a human."""
    text = text.lstrip()
    if not text.startswith(("Human:", "Assistant:")):
        return None
    _, *pieces = _TURN.split(text)
    turns = list(zip(pieces[::2], pieces[1::2], strict=True))
    if not any(speaker == "Human" for speaker, _ in turns):
        return None
    if turns[-1][0] == "Assistant" and not turns[-1][1].strip():
        turns.pop()  # the start of the response
    return tuple(
        ChatMessage.model_validate({"role": _ROLES[speaker.lower()], "content": said.strip()})
        for speaker, said in turns
    )


def prompt_and_responses(conversations: Sequence[Conversation]) -> tuple[Conversation, tuple[str, ...]]:
    """Split conversations that differ in their last message: return the common messages, and the last messages.

    Raises:
        ValueError: the conversations differ before their last message, or a conversation does not end with the assistant.
    """
    for conversation in conversations:
        if not conversation or conversation[-1].role != "assistant":
            raise ValueError("a conversation does not end with a message of the assistant")
    before = conversations[0][:-1]
    if any(conversation[:-1] != before for conversation in conversations):
        raise ValueError("the conversations differ before their last message, so the responses have no common prompt")
    return before, tuple(conversation[-1].content for conversation in conversations)
