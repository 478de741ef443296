"""Recompute the averages in the tables of TIR-Judge (arXiv 2510.23038) from the columns of the same row.

The figures are printed with one decimal. So an average of printed figures may differ by 0.1: the rounding of its parts
contributes at most 0.05, and its own rounding at most 0.05.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from crosscheck_figures import Check, compared, figure_of, marks_with, value

from tirjudge_harness.benchmark import BENCHMARKS
from tirjudge_harness.benchmarks.rmbench import DIFFICULTIES, NUM_STYLES
from tirjudge_harness.examples import ExampleMetadata
from tirjudge_harness.metric_tree import ComparisonScore, FormulaMetric, Mean, MeanMetric

Row = Mapping[str, str]

SLACK = 0.1

JUDGEBENCH_PAIRS = {"math": 56, "coding": 42, "knowledge": 154, "reasoning": 98}

NOT_FROM_ITS_PARTS = "no rounding of the row's columns gives the printed average"
SIX_TASKS = "only this row's average includes Ties, the sixth task, which is not in the table"
TWO_TABLES = "the two tables differ"

REASONS = {
    ("RewardBench average", "Gemini-2.5-Flash (Pairwise)"): NOT_FROM_ITS_PARTS,
    ("RM-Bench average", "Gemini-2.5-Flash Tool (Pointwise)"): NOT_FROM_ITS_PARTS,
    ("RM-Bench average", "Gemini-2.5-Flash Tool (Pairwise)"): NOT_FROM_ITS_PARTS,
    ("RM-Bench average", "RRM 32B"): NOT_FROM_ITS_PARTS,
    ("JudgeBench average", "Qwen3-4B-Tool (Pointwise)"): NOT_FROM_ITS_PARTS,
    ("RewardBench 2 average", "Claude-Opus-4"): SIX_TASKS,
    ("RewardBench 2 average", "GPT-4.1-mini"): SIX_TASKS,
    ("RewardBench 2 average", "GPT-4o"): SIX_TASKS,
}
"""(figure, row) -> why the average differs."""


def table_checks(folder: Path) -> Iterator[Check]:
    """Check every average of tables 1, 2 and 5, and the columns that tables 1 and 5 share."""
    main, two, subsets = (_rows(folder / name) for name in FILES)
    yield from _averages("ppe", "PPE average", main, columns=PPE, column="ppe_avg")
    yield from _rewardbench(subsets)
    yield from _averages(
        "rmbench", "RM-Bench average", subsets, columns=RM_BENCH, column="rm_bench_avg", marks=_same_at_all_difficulties
    )
    weighted = partial(marks_with, nums=JUDGEBENCH_PAIRS)
    yield from _averages(
        "judgebench", "JudgeBench average", subsets, columns=JUDGEBENCH, column="judgebench_avg", marks=weighted
    )
    yield from _averages("rewardbench2", "RewardBench 2 average", two, columns=REWARDBENCH_2, column="avg")
    yield from _same_in_both(main, subsets)


FILES = ("table1_main.csv", "table2_rewardbench2.csv", "table5_subsets.csv")

PPE = {name: f"ppe_{name}" for name in ("mmlu_pro", "math", "gpqa", "mbpp_plus", "ifeval")}
RM_BENCH = {domain: f"rm_bench_{domain}" for domain in ("chat", "math", "code", "safety")}
JUDGEBENCH = {part: f"judgebench_{part}" for part in ("math", "knowledge", "reasoning")} | {"coding": "judgebench_code"}
REWARDBENCH_2 = {"Factuality": "factuality", "Precise IF": "if", "Math": "math", "Safety": "safety", "Focus": "focus"}
"""Per benchmark: subset -> column."""

AVERAGES = {"ppe": "average", "rmbench": "overall", "judgebench": "overall", "rewardbench2": "average without Ties"}
"""Benchmark -> name of the average in its metric tree."""


def _rows(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _averages(
    benchmark: str,
    figure: str,
    rows: Sequence[Row],
    *,
    columns: Mapping[str, str],
    column: str,
    marks: Callable[[dict[str, float]], list[ComparisonScore]] = marks_with,
) -> Iterator[Check]:
    """Check the average of each row that has all parts."""
    node = figure_of(BENCHMARKS.named(benchmark), AVERAGES[benchmark])
    for row in rows:
        if row[column] and all(row[part] for part in columns.values()):
            shares = {name: float(row[part]) / 100 for name, part in columns.items()}
            yield _average(figure, row, column=column, ours=value(node, marks(shares)))


def _average(figure: str, row: Row, *, column: str, ours: float) -> Check:
    case, reason = f"tir: {row['judge']}", REASONS.get((figure, row["judge"]), "")
    return compared(case, figure, published=float(row[column]), ours=100 * ours, digits=1, slack=SLACK, reason=reason)


def _rewardbench(rows: Sequence[Row]) -> Iterator[Check]:
    """Check RewardBench's average. A row may lack sections; the figure of a section is used for each of its subsets."""
    average = figure_of(BENCHMARKS.named("rewardbench"), "average")
    assert isinstance(average, Mean)
    for row in rows:
        shares: dict[str, float] = {}
        for section in average.parts:
            assert isinstance(section, Mean)
            printed = row[f"rewardbench_{section.name.lower().replace(' ', '_')}"]
            shares |= {part.name: float(printed) / 100 for part in section.parts if printed}
        if shares and row["rewardbench_avg"]:
            ours = value(average, marks_with(shares))
            yield _average("RewardBench average", row, column="rewardbench_avg", ours=ours)


