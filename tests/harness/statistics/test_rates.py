"""Rates of verdicts, programs and failures, and costs; expected values computed manually."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.judgments import build_turn
from tirjudge.prices import Prices
from tirjudge.right import Decision
from tirjudge.types import Mode, Outcome
from tirjudge_harness.statistics.rates import (
    CodeError,
    code_errors_of,
    costs_of,
    kind_of,
    spread_of,
    tool_use_of,
    verdicts_of,
)

OK, ERROR, REFUSED, TIMEOUT = Outcome.OK, Outcome.ERROR, Outcome.REFUSED, Outcome.TIMEOUT


def test_ties_missing_and_forced_verdicts_are_counted_separately(chosen, judged, judgment) -> None:
    decisions = (
        Decision(shown=(0, 1), best=0),
        Decision(shown=(1, 0), tied=True),
        Decision(shown=(0, 1)),
        Decision(shown=(1, 0), best=1, forced=True),
    )
    found = verdicts_of([replace(chosen("1"), decisions=decisions)])
    assert (found.tied.value, found.no_verdict.value, found.forced.value) == (0.25, 0.25, 0.25)
    assert (found.ties.num, found.abstained.num) == (0, 0)
    runs = [judged(str(n), ((0, 1), judgment((), status=status))) for n, status in enumerate(("tie", "abstained"))]
    found = verdicts_of([*runs, judged("2", ((0, 1), judgment(()))), judged("3", ((0, 1), judgment(())))])
    assert (found.ties.value, found.abstained.value, found.tied.value) == (0.25, 0.25, 0.0)


def test_accuracy_is_split_by_whether_a_program_ran(mark, judged, judgment) -> None:
    runs = [
        judged("ran", ((0, 1), judgment([(OK, "1")], id="1"))),
        judged("failed", ((0, 1), judgment([(ERROR, "NameError: x"), (OK, "")], id="2"))),
        judged("refused", ((0, 1), judgment([(REFUSED, "")], id="3"))),
        judged("thought", ((0, 1), judgment([], id="4"))),
    ]
    marks = [mark("ran", 1.0), mark("failed", 0.0), mark("refused", 1.0), mark("thought", 0.5), mark("elsewhere", 1.0)]
    found = tool_use_of(runs, marks=marks)
    assert found.rollouts.value == 0.5
    assert found.programs == 0.75
    assert (found.with_programs.value, found.with_programs.num) == (0.5, 2)
    assert (found.without_programs.value, found.without_programs.num) == (0.75, 2)


def test_a_comparison_of_scores_used_programs_if_either_judgment_did(mark, judged, judgment) -> None:
    alone = judgment([(OK, "1")], id="1", mode=Mode.POINTWISE, scores={"7": 1.0})
    thought = judgment([], id="2", mode=Mode.POINTWISE, scores={"3": 1.0})
    run = judged("e", ((0,), alone), ((1,), thought), mode=Mode.POINTWISE)
    found = tool_use_of([run], marks=[mark("e", 1.0)])
    assert (found.with_programs.num, found.without_programs.num) == (1, 0)


def test_failed_calls_are_counted_by_kind(judged, judgment) -> None:
    """Ten calls in three judgments; a fourth judgment has none."""
    first = judgment(
        [(OK, "1"), (ERROR, "SyntaxError: invalid syntax"), (ERROR, "ValueError: SyntaxError")],
        [(ERROR, "IndentationError: unexpected indent"), (OK, "")],
        id="1",
    )
    second = judgment([(REFUSED, "NoProgram: no block"), (TIMEOUT, ""), (Outcome.OOM, ""), (OK, "")], id="2")
    third = judgment([(OK, "3")], id="3")
    runs = [judged(n, ((0, 1), j)) for n, j in zip("abcd", (first, second, third, judgment([], id="4")), strict=True)]
    found = {each.kind: (each.of_programs.value, each.of_judgments.value) for each in code_errors_of(runs)}
    third = pytest.approx(1 / 3)
    assert found == {
        CodeError.SYNTAX: (0.2, third),
        CodeError.RUNTIME: (0.1, third),
        CodeError.FORMAT: (0.1, third),
        CodeError.TIMEOUT: (0.1, third),
        CodeError.OOM: (0.1, third),
        CodeError.CRASH: (0.0, 0.0),
        CodeError.OUTPUT_LIMIT: (0.0, 0.0),
    }


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.SANDBOX_ERROR])
def test_every_failed_outcome_has_a_kind(outcome: Outcome) -> None:
    kind = kind_of(build_turn(outcome))
    assert (kind is None) == outcome.is_ok


def test_a_shared_judgment_counts_once_in_costs(judged, judgment) -> None:
    shared = judgment([(OK, "")], id="1", input_tokens=1000, output_tokens=100, total_s=2.0)
    other = judgment([], id="2", input_tokens=3000, output_tokens=300, total_s=4.0)
    runs = [judged("a", ((0, 1), shared)), judged("b", ((0, 1), shared)), judged("c", ((0, 1), other))]
    found = costs_of(runs, prices=Prices(input=1.0, output=10.0))
    assert found.num_judgments == 2
    assert found.input_tokens is not None
    assert (found.input_tokens.total, found.input_tokens.mean) == (4000, 2000)
    assert found.tool_calls is not None
    assert found.tool_calls.mean == 0.5
    assert found.money is not None
    assert found.money.total == pytest.approx(0.002 + 0.006)
    assert costs_of(runs).money is None


def test_percentiles_are_observed_values() -> None:
    found = spread_of(list(range(1, 101)))
    assert found is not None
    assert (found.mean, found.median, found.p90, found.p99) == (50.5, 50, 90, 99)
    assert spread_of([]) is None
