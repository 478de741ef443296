"""The probabilities of labels, from the tokens that a model might have written instead of the ones that it wrote.

Chat endpoints list the likeliest few (at most 20) at each place. A label that is not among them had less than the least of
them, and gets 0, so the mass of the labels is a lower bound.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence

from tirjudge.types import Completion, TokenAlternatives


def label_logprobs(completion: Completion, *, start: int, labels: Sequence[str]) -> dict[str, float]:
    """Log-probability of each label where one was written.

    A label of several tokens ("10" as "1", "0") can only be told from the shorter one that it begins with where it was
    written: P("10") = P("1") P("0" | "1"), and P("1") keeps the rest. Elsewhere "1" is taken for the label "1".

    Args:
        completion: a label stands in its text.
        start: where the label begins.
        labels: what was offered.

    Returns:
        -inf for a label that is not among the alternatives; empty if the completion tells of no label.
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
    """The label that a token would have begun: "A", " A", ">A" and "A<" are all A."""
    stripped = text.lstrip()
    if not stripped.startswith(after):
        return None
    name = _name_in(stripped[len(after) :].lstrip())
    return name if name in labels else None


def _share_with_longer(
    mass: dict[str, float], *, written: str, following: TokenAlternatives, labels: Sequence[str]
) -> None:
    """Of what the token `written` has, the part goes to longer labels that the next token would have completed."""
    whole = mass[written]
    for text, logprob in following.logprobs.items():
        rest = _name_in(text)
        if rest and written + rest in labels:
            share = whole * math.exp(logprob)
            mass[written + rest] += share
            mass[written] -= share


def _name_in(text: str) -> str:
    """The letters and digits that a text begins with."""
    return re.split(r"[^A-Za-z0-9]", text, maxsplit=1)[0]
