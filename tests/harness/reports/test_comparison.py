"""Tables of paired differences; expected values computed manually."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from tests.harness.reports.conftest import MakeRun, Pair
from tirjudge_harness.items import InputError
from tirjudge_harness.reports.comparison import comparison_table
from tirjudge_harness.reports.scored import ScoredRun, score_run
from tirjudge_harness.reports.tables import ReportTable
from tirjudge_harness.statistics.multiple_tests import Correction


@pytest.fixture
def make_scored(make_run: MakeRun):
    def make(folder: str, *, right: Collection[int], of: Collection[int] = range(12), benchmark: str = "judgebench"):
        pairs = [Pair(id=f"p{n}", named=(int(n not in right),)) for n in of]
        return score_run(make_run(pairs, folder=folder, benchmark=benchmark))

    return make


def values(table: ReportTable, *, figure: str = "overall") -> list[dict[str, object]]:
    keys = [column.key for column in table.columns]
    rows = [dict(zip(keys, row.entries, strict=True)) for row in table.rows]
    return [{key: entry.value for key, entry in row.items()} for row in rows if row["figure"].value == figure]


def test_two_runs_are_compared_with_the_first(make_scored) -> None:
    first: ScoredRun = make_scored("a", right=range(4))
    second: ScoredRun = make_scored("b", right=range(7))
    third: ScoredRun = make_scored("c", right=range(10))
    to_second, to_third = values(comparison_table([first, second, third]))
    assert to_second["difference"] == pytest.approx(25.0)  # 7/12 - 4/12
    assert (to_second["better"], to_second["worse"], to_second["p"]) == (3, 0, 0.25)  # 2 · (1/2)³
    assert to_third["difference"] == pytest.approx(50.0)
    assert (to_third["better"], to_third["worse"], to_third["p"]) == (6, 0, 0.03125)  # 2 · (1/2)⁶
    assert (to_second["p_holm"], to_third["p_holm"]) == (0.25, 0.0625)  # 0.25 · 1 and 0.03125 · 2


def test_parts_are_corrected_for_all_parts_in_the_table(make_scored) -> None:
    """Both runs have the part `math` with the p-values 0.25 and 0.03125, as the main figure."""
    table = comparison_table(
        [make_scored("a", right=range(4)), *(make_scored(str(n), right=range(n)) for n in (7, 10))]
    )
    assert [row["p_holm"] for row in values(table, figure="math")] == [0.25, 0.0625]


def test_the_false_discovery_rate_is_controlled_on_request(make_scored) -> None:
    runs = [make_scored("a", right=range(4)), *(make_scored(str(n), right=range(n)) for n in (7, 9, 10))]
    table = comparison_table(runs, correction=Correction.BH)
    assert [row["p_bh"] for row in values(table)] == pytest.approx([0.25, 0.0625 * 3 / 2, 0.03125 * 3])
    assert "p (Benjamini-Hochberg): corrected for the number of runs compared" in table.notes[-1]


def test_better_and_worse_comparisons_are_counted_separately(make_scored) -> None:
    table = comparison_table([make_scored("a", right=[0, 1, 2]), make_scored("b", right=[2, 3])])
    (row,) = values(table)
    assert (row["better"], row["worse"], row["p"]) == (1, 2, 1.0)
    assert row["difference"] == pytest.approx(-100 / 12)
    interval = table.rows[0].entries[6].interval or (0.0, 0.0)
    assert interval[0] < -100 / 12 < interval[1]


def test_only_common_comparisons_are_compared_and_the_others_are_counted(make_scored) -> None:
    first = make_scored("a", right=range(12))
    second = make_scored("b", right=[8, 9], of=range(8, 15))
    table = comparison_table([first, second])
    (row,) = values(table)
    assert (row["n"], row["first"], row["this"]) == (4, 100.0, 50.0)
    assert any("Left out: 8 comparisons only in" in note and "and 3 only in" in note for note in table.notes)


def test_figures_without_common_comparisons_are_left_out(make_scored) -> None:
    table = comparison_table([make_scored("a", right=[0]), make_scored("b", right=[1])])
    assert [row.entries[0].value for row in table.rows] == ["overall", "math"]


def test_runs_are_compared_with_the_first_run_of_their_benchmark(make_scored) -> None:
    runs = [
        make_scored("a1", right=[0]),
        make_scored("a2", right=[0], benchmark="codejudgebench"),
        make_scored("b1", right=[0]),
        make_scored("b2", right=[0], benchmark="codejudgebench"),
    ]
    table = comparison_table(runs)
    assert [(row.entries[0].value, row.entries[1].value) for row in table.rows] == [
        ("overall", "judgebench"),
        ("math", "judgebench"),
        ("all pairs", "codejudgebench"),
    ]


def test_a_single_run_is_refused(make_scored) -> None:
    with pytest.raises(
        InputError, match=r"give two runs of the same benchmark or the same file, got .*a \(judgebench\)"
    ):
        comparison_table([make_scored("a", right=[0])])


def test_runs_without_common_comparisons_are_refused(make_scored) -> None:
    with pytest.raises(InputError, match=r"a and .*b: runs: no common comparisons among 2 and 2"):
        comparison_table([make_scored("a", right=[0], of=range(2)), make_scored("b", right=[2], of=range(2, 4))])


def test_different_protocols_and_examples_are_noted(make_run: MakeRun) -> None:
    first = score_run(make_run([Pair(id="a", named=(0, 0))], folder="a"))
    second = score_run(make_run([Pair(id="a", named=(0,))], folder="b"))
    notes = "\n".join(comparison_table([first, second]).notes)
    assert "is scored by paper: part of the difference may come from the protocol" in notes
    assert "other examples" not in notes


def test_coverage_and_accuracy_where_both_have_a_verdict_are_noted(make_run: MakeRun) -> None:
    first = score_run(make_run([Pair(id=f"p{n}", named=((0, 1, None, 0)[n],)) for n in range(4)], folder="a"))
    second = score_run(make_run([Pair(id=f"p{n}", named=((0, 0, 0, None)[n],)) for n in range(4)], folder="b"))
    notes = "\n".join(comparison_table([first, second]).notes)
    assert "b: coverage 75.0% and 75.0%; accuracy where both have a verdict 50.0% and 100.0% (n 2)." in notes


def test_files_of_one_name_in_two_folders_are_not_compared(make_run: MakeRun) -> None:
    columns = {"layout": "chosen_rejected", "prompt": ["q"], "chosen": "a", "rejected": "b"}
    data = [{"path": f"{folder}/rows.csv", "sha256": folder * 64, "columns": columns} for folder in "aab"]
    runs = [
        score_run(
            make_run(
                [Pair(id="p", named=(0,))], folder=str(n), benchmark="rows.csv", data={**one, "path": f"{n}/rows.csv"}
            )
        )
        for n, one in enumerate(data)
    ]
    assert comparison_table(runs[:2]).rows  # the same file, moved
    with pytest.raises(InputError, match="the same file"):
        comparison_table([runs[0], runs[2]])


def test_values_of_a_breakdown_are_compared(make_run: MakeRun) -> None:
    """The second run is right on 1 of the 2 pairs of physics, and on all pairs of law; the first is right on none."""

    def scored(folder: str, *, right: Collection[int]) -> ScoredRun:
        pairs = [
            Pair(id=f"p{n}", named=(int(n not in right),), tags={"domain": "physics" if n < 2 else "law"})
            for n in range(6)
        ]
        return score_run(make_run(pairs, folder=folder, benchmark="judgebench-pro"))

    table = comparison_table([scored("a", right=[]), scored("b", right=[0, 2, 3, 4, 5])])
    ((physics,), (law,)) = (values(table, figure=f"domain: {name}") for name in ("physics", "law"))
    assert (physics["n"], physics["first"], physics["this"], physics["better"]) == (2, 0.0, 50.0, 1)
    assert (law["n"], law["difference"], law["better"]) == (4, 100.0, 4)
