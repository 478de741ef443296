"""From decisions to comparison scores and metric values. What is right, tied or undecided is defined in `tirjudge.right`.

A comparison that nobody judged has no score; it is missing. One that was judged without a verdict has the result `none`: it
is no tie, and it is counted by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tirjudge.right import ScoringRule, choice_of, credit, decided_by_order
from tirjudge.types import Mode
from tirjudge.verdict import votes_still_needed
from tirjudge_harness.benchmark import Benchmark
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.metric_tree import ComparisonScore, MetricValue
from tirjudge_harness.protocols import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationCounts:
    """How many of each there are. The marks are the right, the wrong, the ties and those with no verdict."""

    examples: int
    """Judged or not."""
    marks: int
    right: int
    wrong: int
    ties: int
    """Marks whose comparison was left even: equally good, equal scores, or orders that disagree."""
    no_verdict: int
    """Marks whose comparison was judged and not decided."""
    missing: int
    """Comparisons without a mark: not judged, or not as often as the protocol needs."""
    decisions: int
    forced: int
    """Decisions that the judge had to be made to give."""
    undecided: int
    """Decisions without a verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What a judge earned on a benchmark."""

    figures: list[MetricValue]
    """Of the benchmark's sheet, with intervals, each before its parts."""
    marks: list[ComparisonScore]
    counts: EvaluationCounts

    def as_json(self) -> dict[str, Any]:
        """Figures and counts, shares from 0 to 1."""
        return {"figures": [asdict(figure) for figure in self.figures], "counts": asdict(self.counts)}


def evaluate(benchmark: Benchmark, judged: Sequence[JudgedExample], *, mode: Mode, protocol: Protocol) -> Evaluation:
    """Everything that a benchmark says of a judge.

    Args:
        benchmark: whose sheet and, if the protocol has no counting of its own, whose own rule is used.
        judged: all in that mode; one without decisions is missing.
        mode: in which they were judged.
        protocol: how it is counted.

    Raises:
        ValueError: nothing was judged in the way that the protocol needs.
    """
    if mode not in benchmark.modes:
        raise ValueError(f"mode: {mode.value} given; {benchmark.name} has {', '.join(benchmark.modes)}")
    from tirjudge_harness.statistics.intervals import figures_of

    orders, counting = benchmark.rule(protocol, mode=mode)
    marks: list[ComparisonScore] = []
    missing = 0
    for one in judged:
        told = [pair for pair in benchmark.compared(one.outline, mode) if _is_told(one.outline.correct, pair)]
        enough = [pair for pair in told if _is_enough(one, pair, orders=orders, votes=protocol.votes)]
        earned = marks_of(one, compared=enough, counting=counting)
        marks += earned
        missing += len(told) - len(earned)
    if missing and not marks and any(one.decisions for one in judged):
        shows = "two opposite orders" if orders == "both" else "one order"
        votes = f" with {protocol.votes} votes each" if protocol.votes > 1 else ""
        raise ValueError(
            f"protocol: {protocol.name} needs {shows}{votes} of every comparison, and none of {missing} was judged so"
        )
    figures = figures_of(benchmark.sheet, marks, [one for one in judged if one.decisions])
    return Evaluation(figures=figures, marks=marks, counts=_counts(marks, judged=judged, missing=missing))


def marks_of(
    judged: JudgedExample, *, compared: Sequence[tuple[int, ...]], counting: ScoringRule
) -> list[ComparisonScore]:
    """One mark for each comparison that was judged and in which some responses are right and others are not.

    Args:
        judged: an example and what was said about it.
        compared: sets of its responses, as indexes.
        counting: how orders, ties and missing verdicts count.
    """
    marks: list[ComparisonScore] = []
    for responses in compared:
        if not _is_told(judged.outline.correct, responses):
            continue
        right = frozenset(judged.outline.correct).intersection(responses)
        earned = credit(judged.decisions, responses, right=right, mode=judged.mode, counting=counting)
        if earned is not None:
            result, share = earned
            marks.append(
                ComparisonScore(outline=judged.outline, compared=tuple(responses), credit=share, result=result)
            )
    return marks


def _is_told(correct: Sequence[int], responses: Sequence[int]) -> bool:
    """Whether there is something to be right about: some of the responses are right, and others are not."""
    return 0 < sum(index in correct for index in responses) < len(responses)


def _is_enough(
    judged: JudgedExample, responses: Sequence[int], *, orders: Literal["single", "both"], votes: int
) -> bool:
    """Whether a comparison was judged in as many orders as asked for, and voted on until it was decided."""
    if judged.mode is Mode.POINTWISE:
        cast = Counter(decision.shown for decision in judged.decisions)
        return all(cast[(index,)] >= votes for index in responses)
    by_order = decided_by_order(judged.decisions, responses)
    if any(decision.whole for cast in by_order.values() for decision in cast):
        return True
    if len(by_order) < (2 if orders == "both" else 1):
        return False
    return votes == 1 or all(
        votes_still_needed([choice_of(vote) for vote in cast], num_votes=votes) == 0 for cast in by_order.values()
    )


def _counts(marks: Sequence[ComparisonScore], *, judged: Sequence[JudgedExample], missing: int) -> EvaluationCounts:
    results = Counter(mark.result for mark in marks)
    decisions = [decision for one in judged for decision in one.decisions]
    return EvaluationCounts(
        examples=len(judged),
        marks=len(marks),
        right=results["right"],
        wrong=results["wrong"],
        ties=results["tie"],
        no_verdict=results["none"],
        missing=missing,
        decisions=len(decisions),
        forced=sum(decision.forced for decision in decisions),
        undecided=sum(not decision.has_verdict for decision in decisions),
    )
