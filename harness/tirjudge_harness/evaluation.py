"""Convert decisions to comparison scores and metric values. `tirjudge.right` defines right, tied and undecided.

A comparison that was not judged is missing and has no score. A comparison that was judged without a verdict has the result
`none`, which is not a tie and is counted separately.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from tirjudge.right import Decision, ScoringRule, basis_of_counted, choice_of, credit, decided_by_order
from tirjudge.selective import SelectiveAccuracy, selective_accuracy
from tirjudge.types import Mode
from tirjudge.verdict import votes_still_needed
from tirjudge_harness.benchmark import Benchmark
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.external import EVEN
from tirjudge_harness.metric_tree import ComparisonScore, MetricValue, Node, breakdown_by
from tirjudge_harness.protocols import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationCounts:
    """Counts of an evaluation. `marks` is the sum of `right`, `wrong`, `ties` and `no_verdict`."""

    examples: int
    """Number of examples, including those without a judgment."""
    unjudged: int
    """Examples without a judgment that need one."""
    labeled_ties: int
    """Examples without a judgment whose label is a tie: no verdict on them is right."""
    without_verdict: int
    """Judged examples without a verdict in any decision."""
    marks: int
    """Number of comparison scores."""
    right: int
    wrong: int
    ties: int
    """Comparisons that ended in a tie: equally good, equal scores, or orders that disagree."""
    no_verdict: int
    """Comparisons that were judged without a verdict."""
    missing: int
    """Comparisons without a score: not judged, or with fewer orders or votes than the protocol needs."""
    decisions: int
    forced: int
    """Decisions from a forced verdict."""
    undecided: int
    """Decisions without a verdict."""

    @property
    def with_verdict(self) -> int:
        """Number of examples with a verdict in at least one decision."""
        return self.examples - self.unjudged - self.labeled_ties - self.without_verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The result of a judge on a benchmark."""

    figures: list[MetricValue]
    """Values of the metric tree with intervals, each metric before its parts. Forced verdicts count like others."""
    unforced: list[MetricValue]
    """The same values if each forced verdict counts as none, with the credit that the official rule gives to no verdict.
    Empty: no verdict was forced."""
    marks: list[ComparisonScore]
    """One score per comparison."""
    counts: EvaluationCounts

    @property
    def selective(self) -> SelectiveAccuracy:
        """Coverage, and accuracy over the comparisons with a verdict."""
        return selective_accuracy(mark.graded for mark in self.marks)

    def as_json(self) -> dict[str, Any]:
        """Return metric values, counts and selective accuracy; rates are from 0 to 1."""
        return {
            "figures": [asdict(figure) for figure in self.figures],
            **({"unforced_figures": [asdict(figure) for figure in self.unforced]} if self.unforced else {}),
            "counts": asdict(self.counts),
            "selective": self.selective.as_json(),
        }


