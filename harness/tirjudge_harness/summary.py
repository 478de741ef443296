"""What a file of judgments adds up to. Everything that is not a plain verdict is counted by its own name."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich.table import Table

from tirjudge.statistics import ratio, wilson_interval
from tirjudge.types import Judgment
from tirjudge_harness.output import OutputRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Counts and rates over the judgments in the output file. A rate of nothing is None."""

    num_judged: int
    num_failed: int
    """Items of this run that we failed to judge; they are in no rate, and the next run tries them again."""
    num_malformed: int
    """Lines of the input that could not be judged."""
    num_scored: int
    """Judgments with a label to be right about."""
    accuracy: float | None
    interval: tuple[float, float] | None
    """Wilson's 95 % interval of the accuracy."""
    num_ties: int
    num_abstentions: int
    tool_use_rate: float | None
    """Share of rollouts that ran a program."""
    code_error_rate: float | None
    """Share of the programs run whose outcome was not `ok`."""
    no_verdict_rate: float | None
    """Share of rollouts in which the model gave no verdict of its own: it was forced to one, or there is none."""
    mean_tool_calls: float | None
    """Programs per judgment."""
    input_tokens: int
    output_tokens: int
    judgments_per_s: float | None
    """In this run, on the clock; None when nothing was left to judge."""


def summarize(
    records: Collection[OutputRecord], *, num_failed: int, num_malformed: int, num_new: int, elapsed_s: float
) -> Summary:
    """Add up a run.

    Args:
        records: of everything judged, in this run and in those before it.
        num_failed: items that this run failed to judge.
        num_malformed: lines that could not be judged.
        num_new: how many of the records this run made.
        elapsed_s: how long that took.
    """
    judgments = [record.judgment for record in records if record.judgment is not None]
    correct = [record.correct for record in records if record.correct is not None]
    rollouts = [rollout for judgment in judgments for rollout in judgment.rollouts]
    outcomes = [rollout.outcomes for rollout in rollouts]
    num_programs = sum(map(len, outcomes))
    return Summary(
        num_judged=len(judgments),
        num_failed=num_failed,
        num_malformed=num_malformed,
        num_scored=len(correct),
        accuracy=ratio(sum(correct), of=len(correct)),
        interval=wilson_interval(sum(correct), num_trials=len(correct)) if correct else None,
        num_ties=_count(judgments, status="tie"),
        num_abstentions=_count(judgments, status="abstained"),
        tool_use_rate=ratio(sum(map(bool, outcomes)), of=len(rollouts)),
        code_error_rate=ratio(sum(not o.is_ok for ran in outcomes for o in ran), of=num_programs),
        no_verdict_rate=ratio(sum(not r.stop_reason.is_verdict for r in rollouts), of=len(rollouts)),
        mean_tool_calls=ratio(num_programs, of=len(judgments)),
        input_tokens=sum(judgment.usage.input_tokens for judgment in judgments),
        output_tokens=sum(judgment.usage.output_tokens for judgment in judgments),
        judgments_per_s=num_new / elapsed_s if num_new else None,
    )


def _count(judgments: Sequence[Judgment], *, status: str) -> int:
    return sum(judgment.verdict.status == status for judgment in judgments)


def summary_table(summary: Summary) -> Table:
    """The summary for a terminal."""
    accuracy = _percent(summary.accuracy)
    if summary.interval is not None:
        accuracy += " (95 %: {:.1%} to {:.1%})".format(*summary.interval)
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in (
        ("judged", str(summary.num_judged)),
        ("failed, to be tried again", str(summary.num_failed)),
        ("malformed lines", str(summary.num_malformed)),
        (f"accuracy over {summary.num_scored}", accuracy),
        ("ties", str(summary.num_ties)),
        ("abstentions", str(summary.num_abstentions)),
        ("rollouts that ran a program", _percent(summary.tool_use_rate)),
        ("programs that failed", _percent(summary.code_error_rate)),
        ("rollouts without an own verdict", _percent(summary.no_verdict_rate)),
        ("programs a judgment", _number(summary.mean_tool_calls)),
        ("tokens in, out", f"{summary.input_tokens:,}, {summary.output_tokens:,}"),
        ("judgments a second", _number(summary.judgments_per_s)),
    ):
        table.add_row(name, value)
    return table


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
