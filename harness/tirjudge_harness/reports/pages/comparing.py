"""Compare two runs for the pages."""

from __future__ import annotations

from pathlib import Path

from tirjudge.durable import write_file
from tirjudge_harness.reports.common_rows import different_rows
from tirjudge_harness.reports.comparison import comparison_table
from tirjudge_harness.reports.pages.collecting import without_cycle_collection
from tirjudge_harness.reports.pages.tables import table_view
from tirjudge_harness.reports.scored import score_run
from tirjudge_pages.bench.index import comparison_file, run_fingerprint
from tirjudge_pages.bench.views import ComparisonView


def compare_runs(first: Path, second: Path, *, protocol: str | None = None) -> ComparisonView:
    """Return the paired differences of the second run from the first, corrected by Holm's method.

    Raises:
        InputError: the runs are of different benchmarks, or have no common comparisons.
    """
    fingerprints = run_fingerprint(first), run_fingerprint(second)
    with without_cycle_collection():
        runs = [score_run(folder, protocol=protocol, with_texts=False) for folder in (first, second)]
        table = comparison_table(runs)
        left_out = sorted(set().union(*different_rows(*runs)))
    return ComparisonView(table=table_view(table), fingerprints=fingerprints, left_out=left_out)


def store_comparison(first: Path, second: Path) -> None:
    """Compare two runs, and store the result in the folder of the second. Errors are those of `compare_runs`.

    Raises:
        OSError: the folder is not writable, or the disk is full.
    """
    write_file(comparison_file(second, first=first), compare_runs(first, second).model_dump_json())