def evaluate(
    benchmark: Benchmark, judged: Sequence[JudgedExample], *, mode: Mode | None, protocol: Protocol
) -> Evaluation:
    """Compute all metrics of a benchmark.

    Args:
        benchmark: provides the metric tree, and the official scoring rule if the protocol has no rule.
        judged: the examples. An example without decisions is missing.
        mode: the mode in which all examples were judged. None: each in its own.
        protocol: how decisions are counted.

    Raises:
        ValueError: the benchmark does not have this mode, or no comparison has the orders and votes that the protocol needs.
    """
    benchmark.check_mode(mode, option="mode")
    from tirjudge_harness.statistics.intervals import figures_of

    orders, counting = benchmark.rule(protocol, mode=mode)
    marks: list[ComparisonScore] = []
    counted: list[tuple[JudgedExample, list[tuple[int, ...]]]] = []
    missing = 0
    for one in judged:
        scorable = [pair for pair in benchmark.compared(one.outline, one.mode) if _is_scorable(one, pair)]
        enough = [pair for pair in scorable if _is_enough(one, pair, orders=orders, votes=protocol.votes)]
        earned = marks_of(one, compared=enough, counting=counting)
        marks += earned
        counted.append((one, enough))
        missing += len(scorable) - len(earned)
    if missing and not marks and any(one.decisions for one in judged):
        shows = "two opposite orders" if orders == "both" else "one order"
        votes = f" with {protocol.votes} votes each" if protocol.votes > 1 else ""
        raise ValueError(
            f"protocol: {protocol.name} needs {shows}{votes} for each comparison; none of the {missing} comparisons has that"
        )
    found = [one for one in judged if one.decisions]
    counts = _counts(marks, judged=judged, missing=missing)
    sheet = sheet_of(benchmark, marks)
    unforced_marks: list[ComparisonScore] = []
    if counts.forced:
        without_forced = replace(counting, no_verdict=benchmark.official_for(mode).counting.no_verdict)
        for one, enough in counted:
            unforced_marks += marks_of(_unforced(one), compared=enough, counting=without_forced)
    return Evaluation(
        figures=figures_of(sheet, marks, found),
        unforced=figures_of(sheet, unforced_marks, list(map(_unforced, found))) if counts.forced else [],
        marks=marks,
        counts=counts,
    )


def sheet_of(benchmark: Benchmark, marks: Sequence[ComparisonScore]) -> tuple[Node, ...]:
    """Return the metric tree of a benchmark, with a metric for each value of its breakdown tags in the comparisons."""
    return (*benchmark.sheet, *(cell for tag in benchmark.breakdown for cell in breakdown_by(tag, marks)))


def _unforced(judged: JudgedExample) -> JudgedExample:
    """Return an example whose forced decisions have no verdict."""
    kept = [
        Decision(shown=one.shown, forced=True, whole=one.whole, scalar=one.scalar) if one.forced else one
        for one in judged.decisions
    ]
    return replace(judged, decisions=tuple(kept))


def marks_of(
    judged: JudgedExample, *, compared: Sequence[tuple[int, ...]], counting: ScoringRule
) -> list[ComparisonScore]:
    """Return one score for each judged comparison that has both right and wrong responses, and for each response that is
    accepted or rejected alone.

    Args:
        judged: an example with its decisions.
        compared: the comparisons, as tuples of response indexes.
        counting: how orders, ties and missing verdicts count.
    """
    marks: list[ComparisonScore] = []
    for responses in compared:
        if not _is_scorable(judged, responses):
            continue
        right = frozenset(judged.outline.correct).intersection(responses)
        earned = credit(judged.decisions, responses, right=right, mode=judged.mode, counting=counting)
        if earned is not None:
            result, share = earned
            marks.append(
                ComparisonScore(
                    outline=judged.outline,
                    compared=tuple(responses),
                    credit=share,
                    result=result,
                    basis=None
                    if result == "none"
                    else basis_of_counted(judged.decisions, responses, counting=counting),
                )
            )
    return marks


def _is_scorable(judged: JudgedExample, responses: Sequence[int]) -> bool:
    """Whether some of the responses are right and some are wrong, or a single response is accepted or rejected. Raw scores of
    a scalar reward model have no scale, so they accept nothing."""
    if len(responses) == 1:
        return judged.mode.scores_each and not any(decision.scalar for decision in judged.decisions)
    return 0 < sum(index in judged.outline.correct for index in responses) < len(responses)


def _is_enough(
    judged: JudgedExample, responses: Sequence[int], *, orders: Literal["single", "both"], votes: int
) -> bool:
    """Whether a comparison was judged in all orders, with enough votes in each order to decide a majority of `votes`."""
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
    open_ties = [bool(one.outline.facts.get(EVEN)) for one in judged if not one.decisions]
    return EvaluationCounts(
        examples=len(judged),
        unjudged=open_ties.count(False),
        labeled_ties=open_ties.count(True),
        without_verdict=sum(bool(one.decisions) and not one.has_verdict for one in judged),
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
