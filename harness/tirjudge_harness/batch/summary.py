"""What a batch adds up to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from rich.table import Table

from tirjudge_harness.batch.parquet_store import ParquetStore
from tirjudge_harness.batch.plan import BatchPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSummary:
    """Counts of a run, and of all results in its folder."""

    num_rows: int
    """Of the input, blank lines left out."""
    num_bad: int
    """Rows that are no requests, or whose key is taken by another one."""
    num_repeated: int
    """Rows that ask the same as an earlier one under the same key."""
    num_kept: int
    """Keys that had a result before this run."""
    num_new: int
    """Results that this run added, refusals included."""
    num_failed: int
    """Keys that this run failed at, and the next tries again."""
    num_results: int
    """In the folder now: what follows is counted over these."""
    num_decided: int
    num_ties: int
    num_abstentions: int
    num_refused: int
    """Requests that this judge cannot take."""
    input_tokens: int
    output_tokens: int
    elapsed_s: float
    """Of this run, without the reading of its input."""
    results_per_s: float | None
    """In this run; None: it added none."""
    num_rounds: int
    """1, or more if those who judged went away before everything was judged."""


def summarize(folder: ParquetStore, *, plan: BatchPlan, num_rounds: int, elapsed_s: float) -> BatchSummary:
    """Add up.

    Args:
        folder: with everything written.
        plan: as it was when the run began.
        num_rounds: how often it was begun.
        elapsed_s: how long it took.
    """
    table = folder.columns("status", "error_kind", "input_tokens", "output_tokens")
    statuses = Counter(table["status"].to_pylist())
    return BatchSummary(
        num_rows=plan.num_rows,
        num_bad=len(plan.bad),
        num_repeated=plan.num_repeated,
        num_kept=plan.num_keys - plan.num_left,
        num_new=folder.num_new,
        num_failed=len(folder.failures),
        num_results=table.num_rows,
        num_decided=statuses["decided"],
        num_ties=statuses["tie"],
        num_abstentions=statuses["abstained"],
        num_refused=table.num_rows - table["error_kind"].null_count,
        input_tokens=sum(filter(None, table["input_tokens"].to_pylist())),
        output_tokens=sum(filter(None, table["output_tokens"].to_pylist())),
        elapsed_s=elapsed_s,
        results_per_s=folder.num_new / elapsed_s if folder.num_new else None,
        num_rounds=num_rounds,
    )


def summary_table(summary: BatchSummary) -> Table:
    """The summary for a terminal."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    rate = "-" if summary.results_per_s is None else f"{summary.results_per_s:.2f}"
    for name, value in (
        ("rows", f"{summary.num_rows:,}"),
        ("bad rows", f"{summary.num_bad:,}"),
        ("repeated rows", f"{summary.num_repeated:,}"),
        ("judged before", f"{summary.num_kept:,}"),
        ("new", f"{summary.num_new:,}"),
        ("failed, to be tried again", f"{summary.num_failed:,}"),
        ("results in the folder", f"{summary.num_results:,}"),
        ("decided", f"{summary.num_decided:,}"),
        ("ties", f"{summary.num_ties:,}"),
        ("abstentions", f"{summary.num_abstentions:,}"),
        ("refused", f"{summary.num_refused:,}"),
        ("tokens in, out", f"{summary.input_tokens:,}, {summary.output_tokens:,}"),
        ("results a second", rate),
    ):
        table.add_row(name, value)
    return table
