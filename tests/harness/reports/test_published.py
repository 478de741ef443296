"""Published rows: each printed average is the average of the printed parts, or has a note that it is not."""

from __future__ import annotations

import re

import pytest

from tirjudge_harness.reports.published import PublishedRow, PublishedTable, published

TABLES: tuple[PublishedTable, ...] = ("main", "rewardbench2", "subsets", "best_of_n")
AVERAGES: list[tuple[PublishedTable, str, dict[str, int]]] = [
    ("main", "ppe_avg", dict.fromkeys(["ppe_mmlu_pro", "ppe_math", "ppe_gpqa", "ppe_mbpp_plus", "ppe_ifeval"], 1)),
    ("rewardbench2", "avg", dict.fromkeys(["if", "math", "factuality", "focus", "safety"], 1)),
    (
        "subsets",
        "rewardbench_avg",
        dict.fromkeys([f"rewardbench_{part}" for part in ("chat", "chat_hard", "safety", "reasoning")], 1),
    ),
    ("subsets", "rm_bench_avg", dict.fromkeys([f"rm_bench_{part}" for part in ("chat", "math", "code", "safety")], 1)),
    (
        "subsets",
        "judgebench_avg",
        {"judgebench_math": 56, "judgebench_code": 42, "judgebench_knowledge": 154, "judgebench_reasoning": 98},
    ),
]


def numbers_in(notes: tuple[str, ...]) -> list[float]:
    return [float(number) for note in notes for number in re.findall(r"\d+\.\d", note)]


def name_of(row: PublishedRow) -> tuple[str, str]:
    return row.texts["judge"], row.texts["mode"]


@pytest.mark.parametrize(("table", "average", "weights"), AVERAGES)
def test_averages_match_the_printed_parts_or_have_a_note(
    table: PublishedTable, average: str, weights: dict[str, int]
) -> None:
    off = []
    for row in published(table).rows:
        parts = [(row.number(figure), weight) for figure, weight in weights.items()]
        printed = row.number(average)
        if printed is None or any(part is None for part, _ in parts):
            continue
        mean = sum(part * weight for part, weight in parts if part is not None) / sum(weights.values())
        if abs(mean - printed) > 0.101:
            off.append(name_of(row))
            assert any(abs(number - mean) < 0.051 for number in numbers_in(row.notes_on(average))), (name_of(row), mean)
    expected = {
        "ppe_avg": 0,
        "avg": 3,
        "rewardbench_avg": 1,
        "rm_bench_avg": 3,
        "judgebench_avg": 1,
    }
    assert len(off) == expected[average]


@pytest.mark.parametrize("table", TABLES)
def test_every_note_has_a_text_and_every_figure_is_a_number(table: PublishedTable) -> None:
    read = published(table)
    assert read.source.startswith("arXiv:2510.23038, Table")
    texts = {"judge", "mode", "dataset", "policy", "notes"}
    for row in read.rows:
        for figure in set(row.texts) - texts:
            value = row.number(figure)
            assert value is None or value >= 0
        for note in row.notes:
            assert note.text
            assert not note.text.endswith(".")


def test_tables_have_all_published_rows() -> None:
    assert [len(published(table).rows) for table in TABLES] == [36, 10, 37, 39]


def test_judgebench_figures_by_other_rules_are_not_comparable() -> None:
    rows = {name_of(row): row for row in published("main").rows}
    for judge in ("J1 70B", "GPT-o1-mini", "RRM 32B"):
        (note,) = rows[judge, ""].notes_on("judgebench_avg")
        assert note.startswith("Not comparable. ")
        assert not rows[judge, ""].notes_on("ppe_avg")


def test_a_figure_with_a_note_may_be_comparable() -> None:
    (row,) = (row for row in published("main").rows if name_of(row) == ("TIR-Judge-Zero 8B", "pairwise"))
    (note,) = row.notes_on("judgebench_avg")
    assert note.startswith("Does not fit the 350 pairs")


def test_averages_of_six_tasks_have_a_note() -> None:
    marked = [row.texts["judge"] for row in published("rewardbench2").rows if row.notes_on("avg")]
    assert marked == ["Claude-Opus-4", "GPT-4.1-mini", "GPT-4o"]
