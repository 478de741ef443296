"""Scoring stored runs by their own protocol and by others, and the errors if that is not possible."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.reports.conftest import MakeRun, Pair
from tests.judgments import build_judgment, build_rollout, build_turn
from tests.runs import outline_of
from tirjudge.types import Mode, Outcome
from tirjudge_harness.items import InputError
from tirjudge_harness.reports.run_table import run_table
from tirjudge_harness.reports.scored import run_folders, score_run
from tirjudge_harness.run import PlannedExample, read_manifest, read_plan, write_plan
from tirjudge_harness.statistics.rates import CodeError, kind_of
from tirjudge_harness.textless import ERROR_CHARS, TextlessTurns

BOTH_RIGHT, FLIPPED, BOTH_WRONG = (0, 0), (0, 1), (1, 1)


@pytest.fixture
def in_both_orders(make_run: MakeRun) -> Path:
    """A run over ten pairs: six are right in both orders, two in the first order only, two in neither."""
    named = [BOTH_RIGHT] * 6 + [FLIPPED] * 2 + [BOTH_WRONG] * 2
    return make_run([Pair(id=f"p{n}", named=each) for n, each in enumerate(named)])


@pytest.mark.parametrize(
    ("protocol", "accuracy"),
    [(None, 0.6), ("both_orders", 0.6), ("paper", 0.8), ("official", 0.6)],
)
def test_a_run_in_both_orders_is_scored_by_any_protocol(
    in_both_orders: Path, protocol: str | None, accuracy: float
) -> None:
    run = score_run(in_both_orders, protocol=protocol)
    assert run.figures[0].value == pytest.approx(accuracy)
    assert run.figures[0].num_marks == 10
    low, high = run.figures[0].interval or (1.0, 0.0)
    assert low < accuracy < high


def test_a_file_is_no_run_and_the_message_says_how_to_make_one(tmp_path: Path) -> None:
    (tmp_path / "judged.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match=r"is a file; .* `tirjudge bench run --data FILE --out FOLDER`"):
        run_folders([tmp_path / "judged.jsonl"])


def test_a_run_in_one_order_cannot_be_scored_by_both_orders(make_run: MakeRun) -> None:
    path = make_run([Pair(id="a"), Pair(id="b")])
    assert score_run(path).figures[0].value == 1.0
    with pytest.raises(InputError, match=r"run: protocol: both_orders needs two opposite orders .* none of the 2"):
        score_run(path, protocol="both_orders")


def test_a_protocol_with_a_different_number_of_votes_is_refused(make_run: MakeRun) -> None:
    path = make_run([Pair(id="a")])
    with pytest.raises(
        InputError, match="votes=3 needs 3 votes per order, but the run has 1; give paper, official, single_game"
    ):
        score_run(path, protocol="votes=3")
    voted = make_run([Pair(id="a")], folder="voted", protocol="votes=3", votes=3)
    with pytest.raises(InputError, match="paper needs 1 vote per order, but the run has 3; give votes=3"):
        score_run(voted, protocol="paper")


def test_missing_examples_are_counted_and_not_scored(make_run: MakeRun) -> None:
    run = score_run(make_run([Pair(id="a"), Pair(id="b"), Pair(id="c")], unjudged=["b"]))
    assert (run.counts.marks, run.counts.missing, run.figures[0].value) == (2, 1, 1.0)


def test_examples_without_requests_are_in_no_figure(make_run: MakeRun) -> None:
    """The Ties figure of RewardBench 2 is a formula over ratings, and a listwise run has no ratings."""
    pairs = [Pair(id="a", subset="Math"), Pair(id="b", subset="Math")]
    path = make_run(pairs, benchmark="rewardbench2", mode=Mode.LISTWISE)
    tied = outline_of(Pair(id="tied:1", subset="Ties"))
    write_plan(
        path, manifest=read_manifest(path), planned=[*read_plan(path), PlannedExample(place=2, outline=tied, asked=())]
    )
    run = score_run(path)
    assert {figure.name: (figure.value, figure.num_marks) for figure in run.figures if figure.num_marks} == {
        "average without Ties": (1.0, 2),
        "Math": (1.0, 2),
        "average": (None, 2),
    }


def test_a_run_of_an_unknown_benchmark_is_refused(make_run: MakeRun) -> None:
    with pytest.raises(InputError, match=r"run: unknown benchmark 'no-such'; installed: .*judgebench"):
        score_run(make_run([Pair(id="a")], benchmark="no-such"))


def test_runs_are_found_one_level_below_a_folder(make_run: MakeRun, tmp_path: Path) -> None:
    second = make_run([Pair(id="a")], folder="all/judgebench")
    first = make_run([Pair(id="a")], folder="all/ifbench", benchmark="ifbench")
    assert run_folders([tmp_path / "all", second]) == [first, second, second]
    with pytest.raises(InputError, match=r"no run found \(no manifest.json there"):
        run_folders([tmp_path])


def test_best_of_n_runs_are_skipped_among_others_and_refused_alone(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run([Pair(id="a")], folder="all/judgebench")
    for folder in (tmp_path / "all" / "aime", tmp_path / "alone" / "aime"):
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text("{}")
        (folder / "selections.jsonl").touch()
    assert run_folders([tmp_path / "all"]) == [run]
    for path in (tmp_path / "alone", tmp_path / "alone" / "aime"):
        with pytest.raises(InputError, match=r"contains only best-of-N runs; .* --shape best_of_n"):
            run_folders([path])


def test_without_texts_the_figures_of_a_run_are_the_same(make_run: MakeRun) -> None:
    outcomes = (None, Outcome.OK, Outcome.ERROR, Outcome.TIMEOUT, Outcome.REFUSED)
    named = (BOTH_RIGHT, FLIPPED, BOTH_WRONG)
    pairs = [
        Pair(id=f"p{n}", named=named[n % 3], outcome=outcomes[n % 5], subset="math" if n % 2 else "law")
        for n in range(30)
    ]
    path = make_run(pairs)
    whole, textless = score_run(path), score_run(path, with_texts=False)
    assert run_table(textless) == run_table(whole)
    turns = [
        turn
        for one in textless.examples
        for judgment in one.judgments
        for rollout in judgment.rollouts
        for turn in rollout.turns
    ]
    assert {turn.text for turn in turns} == {""}
    assert len({id(turn) for turn in turns}) <= len(outcomes) + 1


def test_a_program_that_is_no_python_keeps_its_error_without_texts() -> None:
    output = "  SyntaxError: invalid syntax (a long line of the program)"
    turn = build_turn(Outcome.ERROR, text="t", code="(", output=output)
    judgment = build_judgment(rollouts=[build_rollout(turns=[turn, turn])])
    first, second = TextlessTurns().without_texts(judgment).rollouts[0].turns
    assert first is second
    assert (kind_of(first), first.code, first.text) == (CodeError.SYNTAX, "", "")
    assert len(first.output or "") <= ERROR_CHARS
