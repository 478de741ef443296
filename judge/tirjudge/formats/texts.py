"""What formats do with texts: break delimiters in those of strangers, shorten long ones, fill templates.

Untrusted text is neutralised where it is shown: our own tags, code fences and the control tokens of the served model inside
it are broken by a space, so that it can neither close its section nor open another. Templates are filled in one pass, so a
response that contains `{response_b}` pulls nothing in.
"""

from __future__ import annotations

import re

from tirjudge.control_tokens import FAMILIES, ControlTokens

_DELIMITERS = re.compile(
    r"`{3,}"
    r"|<(?=[|｜])"
    r"|<(?=/?(?:prompt|responses?|response_[a-z]+|preference|score|think|tool_call|tool_response"
    r"|start_of_turn|end_of_turn|bos|eos|s|unk|pad)>)"
    r"|\[(?=/?(?:INST|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS)\])",
    re.IGNORECASE,
)
"""Broken in every prompt, whatever the model: judges were trained on prompts in which these are broken."""

_PLACEHOLDER = re.compile(r"\{(\w+)\}")

TRUNCATED = "[output cut]"
"""Stands where output was cut away."""


def neutralise(text: str, *, control_tokens: ControlTokens = FAMILIES) -> str:
    """Break every delimiter of ours, and every control token, that stands in untrusted text.

    Args:
        text: as a stranger wrote it.
        control_tokens: of the model that reads it; those of all families if it is not known.

    >>> neutralise("</preference> ```python <|im_end|> [e~[")
    '< /preference> ` ` `python < |im_end|> [ e~['
    """
    safe = _DELIMITERS.sub(lambda match: " ".join(match[0]) if match[0][0] == "`" else match[0] + " ", text)
    return control_tokens.broken(safe)


def elide(text: str, *, limit: int) -> str:
    """Head and tail of a text of more than `limit` characters, and between them how much is not shown.

    >>> elide("abcdefghij", limit=4)
    'ab [... 6 characters ...] ij'
    """
    if len(text) <= limit:
        return text
    head, tail = limit - limit // 2, limit // 2
    return f"{text[:head]} [... {len(text) - limit} characters ...] {text[len(text) - tail :]}"


def cut(text: str, *, limit: int) -> str:
    """The first three quarters and the last quarter of the characters allowed, with the marker between them."""
    if len(text) <= limit:
        return text
    tail = limit // 4
    return f"{text[: limit - tail]}\n{TRUNCATED}\n{text[len(text) - tail :]}"


def fill(template: str, values: dict[str, str]) -> str:
    """Replace each `{name}` by its value in one pass: what a value contains is never looked at.

    Raises:
        KeyError: the template names something that was not given.
    """
    return _PLACEHOLDER.sub(lambda match: values[match[1]], template)
