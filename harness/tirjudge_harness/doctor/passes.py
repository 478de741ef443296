"""One pass of the doctor over the items of `selfcheck`, and its figures.

A pass is a run of the benchmark by the functions of `tirjudge bench run`, in a temporary folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Literal

from tirjudge.types import Mode, RolloutRecord, StopReason
from tirjudge_harness.bench_run import RunContext, judge_plan
from tirjudge_harness.benchmarks.selfcheck import BENCHMARK
from tirjudge_harness.evaluation import evaluate
from tirjudge_harness.examples import Example
from tirjudge_harness.metric_tree import ComparisonScore
from tirjudge_harness.planning import RunSettings, plan_run
from tirjudge_harness.run import BenchmarkRun
from tirjudge_harness.statistics.intervals import Estimate, clustered_share
from tirjudge_harness.statistics.rates import Distribution, costs_of, kind_of, tool_use_of, verdicts_of


class PassName(StrEnum):
    """How the items are judged."""

    WITH_TOOLS = "with_tools"
    """As `tirjudge bench run selfcheck` judges them."""
    WITHOUT_TOOLS = "without_tools"
    """Prompts offer no tools."""
    OUTPUTS_REMOVED = "outputs_removed"
    """Programs run, but the model is shown an empty output."""

    @property
    def shown(self) -> str:
        """Name for people."""
        return self.value.replace("_", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class PassFigures:
    """Figures of one pass. Shares are from 0 to 1, with 95 % intervals."""

    accuracy: Estimate
    """As `tirjudge bench run selfcheck` reports it: equal scores count as 0.5, a missing verdict is wrong."""
    tool_rate: Estimate
    """Share of rollouts that ran a program."""
    program_errors: Estimate
    """Share of tool calls that failed."""
    format_errors: Estimate
    """Share of rollouts in which the model itself wrote no well-formed verdict."""
    forced: Estimate
    """Share of verdicts that were forced."""
    ended: dict[str, int]
    """Reason for the end of a rollout -> number of rollouts."""
    basis: dict[str, float] | None
    """Basis of a verdict -> share of verdicts. None: not known."""
    input_tokens: float | None
    """Mean prompt tokens per judgment. None: no judgments, or the endpoint reports no counts."""
    output_tokens: float | None
    """Mean generated tokens per judgment. None: as for `input_tokens`."""
    seconds: float | None
    """Mean seconds per judgment, at the concurrency of the pass. None: no judgments."""
    wall_s: float
    """Seconds of the whole pass."""
    judgments: int
    """Number of judgments."""
    failed: int
    """Number of requests that failed. Their items are not part of the accuracy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfcheckPass:
    """One pass with its run."""

    figures: PassFigures
    marks: list[ComparisonScore]
    """Scores of the items."""
    rollouts: list[RolloutRecord]

    @property
    def num_items(self) -> int:
        """Number of judged items. An item of three scored responses has two comparisons."""
        return len({mark.outline.id for mark in self.marks})


async def run_pass(
    name: PassName,
    examples: Sequence[Example],
    *,
    folder: Path,
    num_items: int | None,
    context: RunContext,
    title: str,
) -> SelfcheckPass:
    """Judge the items once.

    Args:
        name: how the items are judged.
        examples: all items of the benchmark.
        folder: empty folder for the run.
        num_items: sample size. None: all items.
        context: the judge.
        title: title of the progress display.

    Raises:
        RunStopped: the judge is unavailable.
    """
    tools: Literal["auto", "off"] = "off" if name is PassName.WITHOUT_TOOLS else "auto"
    settings = RunSettings(tools=tools, limit=num_items)
    plan = plan_run(BENCHMARK, examples, opened=context.opened, settings=settings)
    started = perf_counter()
    run = await judge_plan(plan, benchmark=BENCHMARK, out=folder, context=context, title=title)
    return result_of(run, wall_s=perf_counter() - started)


def result_of(run: BenchmarkRun, *, wall_s: float) -> SelfcheckPass:
    """Return the figures of a run of the benchmark. `wall_s`: seconds that the run took."""
    evaluation = evaluate(BENCHMARK, run.examples, mode=run.manifest.mode, protocol=run.protocol)
    headline, judged = evaluation.figures[0], run.judged
    found = [
        (one.outline.cluster, rollout) for one in judged for judgment in one.judgments for rollout in judgment.rollouts
    ]
    calls = [(cluster, turn) for cluster, rollout in found for turn in rollout.turns if turn.was_called]
    costs = costs_of(judged)
    are_counted = costs.input_tokens is not None and costs.input_tokens.total > 0
    figures = PassFigures(
        accuracy=Estimate(value=headline.value, num=headline.num_marks, interval=headline.interval),
        tool_rate=tool_use_of(judged, marks=evaluation.marks).rollouts,
        program_errors=clustered_share((cluster, float(kind_of(turn) is not None)) for cluster, turn in calls),
        format_errors=clustered_share((cluster, float(_lacks_verdict(rollout))) for cluster, rollout in found),
        forced=verdicts_of(judged).forced,
        ended=dict(Counter(rollout.stop_reason.value for _, rollout in found)),
        basis=_basis([rollout for _, rollout in found]),
        input_tokens=_mean(costs.input_tokens) if are_counted else None,
        output_tokens=_mean(costs.output_tokens) if are_counted else None,
        seconds=_mean(costs.latency_s),
        wall_s=wall_s,
        judgments=costs.num_judgments,
        failed=len(run.failures),
    )
    return SelfcheckPass(figures=figures, marks=evaluation.marks, rollouts=[rollout for _, rollout in found])


def chance_of(marks: Sequence[ComparisonScore]) -> float | None:
    """Return the accuracy of a judge that guesses; None without items. Two scores that are guessed count as 0.5."""
    shares = [
        0.5 if mark.outline.mode is Mode.POINTWISE else len(mark.outline.correct) / len(mark.compared) for mark in marks
    ]
    return fmean(shares) if shares else None


def _lacks_verdict(rollout: RolloutRecord) -> bool:
    return rollout.stop_reason not in (StopReason.VERDICT, StopReason.DEADLINE)


def _basis(rollouts: Sequence[RolloutRecord]) -> dict[str, float] | None:
    """Return the share of verdicts per basis; None if no verdict names its basis."""
    bases = [getattr(rollout.verdict, "basis", None) for rollout in rollouts if rollout.verdict is not None]
    known = Counter(basis for basis in bases if basis is not None)
    return {basis: num / known.total() for basis, num in sorted(known.items())} or None


def _mean(spread: Distribution | None) -> float | None:
    return None if spread is None else spread.mean
