"""Best-of-N runs with a judge that prefers more words: results, saved judgments and refused settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.harness.best_of_n.longer import LongerIsBetter
from tirjudge.durable import StorageError
from tirjudge_harness.best_of_n.grading import Grading, open_grader
from tirjudge_harness.best_of_n.results import BestOfN
from tirjudge_harness.best_of_n.run import BestOfNSettings, load_results, run_best_of_n
from tirjudge_harness.best_of_n.selecting import Choosing
from tirjudge_harness.items import InputError
from tirjudge_harness.run_store import RunStopped

Write = Callable[..., Path]

ROWS = [
    {"id": "p1", "prompt": "1", "responses": ["a", "a b", "a b c", "a b c d"], "correct": [False, False, False, True]},
    {"id": "p2", "prompt": "2", "responses": ["a b c d", "a b", "a", "a b c"], "correct": [False, True, True, True]},
    {"id": "p3", "prompt": "3", "responses": ["a b", "a b c", "a", "a b c d"], "correct": [True, True, True, True]},
]
"""The longest response is right for p1 and p3. The first response is right for p3 only. Each problem has a right
response."""


async def run(
    path: Path,
    out: Path,
    judge: LongerIsBetter,
    console: Console,
    *,
    strategies: Sequence[str] = ("knockout",),
    grading: Grading = Grading.GIVEN,
    seed: int = 0,
    limit: int | None = None,
    **judging: Any,
) -> dict[str, BestOfN]:
    settings = BestOfNSettings(
        strategies=tuple(strategies),
        grading=grading,
        choosing=Choosing(seed=seed, judging={"tools": "off", **judging}),
        dataset="toy",
        policy="words",
        limit=limit,
    )
    results = await run_best_of_n(
        path,
        out=out,
        opened=judge.opened,
        grading=open_grader(grading),
        settings=settings,
        concurrency=4,
        console=console,
    )
    return {result.strategy: result for result in results}


async def test_results_list_every_strategy_and_baseline(write_lines: Write, tmp_path: Path, quiet: Console) -> None:
    judge, out = LongerIsBetter(), tmp_path / "run"
    strategies = ["knockout", "round_robin", "listwise", "pointwise"]
    results = await run(write_lines(ROWS), out, judge, quiet, strategies=strategies)
    assert {name: result.solved for name, result in results.items()} == {
        "first": 1.0,
        "pass@1": pytest.approx(1 / 4 + 3 / 4 + 1),
        "oracle": 3.0,
        **dict.fromkeys(("knockout", "round_robin", "listwise", "pointwise"), 2.0),
    }
    assert {name: results[name].num_calls for name in ("knockout", "round_robin", "listwise", "pointwise")} == {
        "knockout": 9,
        "round_robin": 18,
        "listwise": 3,
        "pointwise": 12,
    }
    assert results["knockout"].helpfulness == (2 - 1) / (3 - 1)
    assert (results["knockout"].dataset, results["knockout"].policy) == ("toy", "words")
    assert load_results(out) == list(results.values())
    lines = [json.loads(line) for line in (out / "selections.jsonl").read_text().splitlines()]
    assert [(line["id"], line["best"], line["worth"]) for line in lines if line["strategy"] == "pointwise"] == [
        ("p1", 3, 1.0),
        ("p2", 0, 0.0),
        ("p3", 3, 1.0),
    ]


async def test_an_added_strategy_reuses_saved_judgments(write_lines: Write, tmp_path: Path, quiet: Console) -> None:
    judge, path, out = LongerIsBetter(), write_lines(ROWS), tmp_path / "run"
    first = await run(path, out, judge, quiet, strategies=["round_robin"])
    assert len(judge.asked) == 18
    both = await run(path, out, judge, quiet, strategies=["pointwise"])
    assert len(judge.asked) == 18 + 12
    assert both["round_robin"] == first["round_robin"]
    assert [one.strategy for one in load_results(out)][-2:] == ["round_robin", "pointwise"]
    lines = [json.loads(line) for line in (out / "selections.jsonl").read_text().splitlines()]
    assert [line["strategy"] for line in lines] == ["pointwise"] * 3 + ["round_robin"] * 3


async def test_a_refused_strategy_or_grader_is_not_part_of_the_run(
    write_lines: Write, tmp_path: Path, quiet: Console
) -> None:
    judge, path, out = LongerIsBetter(), write_lines(ROWS), tmp_path / "run"
    with pytest.raises(InputError, match="--grader aime: no problem could be graded"):
        await run(path, out, judge, quiet, grading=Grading.AIME)
    await run(path, out, judge, quiet)
    with pytest.raises(InputError, match="verified_vote: the answers of p1 are unknown"):
        await run(path, out, judge, quiet, strategies=["verified_vote"])
    assert list(await run(path, out, judge, quiet)) == ["first", "pass@1", "oracle", "knockout"]


@pytest.mark.parametrize("fails_after", range(0, 9, 2))
async def test_an_interrupted_knockout_makes_only_the_missing_judgments(
    write_lines: Write, tmp_path: Path, quiet: Console, fails_after: int
) -> None:
    path = write_lines(ROWS)
    undisturbed = await run(path, tmp_path / "whole", LongerIsBetter(), quiet)
    judge, out = LongerIsBetter(fails_after=fails_after), tmp_path / "cut"
    with suppress(RunStopped):
        first = await run(path, out, judge, quiet)
        assert first["knockout"].num_missing > 0
    judge.fails_after = None
    assert await run(path, out, judge, quiet) == undisturbed
    assert len(judge.asked) == 9
    pairs = [(request.prompt, frozenset(request.responses)) for request in judge.asked]
    assert len(set(pairs)) == 9


async def test_a_failed_problem_is_missing_and_not_scored(write_lines: Write, tmp_path: Path, quiet: Console) -> None:
    judge = LongerIsBetter(fails_after=8)
    results = await run(write_lines(ROWS), tmp_path / "run", judge, quiet)
    assert (results["knockout"].num_problems, results["knockout"].num_missing) == (2, 1)
    assert results["oracle"].num_problems == 3
    assert "knockout: EngineUnavailable: gone" in quiet.file.getvalue()  # type: ignore[attr-defined]


async def test_answers_of_the_grader_break_ties_and_vote(write_lines: Write, tmp_path: Path, quiet: Console) -> None:
    rows = [
        {"id": 1, "problem": "x?", "answer": "025", "responses": ["so 7", "so 25", "it's 25", "so 7 or 8"]},
        {"id": 2, "problem": "y?", "answer": 3, "responses": ["so 3", "so 3", "so 4", "it's 3"]},
    ]
    results = await run(
        write_lines(rows),
        tmp_path / "run",
        LongerIsBetter(),
        quiet,
        strategies=["pointwise"],
        grading=Grading.AIME,
    )
    assert results["majority"].solved == 2.0
    assert results["first"].solved == 1.0
    # The longest response to the first problem ends with 8. All responses to the second are equally long, and 3 is the
    # majority.
    assert results["pointwise"].solved == 1.0


async def test_a_problem_without_answers_counts_as_unsolved_for_the_majority(
    write_lines: Write, tmp_path: Path, quiet: Console
) -> None:
    rows = [
        {"id": 1, "problem": "x?", "answer": 25, "responses": ["so 7", "so 25", "it's 25"]},
        {"id": 2, "problem": "y?", "answer": 3, "responses": ["cut", "off", "here"]},
    ]
    path, out = write_lines(rows), tmp_path / "run"
    for _ in range(2):  # the second run reads saved grades
        results = await run(path, out, LongerIsBetter(), quiet, grading=Grading.AIME)
        assert (results["majority"].solved, results["majority"].num_problems) == (1.0, 2)


async def test_saved_grades_are_reused(write_lines: Write, tmp_path: Path, quiet: Console) -> None:
    path = write_lines([{"id": 1, "prompt": "x?", "answer": 5, "responses": ["5", "6"]}])
    await run(path, tmp_path / "run", LongerIsBetter(), quiet, grading=Grading.GSM8K)
    grades = tmp_path / "run" / "grades.jsonl"
    (line,) = grades.read_text().splitlines()
    grades.write_text(line.replace("[1.0,0.0]", "[0.0,1.0]") + "\n")
    again = await run(path, tmp_path / "run", LongerIsBetter(), quiet, grading=Grading.GSM8K)
    assert again["first"].solved == 0.0
    assert len(grades.read_text().splitlines()) == 1


async def test_a_problem_that_cannot_be_graded_is_left_out_and_reported(
    write_lines: Write, tmp_path: Path, quiet: Console
) -> None:
    path = write_lines([*ROWS, {"id": "bare", "prompt": "4", "responses": ["a", "b"]}])
    results = await run(path, tmp_path / "run", LongerIsBetter(), quiet)
    assert results["oracle"].num_problems == 3
    shown = quiet.file.getvalue()  # type: ignore[attr-defined]
    assert "bare: not graded: the row has no column correct, scores or label" in shown
    assert "1 of 4 problems could not be graded and are left out" in shown


async def test_a_grader_that_can_grade_no_problem_is_one_error(
    write_lines: Write, tmp_path: Path, quiet: Console
) -> None:
    judge = LongerIsBetter()
    with pytest.raises(InputError, match=r"--grader aime: no problem could be graded; the first: p1: answer"):
        await run(write_lines(ROWS), tmp_path / "run", judge, quiet, grading=Grading.AIME)
    assert judge.asked == []


async def test_a_vote_without_answers_is_refused_before_any_judgment(
    write_lines: Write, tmp_path: Path, quiet: Console
) -> None:
    judge = LongerIsBetter()
    with pytest.raises(InputError, match="verified_vote: the answers of p1 are unknown; give --grader aime"):
        await run(write_lines(ROWS), tmp_path / "run", judge, quiet, strategies=["verified_vote"])
    assert judge.asked == []


async def test_a_folder_with_different_settings_is_refused_and_the_setting_is_named(
    write_lines: Write, tmp_path: Path, quiet: Console
) -> None:
    path, out = write_lines(ROWS), tmp_path / "run"
    await run(path, out, LongerIsBetter(), quiet)
    with pytest.raises(StorageError, match=r"\(seed was 0 and is now 1\); give another --out"):
        await run(path, out, LongerIsBetter(), quiet, seed=1)
    with pytest.raises(StorageError, match=r'\(grader was "given" and is now "aime"\); give another --out'):
        await run(path, out, LongerIsBetter(), quiet, grading=Grading.AIME)
    with pytest.raises(StorageError, match=r"votes was null and is now 3"):
        await run(path, out, LongerIsBetter(), quiet, votes=3)
    with pytest.raises(StorageError, match=r'responses was "sha256'):
        await run(write_lines(ROWS[:2], name="other.jsonl"), out, LongerIsBetter(), quiet)


async def test_a_sample_is_deterministic(write_lines: Write, tmp_path: Path, quiet: Console) -> None:
    rows = [{"id": n, "prompt": str(n), "responses": ["a", "a b"], "label": 1} for n in range(20)]
    path = write_lines(rows)
    first, second = LongerIsBetter(), LongerIsBetter()
    await run(path, tmp_path / "one", first, quiet, limit=5)
    await run(path, tmp_path / "two", second, quiet, limit=5)
    assert len(first.asked) == 5
    assert {str(request.prompt) for request in first.asked} == {str(request.prompt) for request in second.asked}


def test_a_folder_without_valid_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a run folder: results"):
        load_results(tmp_path)
    (tmp_path / "results.json").write_text("[{}]")
    with pytest.raises(InputError, match="damaged, or written by a different command"):
        load_results(tmp_path)
