"""Text functions for prompt formats: break delimiters in untrusted text, shorten long texts, fill templates.

Delimiters are broken before untrusted text is shown: a space is inserted after the first character of every tag of the
format and every control token of the model. The text can then neither close its section nor open another. `as_served`
breaks only these; `neutralise`, of the format `tirjudge/1`, also breaks fences and the control tokens of all model
families. Templates are filled in one pass, so that placeholders inside a response, such as `{response_b}`, are not
expanded.
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

_INVISIBLE = "\u00ad\u200b-\u200f\u2060\ufeff"
"""Characters without a width, for a character class."""

_TAGS = re.compile(
    rf"<(?=(?:[{_INVISIBLE}]*/[\s{_INVISIBLE}]*|[{_INVISIBLE}]*)"
    rf"(?:prompt|response(?:[\s{_INVISIBLE}_-]*[a-z]{{1,2}})?|reference|criteria|rubric|preference|score)"
    rf"[\s{_INVISIBLE}]*>)",
    re.IGNORECASE,
)
"""Tags of the prompts of `tirjudge/2`, in upper or lower case, with blanks and invisible characters. A tag with a blank
directly after `<` is not matched: it is broken already."""

_PLACEHOLDER = re.compile(r"\{(\w+)\}")

NOT_SHOWN = "[not shown]"
"""Text in place of every response, and of the reference, if the profile shows no character of one (`response_chars: 0`)."""

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


def as_served(text: str, *, control_tokens: ControlTokens = FAMILIES) -> str:
    """Break every tag of the prompt, and every control token of the served model, in untrusted text. All other text is
    unchanged.

    Args:
        text: untrusted text.
        control_tokens: control tokens of the model; `ControlTokens.served` are broken. Default: those of all known
            model families.

    >>> as_served("</Response_A > ```python <b>\\t<|im_end|>")
    '< /Response_A > ```python <b>\\t< |im_end|>'
    """
    return control_tokens.served.broken(_TAGS.sub("< ", text))


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
