"""Summarize the output of `tirjudge judge`. Ties, abstentions, forced verdicts and failures are counted separately."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from tirjudge.selective import GradedItem, SelectiveAccuracy, selective_accuracy
from tirjudge.statistics import ratio, wilson_interval
from tirjudge.types import Judgment
from tirjudge_harness.output import OutputRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Counts and rates over the judgments in the output file. A rate is None if its denominator is 0."""

    num_judged: int
    num_failed: int
    """Items of this run that failed. They are not part of any rate, and the next run retries them."""
    num_malformed: int
    """Invalid lines of the input."""
    num_scored: int
    """Judgments of items with a label."""
    accuracy: float | None
    """Mean score of the scored judgments."""
    interval: tuple[float, float] | None
    """Wilson's 95 % interval of the accuracy."""
    num_forced: int
    """Judgments whose verdict was forced, in part or as a whole."""
    unforced_accuracy: float | None
    """Accuracy if these count as no verdict, which is wrong. None: no scored verdict was forced."""
    selective: SelectiveAccuracy
    """Coverage, and accuracy over the scored judgments with a verdict."""
    num_ties: int
    """Judgments with the status `tie`."""
    num_abstentions: int
    """Judgments with the status `abstained`."""
    tool_use_rate: float | None
    """Share of rollouts that ran a program."""
    code_error_rate: float | None
    """Share of executed programs whose outcome was not `ok`."""
    no_verdict_rate: float | None
    """Share of rollouts without an unforced verdict: the verdict was forced, or is missing."""
    mean_tool_calls: float | None
    """Executed programs per judgment."""
    input_tokens: int
    """Judgments whose tokens are not reported count 0, also in `output_tokens`."""
    output_tokens: int
    cost_usd: float | None
    """Price in US dollars of the judgments whose price is known. None: no price is known."""
    judgments_per_s: float | None
    """New judgments of this run per second of elapsed time. None: the run made no new judgment."""

    def as_json(self) -> dict[str, Any]:
        """Return all fields; rates are from 0 to 1."""
        return {**asdict(self), "selective": self.selective.as_json()}


def summarize(
    records: Collection[OutputRecord], *, num_failed: int, num_malformed: int, num_new: int, elapsed_s: float
) -> Summary:
    """Summarize a run.

    Args:
        records: all records in the output, including the records of earlier runs.
        num_failed: number of items that failed in this run.
        num_malformed: number of invalid lines.
        num_new: number of records that this run added.
        elapsed_s: duration of this run in seconds.
    """
    judgments = [record.judgment for record in records if record.judgment is not None]
    correct = [record.correct for record in records if record.correct is not None]
    unforced = [
        record.correct
        for record in records
        if record.correct is not None and (record.judgment is None or not record.judgment.verdict.forced)
    ]
    rollouts = [rollout for judgment in judgments for rollout in judgment.rollouts]
    outcomes = [rollout.outcomes for rollout in rollouts]
    num_programs = sum(map(len, outcomes))
    costs = [judgment.usage.cost_usd for judgment in judgments if judgment.usage.cost_usd is not None]
    return Summary(
        num_judged=len(judgments),
        num_failed=num_failed,
        num_malformed=num_malformed,
        num_scored=len(correct),
        accuracy=ratio(sum(correct), of=len(correct)),
        interval=wilson_interval(sum(correct), num_trials=len(correct)) if correct else None,
        num_forced=sum(judgment.verdict.forced for judgment in judgments),
        unforced_accuracy=ratio(sum(unforced), of=len(correct)) if len(unforced) < len(correct) else None,
        selective=selective_accuracy(
            GradedItem.of(record.judgment, credit=record.correct)
            for record in records
            if record.judgment is not None and record.correct is not None
        ),
        num_ties=_count(judgments, status="tie"),
        num_abstentions=_count(judgments, status="abstained"),
        tool_use_rate=ratio(sum(map(bool, outcomes)), of=len(rollouts)),
        code_error_rate=ratio(sum(not o.is_ok for ran in outcomes for o in ran), of=num_programs),
        no_verdict_rate=ratio(sum(not r.stop_reason.is_verdict for r in rollouts), of=len(rollouts)),
        mean_tool_calls=ratio(num_programs, of=len(judgments)),
        input_tokens=sum(judgment.usage.input_tokens or 0 for judgment in judgments),
        output_tokens=sum(judgment.usage.output_tokens or 0 for judgment in judgments),
        cost_usd=sum(costs) if costs else None,
        judgments_per_s=num_new / elapsed_s if num_new else None,
    )


