"""The effect of an attack: compare judgments without and with the attack.

The unit of comparison is one presentation of two responses to the judge. In pairwise mode, a presentation is one order of
one comparison, so a difference never comes from the order. In pointwise mode, a presentation is two responses and their
scores. The names of fields and functions call a presentation a look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tirjudge.right import ScoringRule, scores_of
from tirjudge.types import GOOD_SCORE, Mode
from tirjudge_harness.benchmark import Compared
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.evaluation import marks_of
from tirjudge_harness.metric_tree import ComparisonScore
from tirjudge_harness.robustness.attacks import ResponseAttack
from tirjudge_harness.statistics.intervals import Estimate, average_of, clustered_share

Key = tuple[str, tuple[int, ...]]
"""Id of an example, and the response indexes in the order shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Scores of the attacked responses; pointwise only."""

    change: Estimate
    """Mean change of the score (with the attack minus without it), on the scale from 1 to 10."""
    good_before: Estimate
    """Share of responses with a score of at least 6 without the attack."""
    good_after: Estimate
    """Share of responses with a score of at least 6 with the attack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The effect of one attack, over the presentations that were judged without and with the attack."""

    attack: str
    """Name of the attack."""
    kind: str
    """Group of the attack in tables."""
    what: str
    """Short description of the attack."""
    num_looks: int
    """Number of presentations that were judged without and with the attack."""
    flips: Estimate
    """Share of the presentations that are right without the attack and wrong with it."""
    num_undecided: int
    """Number of presentations that are right without the attack, and a tie or without a verdict with it."""
    num_mended: int
    """Number of presentations that are not right without the attack, but right with it."""
    before: Estimate
    """Accuracy without the attack. A tie counts as 0.5."""
    after: Estimate
    """Accuracy with the attack."""
    coverage_before: Estimate
    """Share of the presentations with a verdict without the attack. A tie is a verdict."""
    coverage_after: Estimate
    """Share of the presentations with a verdict with the attack."""
    verdicts_before: Estimate
    """Accuracy of the verdicts without the attack."""
    verdicts_after: Estimate
    """Accuracy of the verdicts with the attack."""
    scores: Scores | None
    """Changes of the scores. None: pairwise mode."""


def looks_of(judged: Sequence[JudgedExample], *, compared: Compared) -> dict[Key, ComparisonScore]:
    """Return the score of each presentation."""
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
    """Compute the effect of an attack.

    Args:
        attack: the attack.
        before: the judged examples without an attack.
        after: the judged examples with the attack, under the same ids.
        compared: returns the comparisons of an example.
    """
    original = looks_of(before, compared=compared)
    attacked = looks_of(after, compared=compared)
    common = [key for key in original if key in attacked and _is_aimed(attack, key[1], mark=original[key])]
    pairs = [(original[key], attacked[key]) for key in common]
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
        coverage_before=_share((was, float(was.graded.has_verdict)) for was, _ in pairs),
        coverage_after=_share((was, float(now.graded.has_verdict)) for was, now in pairs),
        verdicts_before=_share((was, was.credit) for was, _ in pairs if was.graded.has_verdict),
        verdicts_after=_share((was, now.credit) for was, now in pairs if now.graded.has_verdict),
        scores=_scores(before, after) if is_pointwise else None,
    )


def worst_of(
    attacks: Sequence[ResponseAttack],
    *,
    before: Sequence[JudgedExample],
    after: Mapping[str, Sequence[JudgedExample]],
    compared: Compared,
) -> Estimate:
    """Return the share of the presentations that are right without an attack and wrong with at least one attack. The
    control is not an attack.
    """
    original = looks_of(before, compared=compared)
    turned: dict[Key, bool] = {}
    for attack in attacks:
        if attack.is_control:
            continue
        attacked = looks_of(after[attack.name], compared=compared)
        for key, was in original.items():
            if was.result == "right" and key in attacked and _is_aimed(attack, key[1], mark=was):
                turned[key] = turned.get(key, False) or attacked[key].result == "wrong"
    return _share((original[key], float(flipped)) for key, flipped in turned.items())


def _is_aimed(attack: ResponseAttack, order: Sequence[int], *, mark: ComparisonScore) -> bool:
    """Whether the letter that the attack names is the letter of an attacked response."""
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
