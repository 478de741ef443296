"""Summarize a batch."""

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
    """Rows of the input, without blank lines."""
    num_bad: int
    """Invalid rows, and rows whose key belongs to a different request."""
    num_repeated: int
    """Rows with the key and the request of an earlier row."""
    num_kept: int
    """Keys that had a result before this run."""
    num_new: int
    """Results that this run added, including refused requests."""
    num_failed: int
    """Keys that failed in this run. The next run retries them."""
    num_results: int
    """Results in the folder. The counts from here to `output_tokens` cover all of them."""
    num_decided: int
    num_ties: int
    num_abstentions: int
    num_checked: int
    """Verdicts that a program checked."""
    num_reasoned: int
    """Verdicts that were reasoned."""
    num_guessed: int
    """Verdicts that were guessed."""
    num_refused: int
    """Requests that the judge cannot process."""
    input_tokens: int
    output_tokens: int
    elapsed_s: float
    """Duration of this run in seconds, excluding the time to read the input."""
    results_per_s: float | None
    """New results per second. None: this run added no result."""
    num_rounds: int
    """Number of rounds: 1, or more if a round ended before all rows were judged."""


def summarize(folder: ParquetStore, *, plan: BatchPlan, num_rounds: int, elapsed_s: float) -> BatchSummary:
    """Summarize a run.

    Args:
        folder: the output folder, with all results written.
        plan: the first plan of the run.
        num_rounds: number of rounds.
        elapsed_s: duration in seconds.
    """
    table = folder.columns("status", "basis", "error_kind", "input_tokens", "output_tokens")
    statuses = Counter(table["status"].to_pylist())
    bases = Counter(table["basis"].to_pylist())
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
        num_checked=bases["checked"],
        num_reasoned=bases["reasoned"],
        num_guessed=bases["guessed"],
        num_refused=table.num_rows - table["error_kind"].null_count,
        input_tokens=sum(filter(None, table["input_tokens"].to_pylist())),
        output_tokens=sum(filter(None, table["output_tokens"].to_pylist())),
        elapsed_s=elapsed_s,
        results_per_s=folder.num_new / elapsed_s if folder.num_new else None,
        num_rounds=num_rounds,
    )


def summary_table(summary: BatchSummary) -> Table:
    """Return the summary as a table for the terminal."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    rate = "-" if summary.results_per_s is None else f"{summary.results_per_s:.2f}"
    for name, value in (
        ("rows", f"{summary.num_rows:,}"),
        ("invalid rows", f"{summary.num_bad:,}"),
        ("repeated rows", f"{summary.num_repeated:,}"),
        ("judged before", f"{summary.num_kept:,}"),
        ("new", f"{summary.num_new:,}"),
        ("failed, will be retried", f"{summary.num_failed:,}"),
        ("results in the folder", f"{summary.num_results:,}"),
        ("decided", f"{summary.num_decided:,}"),
        ("ties", f"{summary.num_ties:,}"),
        ("abstentions", f"{summary.num_abstentions:,}"),
        ("verdicts checked by a program", f"{summary.num_checked:,}"),
        ("verdicts reasoned", f"{summary.num_reasoned:,}"),
        ("verdicts guessed", f"{summary.num_guessed:,}"),
        ("refused", f"{summary.num_refused:,}"),
        ("tokens in, out", f"{summary.input_tokens:,}, {summary.output_tokens:,}"),
        ("results per second", rate),
    ):
        table.add_row(name, value)
    return table
