"""Options of a chat template (`chat_template_kwargs`), such as `enable_thinking`."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import JsonValue

TemplateOptions = Mapping[str, JsonValue]

NO_THINKING: TemplateOptions = {"enable_thinking": False}
"""Default options of a template that has the option."""

PROBE_TEXT = "Is 7 > 5?"
"""User message with which a template is tried, for instance with and without an option."""

RESERVED = frozenset(
    {"add_generation_prompt", "chat_template", "continue_final_message", "documents", "messages", "tokenize", "tools"}
)
"""Names that are no options of a template, because the judge sets them."""


def check_options(kwargs: TemplateOptions) -> dict[str, JsonValue]:
    """Return the options as a dict.

    Raises:
        ValueError: an option has a reserved name.
    """
    if reserved := sorted(RESERVED & kwargs.keys()):
        raise ValueError(f"chat_template_kwargs: {', '.join(reserved)}: set by the judge; remove it")
    return dict(kwargs)


def parse_options(text: str | None) -> dict[str, JsonValue] | None:
    """Parse the command line option `--chat-template-kwargs`. None: not given.

    Raises:
        ValueError: the text is not a JSON object, or an option has a reserved name.

    >>> parse_options('{"enable_thinking": true}')
    {'enable_thinking': True}
    """
    if text is None:
        return None
    example = """give a JSON object such as '{"enable_thinking": true}'"""
    try:
        kwargs = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"--chat-template-kwargs: {text!r:.80}: not JSON: {error}; {example}") from error
    if not isinstance(kwargs, dict):
        raise ValueError(f"--chat-template-kwargs: {text!r:.80}: not a JSON object; {example}")
    return check_options(kwargs)


def shown_options(kwargs: TemplateOptions | None) -> str:
    """Return the options as JSON, for messages."""
    return json.dumps(dict(kwargs or {}), ensure_ascii=False)
