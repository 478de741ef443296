"""The index of a run: the rows of its items, the judgments in the journal, and when it is out of date."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.reports.conftest import MakeRun, Pair
from tests.runs import judgment_of
from tirjudge.types import Outcome
from tirjudge_harness.reports.pages.indexing import index_run, journal_places
from tirjudge_harness.run import read_plan
from tirjudge_harness.run_store import Failure, JudgmentStore, jsonl
from tirjudge_pages.bench.index import IndexUnusable, ItemQuery, RunIndex

PAIRS = [
    Pair(id="right", named=(0, 0), outcome=Outcome.OK),
    Pair(id="wrong", named=(1, 1), outcome=Outcome.TIMEOUT, subset="law"),
    Pair(id="flipped", named=(0, 1)),
    Pair(id="half", named=(0, None), subset="law"),
    Pair(id="open", named=(0, 0)),
]


@pytest.fixture
def folder(make_run: MakeRun) -> Path:
    """A run over `PAIRS`; the last one is not judged."""
    return make_run(PAIRS, unjudged=["open"])


def ids(index: RunIndex, query: ItemQuery) -> list[str]:
    found = [one.id for one in index.listed(query, first=0, num=100)]
    assert index.count(query) == len(found)
    return found


def test_conditions_select_items(folder: Path) -> None:
    index = index_run(folder)
    selected = {name: ids(index, ItemQuery(conditions=frozenset({name}))) for name in index.counts()}
    assert selected == {
        "wrong": ["wrong"],
        "flipped": ["flipped"],
        "forced": [],
        "tie": ["flipped"],
        "abstained": [],
        "tool_error": ["wrong"],
        "missing": ["open"],
    }
    assert index.counts() == {name: len(found) for name, found in selected.items()}
    assert ids(index, ItemQuery(subset="law")) == ["wrong", "half"]
    assert ids(index, ItemQuery(subset="law", conditions=frozenset({"wrong"}))) == ["wrong"]
    assert ids(index, ItemQuery(error="timeout")) == ["wrong"]
    assert ids(index, ItemQuery(error="time")) == []
    assert ids(index, ItemQuery(id="pp")) == ["flipped"]
    assert (index.subsets, index.errors) == (["law", "math"], ["timeout"])


def test_items_are_read_in_pages(folder: Path) -> None:
    index = index_run(folder)
    assert [one.id for one in index.listed(ItemQuery(), first=2, num=2)] == ["flipped", "half"]
    assert [one.listed.id for one in index.items(first=3, num=9)] == ["half", "open"]
    assert index.listed(ItemQuery(), first=99, num=2) == []


def test_judgments_are_read_from_the_journal(folder: Path) -> None:
    index = index_run(folder)
    for pair, item in zip(PAIRS, index.items(first=0, num=9), strict=True):
        found = index.answers(item)
        wanted = [] if pair.id == "open" else [((0, 1), judgment_of(pair))]
        assert [(one.responses, one.judgment) for one in found] == wanted


def test_the_view_counts_the_examples_and_has_the_figures(folder: Path) -> None:
    view = index_run(folder).view
    assert (view.num_examples, view.num_judged, view.num_missing) == (5, 4, 1)
    assert view.main.startswith("25.0 (")
    assert [section.title for section in view.sections][:2] == ["Coverage and basis", "Counts"]
    assert {chart.title for section in view.sections for chart in section.charts} == {
        "Accuracy by basis",
        "Accuracy by use of programs",
        "Programs that failed",
        "First of two shown is chosen",
        "Verdicts that flip with the order",
        "Reliability",
    }


def test_published_tables_have_the_columns_of_the_benchmark_and_our_row(folder: Path) -> None:
    tables = {table.title.split(",")[0]: table for table in index_run(folder).view.published}
    assert list(tables) == ["Judge benchmarks", "RewardBench"]
    main = tables["Judge benchmarks"]
    assert [head.title for head in main.heads] == ["Judge", "Mode", "JudgeBench"]
    assert any("TIR-Judge" in line.cells[0].text for line in main.lines)
    assert [line.cells[0].text for line in main.lines if line.is_ours] == ["tiny"]


def test_an_example_without_requests_is_not_missing(folder: Path) -> None:
    plan = read_plan(folder)
    plan[-1] = plan[-1].model_copy(update={"asked": ()})  # as an example whose label is a tie
    (folder / "outlines.jsonl").write_bytes(jsonl(plan))
    index = index_run(folder)
    assert index.counts()["missing"] == 0
    assert index.view.num_missing == 0


async def test_an_index_is_out_of_date_when_the_run_grows(folder: Path) -> None:
    assert not RunIndex(folder).is_current
    index = index_run(folder)
    assert index.is_current
    async with JudgmentStore(folder) as store:
        await store.keep("key-open", judgment_of(PAIRS[-1]))
    assert not index.is_current
    assert [one.judgment.id for one in index.answers(index.items(first=0, num=1)[0])] == ["jdg_right"]
    assert index_run(folder).view.num_missing == 0


def test_the_last_line_of_a_key_counts_and_a_partial_line_is_left_out(folder: Path) -> None:
    journal = folder / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines, lines[0], lines[1][:-1]]))
    places = journal_places(folder)
    assert places["key-right"] == (sum(map(len, lines)), len(lines[0]))
    assert places["key-wrong"] == (len(lines[0]), len(lines[1]))


def test_a_replaced_journal_is_not_read_at_old_positions(folder: Path) -> None:
    index = index_run(folder)
    journal = folder / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[7:])
    with pytest.raises(IndexUnusable, match="changed since the index was written"):
        index.answers(index.items(first=0, num=1)[0])


def test_a_damaged_index_is_unusable_and_can_be_written_again(folder: Path) -> None:
    (folder / "pages.db").write_bytes(b"SQLite format 3\0 damaged" * 100)
    with pytest.raises(IndexUnusable):
        _ = RunIndex(folder).view
    assert index_run(folder).view.num_examples == 5


def test_the_error_of_a_failed_request_is_stored(folder: Path) -> None:
    (folder / "failures.jsonl").write_bytes(jsonl([Failure(key="key-open", error="no engine", at=1)]))
    index = index_run(folder)
    assert [one.problem for one in index.items(first=3, num=2)] == [None, "no engine"]
    assert index.view.num_failures == 1


def test_changes_are_items_with_other_results(make_run: MakeRun, folder: Path) -> None:
    changed = [Pair(id="right", named=(1, 1)), Pair(id="wrong", named=(0, 0)), *PAIRS[2:]]
    first, second = index_run(folder), index_run(make_run(changed, folder="other"))

    def found(kind: str) -> list[tuple[str, str, str]]:
        total, items = first.changes(second, kind=kind, first=0, num=9)
        assert total == len(items)
        return [(one.id, one.first, one.second) for one in items]

    assert found("all") == [("right", "right", "wrong"), ("wrong", "wrong", "right")]
    assert found("gained") == [("wrong", "wrong", "right")]
    assert found("lost") == [("right", "right", "wrong")]
    total, items = first.changes(second, kind="all", first=0, num=9, left_out=["wrong"])
    assert (total, [one.id for one in items]) == (1, ["right"])


def test_the_index_is_readable_by_its_owner_only(folder: Path) -> None:
    index_run(folder)
    assert (folder / "pages.db").stat().st_mode & 0o777 == 0o600