def problems_of(summary: Summary, *, max_error_rate: float | None, min_accuracy: float | None) -> list[str]:
    """Return the reasons why the command fails, one sentence each. Empty: the run is good enough.

    Args:
        summary: the summary of the run.
        max_error_rate: maximum share of the items that failed. None: no item may fail.
        min_accuracy: minimum accuracy. None: no minimum.
    """
    problems: list[str] = []
    num = summary.num_failed + summary.num_judged
    if summary.num_failed > (max_error_rate or 0.0) * num:
        more = "" if max_error_rate is None else f", more than --max-error-rate {max_error_rate:g}"
        problems.append(f"{summary.num_failed} of {num} items failed{more}; run the command again to retry them")
    elif not summary.num_judged:
        problems.append("no judgment was made")
    if min_accuracy is not None and summary.accuracy is None:
        problems.append(f"no item has a label, so the accuracy does not reach --min-accuracy {min_accuracy:g}")
    elif min_accuracy is not None and summary.accuracy is not None and summary.accuracy < min_accuracy:
        problems.append(
            f"the accuracy is {summary.accuracy:.1%} over {summary.num_scored}, below --min-accuracy {min_accuracy:g}"
        )
    return problems


def _count(judgments: Sequence[Judgment], *, status: str) -> int:
    return sum(judgment.verdict.status == status for judgment in judgments)


def summary_table(summary: Summary) -> Table:
    """Return the summary as a table for the terminal."""
    accuracy = _percent(summary.accuracy)
    if summary.interval is not None:
        accuracy += " (95 %: {:.1%} to {:.1%})".format(*summary.interval)
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in (
        ("judged", str(summary.num_judged)),
        ("failed, will be retried", str(summary.num_failed)),
        ("malformed lines", str(summary.num_malformed)),
        (f"accuracy over {summary.num_scored}", accuracy),
        *(
            []
            if summary.unforced_accuracy is None
            else [(f"accuracy, {summary.num_forced} forced as none", _percent(summary.unforced_accuracy))]
        ),
        *_selective(summary.selective),
        ("ties", str(summary.num_ties)),
        ("abstentions", str(summary.num_abstentions)),
        ("rollouts that ran a program", _percent(summary.tool_use_rate)),
        ("programs that failed", _percent(summary.code_error_rate)),
        ("rollouts without unforced verdict", _percent(summary.no_verdict_rate)),
        ("programs per judgment", _number(summary.mean_tool_calls)),
        ("tokens in, out", f"{summary.input_tokens:,}, {summary.output_tokens:,}"),
        ("cost, USD", "-" if summary.cost_usd is None else f"{summary.cost_usd:.4f}"),
        ("judgments per second", _number(summary.judgments_per_s)),
    ):
        table.add_row(name, value)
    return table


def _selective(found: SelectiveAccuracy) -> Iterator[tuple[str, str]]:
    """Yield the rows of coverage and selective accuracy, if a judgment was scored."""
    if not found.verdicts.num_items:
        return
    yield "coverage", _percent(found.coverage)
    yield "accuracy of the verdicts", _percent(found.accuracy)
    for name, group in found.by_basis.items():
        yield f"{name}, share and accuracy", f"{_percent(group.share)}, {_percent(group.accuracy)}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
