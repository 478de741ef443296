"""What an attack did: judgments before and after, set side by side.

What is set side by side is a look: pairwise, one order of one comparison, so that it is never the order that made the
difference; pointwise, two responses and their scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tirjudge.right import ScoringRule, scores_of
from tirjudge.types import Mode
from tirjudge.verdict import GOOD_SCORE
from tirjudge_harness.benchmark import Compared
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.evaluation import marks_of
from tirjudge_harness.metric_tree import ComparisonScore
from tirjudge_harness.robustness.attacks import ResponseAttack
from tirjudge_harness.statistics.intervals import Estimate, average_of, clustered_share

Key = tuple[str, tuple[int, ...]]
"""An example, and what was shown of it in which order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Of the responses that were tampered with, pointwise."""

    change: Estimate
    """After less before, in points of the 1 to 10 scale."""
    good_before: Estimate
    """Those that got 6 or more."""
    good_after: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Of one attack, over the looks that were judged before and after."""

    attack: str
    kind: str
    what: str
    num_looks: int
    flips: Estimate
    """Of the looks that were right before: those that are wrong after."""
    num_undecided: int
    """Looks that were right before, and after are a tie or without a verdict."""
    num_mended: int
    """Looks that were not right before and are after."""
    before: Estimate
    """Accuracy; a tie counts half."""
    after: Estimate
    scores: Scores | None
    """None: pairwise."""


def looks_of(judged: Sequence[JudgedExample], *, compared: Compared) -> dict[Key, ComparisonScore]:
    """What each look came to."""
    looks: dict[Key, ComparisonScore] = {}
    for one in judged:
        for pair in compared(one.outline, one.mode):
            if one.mode is Mode.POINTWISE:
                found = {pair: one.decisions}
            else:
                orders = dict.fromkeys(d.shown for d in one.decisions if set(d.shown) == set(pair))
                found = {order: tuple(d for d in one.decisions if d.shown == order) for order in orders}
            for order, decisions in found.items():
                for mark in marks_of(replace(one, decisions=decisions), compared=[pair], counting=ScoringRule()):
                    looks[one.outline.id, order] = mark
    return looks


def effect_of(
    attack: ResponseAttack, *, before: Sequence[JudgedExample], after: Sequence[JudgedExample], compared: Compared
) -> Effect:
    """What an attack did.

    Args:
        attack: what was done to the wrong responses.
        before: the judgments of the untouched examples.
        after: those of the attacked ones, under the same ids.
        compared: which responses are set against each other.
    """
    there = looks_of(before, compared=compared)
    here = looks_of(after, compared=compared)
    common = [key for key in there if key in here and _is_aimed(attack, key[1], mark=there[key])]
    pairs = [(there[key], here[key]) for key in common]
    right = [(was, now) for was, now in pairs if was.result == "right"]
    is_pointwise = any(one.mode is Mode.POINTWISE for one in before)
    return Effect(
        attack=attack.name,
        kind=attack.kind,
        what=attack.what,
        num_looks=len(common),
        flips=_share((was, float(now.result == "wrong")) for was, now in right),
        num_undecided=sum(now.result not in ("right", "wrong") for _, now in right),
        num_mended=sum(was.result != "right" and now.result == "right" for was, now in pairs),
        before=_share((was, was.credit) for was, _ in pairs),
        after=_share((was, now.credit) for was, now in pairs),
        scores=_scores(before, after) if is_pointwise else None,
    )


def worst_of(
    attacks: Sequence[ResponseAttack],
    *,
    before: Sequence[JudgedExample],
    after: Mapping[str, Sequence[JudgedExample]],
    compared: Compared,
) -> Estimate:
    """Of the looks that were right before: those that at least one attack turns wrong. The control is none."""
    there = looks_of(before, compared=compared)
    turned: dict[Key, bool] = {}
    for attack in attacks:
        if attack.is_control:
            continue
        here = looks_of(after[attack.name], compared=compared)
        for key, was in there.items():
            if was.result == "right" and key in here and _is_aimed(attack, key[1], mark=was):
                turned[key] = turned.get(key, False) or here[key].result == "wrong"
    return _share((there[key], float(flipped)) for key, flipped in turned.items())


def _is_aimed(attack: ResponseAttack, order: Sequence[int], *, mark: ComparisonScore) -> bool:
    """Whether the letter that an attack names is that of a response it was done to."""
    if attack.aims_at is None:
        return True
    return order["AB".index(attack.aims_at)] not in mark.outline.correct


def _share(found: Iterable[tuple[ComparisonScore, float]]) -> Estimate:
    return clustered_share((mark.outline.cluster, value) for mark, value in found)


def _scores(before: Sequence[JudgedExample], after: Sequence[JudgedExample]) -> Scores:
    now = {one.outline.id: one for one in after}
    known: list[tuple[str, float, float]] = []
    for one in before:
        if one.outline.id not in now:
            continue
        firsts = scores_of(one.decisions, expected=False)
        seconds = scores_of(now[one.outline.id].decisions, expected=False)
        for index in range(one.outline.num_responses):
            first, second = firsts.get(index), seconds.get(index)
            if index not in one.outline.correct and first is not None and second is not None:
                known.append((one.outline.cluster, first, second))
    return Scores(
        change=average_of(
            [second - first for _, first, second in known], clusters=[cluster for cluster, _, _ in known]
        ),
        good_before=clustered_share((cluster, float(first >= GOOD_SCORE)) for cluster, first, _ in known),
        good_after=clustered_share((cluster, float(second >= GOOD_SCORE)) for cluster, _, second in known),
    )
