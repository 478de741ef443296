"""Tables of paired differences; expected values computed manually."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from tests.harness.reports.conftest import MakeRun, Pair
from tirjudge_harness.items import InputError
from tirjudge_harness.reports.common_rows import common_rows_of
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
        InputError, match=r"give two runs of the same benchmark or the same rows, got .*a \(judgebench\)"
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


@pytest.fixture
def make_own(make_run: MakeRun):
    """A function that writes a run on a file with an id column. `texts`: id -> hash; None: not recorded."""

    def make(
        folder: str,
        *,
        texts: dict[str, str | None],
        named: int = 0,
        correct: tuple[int, ...] = (0,),
        file: str = "rows.csv",
        **fields: Any,
    ) -> ScoredRun:
        id = fields.pop("id_column", "id")
        columns = {"layout": "labeled", "prompt": ["q"], "responses": ["a", "b"], "labels": ["label"], "id": id}
        pairs = [Pair(id=id, named=(named,), correct=correct, content=text) for id, text in texts.items()]
        data = {"path": file, "sha256": fields.pop("sha256", folder).ljust(64, "0"), "columns": columns}
        return score_run(make_run(pairs, folder=folder, benchmark=file, data=data, **fields))

    return make


def test_rows_of_one_id_are_compared_only_if_their_texts_are_equal(make_own) -> None:
    first = make_own("a", texts={"1": "x", "2": "y", "3": "z"})
    edited = make_own("b", texts={"1": "x", "2": "other", "4": "new"}, named=1)
    for second in (edited, make_own("c", texts={"1": "x", "2": "other", "4": "new"}, named=1, file="edited.csv")):
        table = comparison_table([first, second])
        (row,) = values(table, figure="accuracy")
        assert (row["n"], row["first"], row["this"]) == (1, 100.0, 0.0)
        notes = "\n".join(table.notes)
        assert f"Left out of {first.place} and {second.place}: 1 row with different texts." in notes
        assert f"Left out: 1 comparisons only in {first.place} and 1 only in {second.place}." in notes


def test_files_of_one_name_and_path_without_a_common_row_are_not_compared(make_own) -> None:
    first, second = make_own("en", texts={"1": "x", "2": "y"}), make_own("de", texts={"1": "a", "2": "b"})
    with pytest.raises(InputError, match=r"; no row of .*en and .*de has the same id and the same texts"):
        comparison_table([first, second])
    with pytest.raises(InputError, match="nothing to compare, left out: 2 rows with different texts"):
        common_rows_of(first, second)


def test_equal_rows_of_files_with_other_names_are_compared(make_own) -> None:
    first = make_own("a", texts={"1": None, "2": None}, sha256="f")
    moved = make_own("b", texts={"1": None, "2": None}, sha256="f", file="moved.csv")
    (row,) = values(comparison_table([first, moved]), figure="accuracy")
    assert row["n"] == 2


def test_a_run_is_compared_with_the_first_run_of_its_file_before_others_with_a_common_row(make_own) -> None:
    runs = [make_own(f"{file}{n}", texts={"1": "x", file: file}, file=f"{file}.csv") for n in range(2) for file in "ab"]
    assert [row["n"] for row in values(comparison_table(runs), figure="accuracy")] == [2, 2]


def test_runs_of_older_versions_are_compared_if_their_files_or_ids_have_equal_hashes(make_own) -> None:
    first, second = (make_own(folder, texts={"1": None}) for folder in "ab")
    with pytest.raises(
        InputError, match="an older version does not record the texts of its rows; run its `tirjudge bench run`"
    ):
        comparison_table([first, second])
    hashed = [make_own(folder, texts={"c0ffee": None}, id_column=None) for folder in "cd"]
    assert [row["n"] for row in values(comparison_table(hashed), figure="accuracy")] == [1]


def test_a_run_under_an_attack_is_compared_with_the_run_of_the_same_file_without(make_own) -> None:
    untouched, attacked = make_own("a", texts={"1": "x"}), make_own("b", texts={"1": "changed"}, attack="longer")
    assert [row["n"] for row in values(comparison_table([untouched, attacked]), figure="accuracy")] == [1]
    other = make_own("c", texts={"1": "changed"}, attack="longer", file="other.csv")
    with pytest.raises(InputError, match="nothing to compare"):
        comparison_table([untouched, other])


def test_rows_with_different_labels_are_left_out_and_counted(make_own, make_run: MakeRun) -> None:
    texts = {"1": "x", "2": "y"}
    first, corrected = make_own("a", texts=texts), make_own("b", texts=texts, correct=(1,))
    with pytest.raises(InputError, match=r"a and .*b: nothing to compare, left out: 2 rows with different labels"):
        comparison_table([first, corrected])
    pairs = [Pair(id="p1"), Pair(id="p2"), Pair(id="p3")]
    runs = [
        score_run(make_run([*pairs[:2], replace(pairs[2], correct=correct)], folder=folder))
        for folder, correct in (("c", (0,)), ("d", (1,)))
    ]
    table = comparison_table(runs)
    assert values(table)[0]["n"] == 2
    assert f"Left out of {runs[0].place} and {runs[1].place}: 1 row with different labels." in table.notes
    assert not any("comparisons only in" in note for note in table.notes)


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
