"""Markers that separate the texts of a prompt, and the check that no text contains one.

Messages are joined as paragraphs that begin with a role, and a template has a line between an input and the question about
it. A judged text that spells one of these would have a second reading, as another turn or as another question.
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
    """A prompt with more than one reading.

    Args:
        marker: that spoils it, as the prompt spells it.
        why: what is wrong with it.
    """

    def __init__(self, marker: str, why: str) -> None:
        super().__init__(f"the marker {shown(marker.strip())} {why}")


def ambiguous(why: Ambiguous, *, param: str, fix: str) -> Refused:
    """The refusal of a text that has more than one reading.

    Args:
        why: names the marker.
        param: the field that holds the text.
        fix: what the caller can do.
    """
    message = f"{param}: {why}, so it is not clear what is to be judged; {fix}"
    return Refused(invalid(message, param=param, code="ambiguous_template"))


def has_roles(messages: Sequence[Mapping[str, str]]) -> bool:
    """Whether a conversation is shown with its roles; the one message of a user is shown without."""
    return len(messages) > 1 or messages[0]["role"] != "user"


def turns_in(text: str) -> list[str]:
    """The beginnings of paragraphs that begin as a turn does."""
    return _TURN.findall(text)


def first_added(found: Iterable[str], *, to: Iterable[str]) -> str | None:
    """The first of some markers that is not among others, each counted; None if all are."""
    known = Counter(to)
    for marker in found:
        if not known[marker]:
            return marker
        known[marker] -= 1
    return None


def check_turns(text: str) -> None:
    """
    Raises:
        Ambiguous: a paragraph of the text begins as a turn does.
    """
    for marker in turns_in(text):
        raise Ambiguous(marker, "begins a paragraph of a text, as it begins a turn")


def line_between(template: str, first: str, second: str) -> str:
    """What a template has between two of its placeholders."""
    return template.partition(f"{{{first}}}")[2].partition(f"{{{second}}}")[0].strip()


def check_line(line: str, *, texts: Iterable[str]) -> None:
    """
    Raises:
        Ambiguous: one of the texts spells a line of the template.
    """
    if any(line in text for text in texts):
        raise Ambiguous(line, "stands in a text, and between the texts")
