"""Probabilities of labels, computed from the alternative tokens that a chat endpoint returns (`top_logprobs`).

Chat endpoints return the most likely tokens (at most 20) at each position. A label that is not among them gets
probability 0, so the label mass is a lower bound.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence

from tirjudge.types import Completion, TokenAlternatives


def label_logprobs(completion: Completion, *, start: int, labels: Sequence[str]) -> dict[str, float]:
    """Return the log-probability of each label at the position where the model wrote one.

    A label of several tokens ("10" as "1", "0") shares its first token with a shorter label. If the model wrote that
    first token, P("10") = P("1") P("0" | "1"), and P("1") keeps the rest. If the token "1" is only an alternative, its
    whole probability counts for the label "1".

    Args:
        completion: a completion whose text contains a label.
        start: offset of the label in the text, in characters.
        labels: the offered labels.

    Returns:
        Label -> log-probability, -inf for a label that is not among the alternatives. Empty if no label is among them.
    """
    index = next((i for i, place in enumerate(completion.places) if place.start <= start < _end(place)), None)
    if index is None:
        return {}
    place = completion.places[index]
    before = place.text[: start - place.start].lstrip()
    mass: defaultdict[str, float] = defaultdict(float)
    for text, logprob in place.logprobs.items():
        label = _label_in(text, after=before, labels=labels)
        if label is not None:
            mass[label] += math.exp(logprob)
    written = completion.text[start : _end(place)]
    if written in labels and index + 1 < len(completion.places):
        _share_with_longer(mass, written=written, following=completion.places[index + 1], labels=labels)
    if not any(mass.values()):
        return {}
    return {label: math.log(mass[label]) if mass[label] > 0 else -math.inf for label in labels}


def _end(place: TokenAlternatives) -> int:
    return place.start + len(place.text)


def _label_in(text: str, *, after: str, labels: Sequence[str]) -> str | None:
    """Return the label that a token contains after the text `after`: "A", " A", ">A" and "A<" all contain A."""
    stripped = text.lstrip()
    if not stripped.startswith(after):
        return None
    name = _name_in(stripped[len(after) :].lstrip())
    return name if name in labels else None


def _share_with_longer(
    mass: dict[str, float], *, written: str, following: TokenAlternatives, labels: Sequence[str]
) -> None:
    """Move part of the probability of the token `written` to longer labels that the next token can complete."""
    whole = mass[written]
    for text, logprob in following.logprobs.items():
        rest = _name_in(text)
        if rest and written + rest in labels:
            share = whole * math.exp(logprob)
            mass[written + rest] += share
            mass[written] -= share


def _name_in(text: str) -> str:
    """Return the letters and digits at the start of a text."""
    return re.split(r"[^A-Za-z0-9]", text, maxsplit=1)[0]
