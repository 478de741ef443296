"""The paper's tables with rows of our runs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.harness.reports.conftest import MakeRun, Pair
from tirjudge_harness.benchmark import BENCHMARKS
from tirjudge_harness.items import InputError
from tirjudge_harness.metric_tree import Mean, Node
from tirjudge_harness.reports.published import published
from tirjudge_harness.reports.scored import ScoredRun, score_run
from tirjudge_harness.reports.shapes import Paper, paper_table
from tirjudge_harness.reports.tables import ReportTable, TableEntry, TableRow

SHAPES: tuple[Paper, ...] = ("main", "rewardbench2", "subsets")


def entry(table: ReportTable, row: TableRow, key: str) -> TableEntry:
    return row.entries[[column.key for column in table.columns].index(key)]


def ours(table: ReportTable) -> list[TableRow]:
    return [row for row in table.rows if row.ours]


def names_in(nodes: Sequence[Node]) -> set[str]:
    return {node.name for node in nodes} | {
        name for node in nodes if isinstance(node, Mean) for name in names_in(node.parts)
    }


@pytest.mark.parametrize("shape", SHAPES)
def test_every_column_is_published_and_has_a_figure_of_a_benchmark(shape: Paper) -> None:
    for place in published(shape).columns:
        assert place.key in published(shape).rows[0].texts
        assert place.figure in names_in(BENCHMARKS.named(place.benchmark).sheet)
    figures = {key for key in published(shape).rows[0].texts if key not in ("judge", "mode", "training_pairs", "notes")}
    assert figures == {place.key for place in published(shape).columns}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_table_without_runs_has_the_published_rows(shape: Paper) -> None:
    table = paper_table(shape, [])
    assert len(table.rows) == len(published(shape).rows)
    assert not ours(table)
    assert paper_table(shape, [], with_published=False).rows == ()


def test_published_figures_are_in_their_columns() -> None:
    table = paper_table("subsets", [])
    (row,) = (row for row in table.rows if [e.value for e in row.entries[:2]] == ["TIR-Judge-Zero 8B", "pairwise"])
    assert entry(table, row, "rewardbench_reasoning").value == 95.7
    assert entry(table, row, "judgebench_avg").value == 72.0


@pytest.fixture
def judgebench(make_run: MakeRun) -> ScoredRun:
    """A run with only two categories: math 3 of 4 right, coding 1 of 2 right."""
    pairs = [Pair(id=f"m{n}", subset="math", named=(int(n == 3),)) for n in range(4)]
    pairs += [Pair(id=f"c{n}", subset="coding", named=(n,)) for n in range(2)]
    return score_run(make_run(pairs, folder="judgebench"))


@pytest.fixture
def ppe(make_run: MakeRun) -> ScoredRun:
    """A run with two of five sets: MATH 1 of 2 right, GPQA 2 of 2 right. Their mean is 75 %."""
    pairs = [Pair(id=f"m{n}", subset="math", named=(n,)) for n in range(2)]
    pairs += [Pair(id=f"g{n}", subset="gpqa") for n in range(2)]
    return score_run(make_run(pairs, folder="ppe", benchmark="ppe"))


def test_runs_of_one_judge_fill_one_row(judgebench: ScoredRun, ppe: ScoredRun) -> None:
    table = paper_table("main", [judgebench, ppe])
    (row,) = ours(table)
    assert table.rows[-1] is row
    assert [e.value for e in row.entries[:2]] == ["tiny", "pairwise"]
    assert entry(table, row, "judgebench_avg").value == pytest.approx(100 * 4 / 6)
    assert entry(table, row, "judgebench_avg").num == 6
    assert entry(table, row, "ppe_math").value == 50.0
    assert entry(table, row, "ppe_avg").value == 75.0
    assert entry(table, row, "ppe_ifeval").value is None
    assert entry(table, row, "ifbench").value is None


def test_intervals_are_in_percent(judgebench: ScoredRun) -> None:
    table = paper_table("main", [judgebench])
    low, high = entry(table, ours(table)[0], "judgebench_avg").interval or (0.0, 0.0)
    # (p + z²/2n ± z·sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n) with p = 4/6, n = 6, z = 1.96
    assert (round(low, 1), round(high, 1)) == (30.0, 90.3)


def test_an_average_over_fewer_parts_lists_the_missing_ones(judgebench: ScoredRun, ppe: ScoredRun) -> None:
    table = paper_table("main", [judgebench, ppe])
    (row,) = ours(table)
    (note,) = entry(table, row, "ppe_avg").notes
    assert note == "Not comparable. Without mmlu_pro, mbpp_plus, ifeval, which were not judged."
    assert entry(table, row, "ppe_math").notes == ()


def test_figures_that_are_not_comparable_have_a_note(make_run: MakeRun) -> None:
    def notes(**given: object) -> tuple[str, ...]:
        run = score_run(make_run([Pair(id="a"), Pair(id="b")], folder=str(len(made)), **given))  # type: ignore[arg-type]
        made.append(run)
        table = paper_table("subsets", [run])
        return entry(table, ours(table)[0], "judgebench_math").notes

    made: list[ScoredRun] = []
    assert notes() == ()
    assert notes(data={"limit": 2}) == ("Not comparable. A sample of 2 examples.",)
    assert notes(shard="1/2") == ("Not comparable. Shard 1/2 only.",)
    assert notes(attack="padding") == ("Not comparable. Under the attack padding.",)
    assert notes(unjudged=["b"]) == ("Not comparable. 1 comparisons of JudgeBench are missing.",)


def test_figures_by_a_different_protocol_have_a_note(make_run: MakeRun) -> None:
    run = score_run(make_run([Pair(id="a", named=(0, 0))]))
    table = paper_table("subsets", [run])
    assert entry(table, ours(table)[0], "judgebench_math").notes == ("Not comparable. Scored by both_orders.",)
    table = paper_table("subsets", [score_run(run.path, protocol="paper")])
    assert entry(table, ours(table)[0], "judgebench_math").notes == ()


def test_other_judges_and_other_settings_have_separate_rows(make_run: MakeRun) -> None:
    pairs = [Pair(id="a")]
    runs = [
        score_run(make_run(pairs, folder="a")),
        score_run(make_run(pairs, folder="b", model="other")),
        score_run(make_run(pairs, folder="c", tools="off")),
    ]
    assert [row.entries[0].value for row in ours(paper_table("main", runs))] == ["tiny", "other", "tiny"]
    assert {row.entries[0].value for row in ours(paper_table("main", runs, name="mine"))} == {"mine"}


def test_two_runs_of_one_benchmark_by_one_judge_are_refused(make_run: MakeRun) -> None:
    runs = [score_run(make_run([Pair(id="a")], folder=folder)) for folder in ("a", "b")]
    with pytest.raises(InputError, match=r"a and .*b are both runs of judgebench by the same judge; give one"):
        paper_table("main", runs)


def test_runs_without_a_column_in_the_table_are_refused(judgebench: ScoredRun) -> None:
    with pytest.raises(InputError, match="--shape rewardbench2: needs runs of rewardbench2; got runs of judgebench"):
        paper_table("rewardbench2", [judgebench])


def test_coverage_and_accuracy_of_the_verdicts_are_noted(make_run: MakeRun) -> None:
    pairs = [Pair(id=f"m{n}", named=((0, 1, None, None)[n],)) for n in range(4)]
    notes = paper_table("main", [score_run(make_run(pairs, folder="judgebench"))]).notes
    assert "tiny, pairwise, JudgeBench: coverage 50.0%, accuracy of the verdicts 50.0%." in notes
