"""The averages in the tables of TIR-Judge (arXiv 2510.23038), recomputed from the columns beside them.

What is printed has one decimal, so that an average of printed figures may be off by 0.1: half a step from its parts, half
from itself.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from crosscheck_figures import Check, compared, figure_of, marks_with, value

from tirjudge_harness.benchmark import BENCHMARKS
from tirjudge_harness.benchmarks.rmbench import DIFFICULTIES, NUM_STYLES
from tirjudge_harness.examples import ExampleMetadata
from tirjudge_harness.metric_tree import ComparisonScore, FormulaMetric, Mean, MeanMetric

Row = Mapping[str, str]

SLACK = 0.1

JUDGEBENCH_PAIRS = {"math": 56, "coding": 42, "knowledge": 154, "reasoning": 98}

NOT_FROM_ITS_PARTS = "no rounding of the row's own columns gives the average printed beside them"
SIX_TASKS = (
    "this row's average has Ties in it, the sixth task, which the table leaves out; other rows' averages have not"
)
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
"""By figure and row."""


def table_checks(folder: Path) -> Iterator[Check]:
    """Every average of tables 1, 2 and 5, and the columns that tables 1 and 5 share."""
    main, two, subsets = (_rows(folder / name) for name in FILES)
    yield from _ppe(main)
    yield from _rewardbench(subsets)
    yield from _rmbench(subsets)
    yield from _judgebench(subsets)
    yield from _rewardbench2(two)
    yield from _same_in_both(main, subsets)


FILES = ("table1_main.csv", "table2_rewardbench2.csv", "table5_subsets.csv")


def _rows(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _parts(row: Row, columns: Mapping[str, str]) -> dict[str, float] | None:
    """The figures of a row by what they stand for, as shares; None: one is missing."""
    if not all(row[column] for column in columns.values()):
        return None
    return {name: float(row[column]) / 100 for name, column in columns.items()}


def _average(figure: str, row: Row, *, column: str, ours: float) -> Check:
    judge = row["judge"]
    reason = REASONS.get((figure, judge), "")
    return compared(
        f"tir: {judge}", figure, published=float(row[column]), ours=100 * ours, digits=1, slack=SLACK, reason=reason
    )


def _ppe(rows: Sequence[Row]) -> Iterator[Check]:
    average = figure_of(BENCHMARKS.named("ppe"), "average")
    assert isinstance(average, Mean)
    names = ("ppe_mmlu_pro", "ppe_math", "ppe_gpqa", "ppe_mbpp_plus", "ppe_ifeval")
    columns = dict(zip((part.name for part in average.parts), names, strict=True))
    for row in rows:
        if (parts := _parts(row, columns)) and row["ppe_avg"]:
            yield _average("PPE average", row, column="ppe_avg", ours=value(average, marks_with(parts)))


def _rewardbench(rows: Sequence[Row]) -> Iterator[Check]:
    average = figure_of(BENCHMARKS.named("rewardbench"), "average")
    assert isinstance(average, Mean)
    for row in rows:
        shares: dict[str, float] = {}
        for section in average.parts:
            assert isinstance(section, Mean)
            printed = row[f"rewardbench_{section.name.lower().replace(' ', '_')}"]
            shares |= {part.name: float(printed) / 100 for part in section.parts if printed}
        if shares and row["rewardbench_avg"]:
            yield _average(
                "RewardBench average", row, column="rewardbench_avg", ours=value(average, marks_with(shares))
            )


def _rmbench(rows: Sequence[Row]) -> Iterator[Check]:
    overall = figure_of(BENCHMARKS.named("rmbench"), "overall")
    columns = {domain: f"rm_bench_{domain}" for domain in ("chat", "math", "code", "safety")}
    for row in rows:
        if parts := _parts(row, columns):
            ours = value(overall, rmbench_marks({(domain, None): share for domain, share in parts.items()}))
            yield _average("RM-Bench average", row, column="rm_bench_avg", ours=ours)


def rmbench_marks(shares: Mapping[tuple[str, str | None], float]) -> list[ComparisonScore]:
    """Marks of RM-Bench: by domain and difficulty, or by domain for all difficulties alike (None)."""
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


def _judgebench(rows: Sequence[Row]) -> Iterator[Check]:
    overall = figure_of(BENCHMARKS.named("judgebench"), "overall")
    columns = {
        "math": "judgebench_math",
        "coding": "judgebench_code",
        "knowledge": "judgebench_knowledge",
        "reasoning": "judgebench_reasoning",
    }
    for row in rows:
        if parts := _parts(row, columns):
            ours = value(overall, marks_with(parts, nums=JUDGEBENCH_PAIRS))
            yield _average("JudgeBench average", row, column="judgebench_avg", ours=ours)


def _rewardbench2(rows: Sequence[Row]) -> Iterator[Check]:
    average = figure_of(BENCHMARKS.named("rewardbench2"), "average without Ties")
    columns = {"Factuality": "factuality", "Precise IF": "if", "Math": "math", "Safety": "safety", "Focus": "focus"}
    for row in rows:
        if parts := _parts(row, columns):
            yield _average("RewardBench 2 average", row, column="avg", ours=value(average, marks_with(parts)))


def average_of_six() -> Mean:
    """RewardBench 2's average, Ties being given as a figure and not computed from ratings."""
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
    """Tables 1 and 5 print the same averages of three benchmarks."""
    others = {_judge(row): row for row in subsets}
    columns = {"rewardbench": "rewardbench_avg", "rm_bench": "rm_bench_avg", "judgebench": "judgebench_avg"}
    for row in main:
        other = others.get(_judge(row))
        for ours, theirs in columns.items():
            if other is not None and row[ours] and other[theirs]:
                yield compared(
                    f"tir: {row['judge']}",
                    f"{ours} in table 1, from table 5",
                    published=float(row[ours]),
                    ours=float(other[theirs]),
                    digits=1,
                    reason=TWO_TABLES,
                )


def _judge(row: Row) -> str:
    return row["judge"].lower().replace(" ", "").replace("-", "")
