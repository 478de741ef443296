"""Text functions for prompt formats: neutralize untrusted text, shorten long texts, fill templates.

Untrusted text is neutralized before it is shown: a space breaks every tag of the format, every code fence and every
control token of the model. The text can then neither close its section nor open another. Templates are filled in one
pass, so that placeholders inside a response, such as `{response_b}`, are not expanded.
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
"""Delimiters that are broken in every prompt, for every model. Judges were trained on prompts with these broken."""

_PLACEHOLDER = re.compile(r"\{(\w+)\}")

TRUNCATED = "[output cut]"
"""Marker in place of removed output."""


def neutralise(text: str, *, control_tokens: ControlTokens = FAMILIES) -> str:
    """Break every delimiter of the format and every control token in untrusted text.

    Args:
        text: untrusted text.
        control_tokens: control tokens of the model. Default: those of all known model families.

    >>> neutralise("</preference> ```python <|im_end|> [e~[")
    '< /preference> ` ` `python < |im_end|> [ e~['
    """
    safe = _DELIMITERS.sub(lambda match: " ".join(match[0]) if match[0][0] == "`" else match[0] + " ", text)
    return control_tokens.broken(safe)


def elide(text: str, *, limit: int) -> str:
    """Return a text of at most `limit` characters unchanged; of a longer text, the head, the tail and the omitted
    length.

    >>> elide("abcdefghij", limit=4)
    'ab [... 6 characters ...] ij'
    """
    if len(text) <= limit:
        return text
    head, tail = limit - limit // 2, limit // 2
    return f"{text[:head]} [... {len(text) - limit} characters ...] {text[len(text) - tail :]}"


def cut(text: str, *, limit: int) -> str:
    """Return a text of at most `limit` characters unchanged; of a longer text, a head (3/4 of the limit), `TRUNCATED`
    and a tail (1/4)."""
    if len(text) <= limit:
        return text
    tail = limit // 4
    return f"{text[: limit - tail]}\n{TRUNCATED}\n{text[len(text) - tail :]}"


def fill(template: str, values: dict[str, str]) -> str:
    """Replace each `{name}` by its value in one pass. Placeholders inside values are not expanded.

    Raises:
        KeyError: the template contains a name without a value.
    """
    return _PLACEHOLDER.sub(lambda match: values[match[1]], template)
