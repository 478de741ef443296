"""Extracts the prompt and the response text from objects of OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tirjudge.integrations.detemplate import ResponseView, view_of
from tirjudge.types import ChatMessage
from tirjudge_server.dialects.bodies import ForeignMessage, chat_message, text_of


def prompt_in(params: Mapping[str, Any]) -> tuple[ChatMessage, ...]:
    """The conversation in the parameters of a response; empty if the parameters have no text."""
    given = params.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    messages = [_message(item) for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []
    instructions = params.get("instructions")
    if isinstance(instructions, str) and instructions:
        messages.insert(0, ChatMessage(role="system", content=instructions))
    return tuple(message for message in messages if message is not None and message.content)


def response_in(response: Mapping[str, Any], *, view: ResponseView) -> str | None:
    """The text of a response object; with reasoning and tool calls if `view` is "full". None: not a response object."""
    output = response.get("output")
    if not isinstance(output, list):
        return None
    items = [item for item in output if isinstance(item, Mapping)]
    text = "".join(_content(item.get("content")) for item in items if item.get("type", "message") == "message")
    if view == "final":
        return view_of(text, view=view)
    return "\n".join(text for text in map(_whole, items) if text)


def _message(item: Mapping[str, Any]) -> ChatMessage | None:
    if isinstance(item.get("role"), str):
        return chat_message(ForeignMessage(role=item["role"], content=_content(item.get("content"))))
    text = _whole(item)
    if not text:
        return None
    return ChatMessage(role="tool" if "output" in item else "assistant", content=text)


def _whole(item: Mapping[str, Any]) -> str:
    """An item of any type as text."""
    match item.get("type", "message"):
        case "message":
            return _content(item.get("content"))
        case "reasoning":
            thought = _content(item.get("content")) or _content(item.get("summary"))
            return f"<think>{thought}</think>" if thought else ""
        case "function_call":
            return f"{item.get('name')}({item.get('arguments') or ''})"
        case "function_call_output":
            return text_of(item.get("output")) or ""
        case _:
            return ""


def _content(content: Any) -> str:
    """The text of a `content` field: a string or a list of parts. `ChatMessage` replaces invalid Unicode."""
    if isinstance(content, list):
        content = "".join(
            part["text"] for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str)
        )
    return ChatMessage(role="user", content=content).content if isinstance(content, str) else ""
