"""Markers that separate the texts of a prompt, and the check that no text contains one.

Messages are joined as paragraphs that start with a role. A template has a line between an input and the question about it.
A judged text that contains such a marker makes the prompt ambiguous: the text can be read as another turn or question.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tirjudge.http.protocol import invalid, shown
from tirjudge_web.errors import Refused

_TURN = re.compile(
    r"\n\n((?:system|developer|user|assistant|tool): "
    r"|(?:function_call|custom_tool_call)(?:_output)? [^\s:]{1,200}: )"
)


class Ambiguous(ValueError):
    """An ambiguous prompt.

    Args:
        marker: the marker that makes the prompt ambiguous, as written in the prompt.
        why: what is wrong with the marker; the end of a sentence that starts with the marker.
    """

    def __init__(self, marker: str, why: str) -> None:
        super().__init__(f"the marker {shown(marker.strip())} {why}")


def ambiguous(why: Ambiguous, *, param: str, fix: str) -> Refused:
    """The error for an ambiguous text.

    Args:
        why: names the marker.
        param: the request field with the text.
        fix: what the caller can do.
    """
    message = f"{param}: {why}, so the text to judge is ambiguous; {fix}"
    return Refused(invalid(message, param=param, code="ambiguous_template"))


def has_roles(messages: Sequence[Mapping[str, str]]) -> bool:
    """Whether a conversation is shown with roles. A single user message is shown without its role."""
    return len(messages) > 1 or messages[0]["role"] != "user"


def turns_in(text: str) -> list[str]:
    """All turn markers at the start of paragraphs."""
    return _TURN.findall(text)


def first_added(found: Iterable[str], *, to: Iterable[str]) -> str | None:
    """The first marker that occurs more often in `found` than in `to`; None: no such marker."""
    known = Counter(to)
    for marker in found:
        if not known[marker]:
            return marker
        known[marker] -= 1
    return None


def check_turns(text: str) -> None:
    """Check that no paragraph starts like a turn.

    Raises:
        Ambiguous: a paragraph starts with a turn marker.
    """
    for marker in turns_in(text):
        raise Ambiguous(marker, "starts a paragraph of a text and also marks turns")


def line_between(template: str, first: str, second: str) -> str:
    """The text of a template between two of its placeholders."""
    return template.partition(f"{{{first}}}")[2].partition(f"{{{second}}}")[0].strip()


def check_line(line: str, *, texts: Iterable[str]) -> None:
    """Check that no text contains a line of the template.

    Raises:
        Ambiguous: one of the texts contains the line.
    """
    if any(line in text for text in texts):
        raise Ambiguous(line, "occurs in a text and also separates the texts")
