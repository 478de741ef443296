"""Recognize rows of another benchmark: by their field `benchmark`, or because they convert to its examples."""

from __future__ import annotations

from collections.abc import Sequence

from tirjudge_harness.benchmark import BENCHMARKS, Benchmark, Row
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import Example
from tirjudge_harness.items import InputError
from tirjudge_harness.metric_tree import ComparisonScore
from tirjudge_harness.row_files import NumberedRow

FIELD = "benchmark"
"""Field that names the benchmark of a row."""

NUM_TRIED = 3
"""Number of rows that are converted to recognize a benchmark."""

MIN_COLUMNS = 4
"""Minimum number of columns that a benchmark needs to be recognized. Many files have `prompt`, `chosen` and `rejected`."""


def refuse_named_rows(rows: Sequence[NumberedRow], benchmark: Benchmark, *, source: str) -> None:
    """Raise InputError if a row names another benchmark in its field `benchmark`."""
    for numbered in rows:
        named = None if numbered.row is None else numbered.row.get(FIELD)
        if isinstance(named, str) and named.strip() and not _is_name_of(named, benchmark):
            installed = next((name for name in BENCHMARKS if _plain(name) == _plain(named)), "")
            run = " ".join(["tirjudge bench run", *filter(None, [installed]), "--data", source])
            what = "" if installed else ", as rows of your own"
            raise InputError(
                f"{source}: row {numbered.number} belongs to {named[:60]!r}, not to {benchmark.name}; run it by `{run}`{what}"
            )


def _is_name_of(named: str, benchmark: Benchmark) -> bool:
    """Whether a name is that of a benchmark, of one of its parts or rows, such as `ifbench-hard` of ifbench."""
    if FIELD in benchmark.columns or named in benchmark.sources:
        return True
    given, own = _plain(named), _plain(benchmark.name)
    for name in BENCHMARKS:
        if _plain(name) == given:
            return name == benchmark.name or BENCHMARKS[name].sources is benchmark.sources
    return given.startswith(own) or own.startswith(given)


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def benchmarks_of(rows: Sequence[Row], *, but: Benchmark | None = None) -> list[str]:
    """Return the names of the benchmarks whose columns the rows have, and to whose examples the first rows convert. A metric
    of the benchmark must count each example: a subset of another name counts in none.

    Args:
        rows: valid rows of a file.
        but: benchmark to leave out, with those of the same sources.
    """
    tried = list(rows[:NUM_TRIED])
    found = []
    for name, benchmark in BENCHMARKS.items():
        if but is not None and benchmark.sources is but.sources:
            continue
        has_columns = all(column in row for row in tried for column in benchmark.columns)
        if tried and has_columns and len(benchmark.columns) >= MIN_COLUMNS and _converts(tried, benchmark):
            found.append(name)
    return found


def _converts(rows: Sequence[Row], benchmark: Benchmark) -> bool:
    """Whether each row has an example in one of the parts, which a metric counts."""
    for row in rows:
        for part in benchmark.sources:
            try:
                if any(_is_counted(one, benchmark) for one in benchmark.examples(row, part)):
                    break
            except (ValueError, KeyError):
                continue
        else:
            return False
    return True


def _is_counted(example: Example, benchmark: Benchmark) -> bool:
    """Whether a comparison of an example counts in a metric, or the example counts in a formula."""
    from tirjudge_harness.statistics.intervals import metric_inputs  # NumPy takes long to load

    outline = example.outline
    mode = outline.mode or benchmark.default_mode
    if mode is None:
        return False
    marks = [
        ComparisonScore(outline=outline, compared=compared, credit=1.0, result="right")
        for compared in benchmark.compared(outline, mode)
    ]
    inputs = metric_inputs(benchmark.sheet, marks, [JudgedExample(outline=outline, mode=mode, decisions=())])
    return any(held.any() for held in inputs.holds.values()) or any(inputs.judged.values())


def hint(rows: Sequence[NumberedRow], benchmark: Benchmark) -> str:
    """Return the end of a message about rows that do not fit a benchmark: the benchmarks that they fit. Empty: none."""
    names = benchmarks_of([row.row for row in rows if row.row is not None], but=benchmark)
    return f"; the rows look like those of {' or '.join(names)}" if names else ""