def _same_at_all_difficulties(shares: Mapping[str, float]) -> list[ComparisonScore]:
    return rmbench_marks({(domain, None): share for domain, share in shares.items()})


def rmbench_marks(shares: Mapping[tuple[str, str | None], float]) -> list[ComparisonScore]:
    """Return scored comparisons of RM-Bench that have these accuracies.

    Args:
        shares: (domain, difficulty) -> accuracy. Difficulty None: all difficulties.
    """
    marks: list[ComparisonScore] = []
    places = {(0, 1): "hard", (0, 0): "normal", (1, 0): "easy"}
    for (domain, wanted), share in shares.items():
        outline = ExampleMetadata(id=domain, subset=domain, num_responses=6, correct=(0, 1, 2), cluster=domain)
        for (right, wrong), difficulty in places.items():
            assert DIFFICULTIES[difficulty](right, wrong)
            if wanted in (None, difficulty):
                pair = (right, NUM_STYLES + wrong)
                marks.append(ComparisonScore(outline=outline, compared=pair, credit=share, result="right"))
    return marks


def average_of_six() -> Mean:
    """Return RewardBench 2's average, with Ties as a given figure instead of one computed from ratings."""
    average = figure_of(BENCHMARKS.named("rewardbench2"), "average")
    assert isinstance(average, Mean)
    parts = [
        MeanMetric(name=part.name, holds=lambda mark: mark.outline.subset == "Ties")
        if isinstance(part, FormulaMetric)
        else part
        for part in average.parts
    ]
    return replace(average, parts=tuple(parts))


def _same_in_both(main: Sequence[Row], subsets: Sequence[Row]) -> Iterator[Check]:
    """Check that tables 1 and 5 print the same averages of three benchmarks."""
    others = {_judge(row): row for row in subsets}
    columns = {"rewardbench": "rewardbench_avg", "rm_bench": "rm_bench_avg", "judgebench": "judgebench_avg"}
    for row in main:
        other = others.get(_judge(row))
        for ours, theirs in columns.items():
            if other is not None and row[ours] and other[theirs]:
                yield compared(
                    f"tir: {row['judge']}",
                    f"{ours} in table 1, compared with table 5",
                    published=float(row[ours]),
                    ours=float(other[theirs]),
                    digits=1,
                    reason=TWO_TABLES,
                )


def _judge(row: Row) -> str:
    return row["judge"].lower().replace(" ", "").replace("-", "")
