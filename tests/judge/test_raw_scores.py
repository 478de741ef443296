"""Judgments of a scalar reward model whose scores are scripted."""

from __future__ import annotations

import math

import pytest

from tirjudge.best_of_n import select
from tirjudge.engines.scripted import ScriptedScalarEngine
from tirjudge.judge import Judge
from tirjudge.right import Decision, ScoringRule, credit, decisions_of, is_right
from tirjudge.types import JudgeRequest, Judgment, Mode
from tirjudge.verdict import raw_verdict

SCORES = {"great": 17.25, "good": 2.5, "also good": 2.5, "bad": -3.0000001, "worse": -3.0000002}


def judge() -> Judge:
    return Judge(engine=ScriptedScalarEngine(lambda prompt, response: SCORES[response]))


async def judged(mode: str, *responses: str, **fields: object) -> Judgment:
    body = {"mode": mode, "prompt": "Hi", "responses": list(responses), **fields}
    return await judge().judge(JudgeRequest.model_validate(body))


def test_scores_are_compared_without_rounding() -> None:
    assert raw_verdict([-3.0000001, -3.0000002], mode=Mode.POINTWISE).best == 0
    assert raw_verdict([1e-300, 0.0], mode=Mode.PAIRWISE).best == 0


def test_probabilities_are_those_of_bradley_terry() -> None:
    verdict = raw_verdict([2.0, 0.5], mode=Mode.PAIRWISE)
    assert verdict.probabilities == pytest.approx([1 / (1 + math.exp(-1.5)), 1 / (1 + math.exp(1.5))])
    assert verdict.confidence == max(verdict.probabilities or [])
    assert raw_verdict([1000.0, -1000.0], mode=Mode.PAIRWISE).probabilities == [1.0, 0.0]
    assert raw_verdict([2.0, 0.5], mode=Mode.POINTWISE).probabilities is None


async def test_every_mode_has_the_raw_scores() -> None:
    for mode in ("pointwise", "listwise"):
        judgment = await judged(mode, "bad", "great", "good")
        assert (judgment.verdict.best, judgment.raw_scores) == (1, [-3.0000001, 17.25, 2.5])
        assert judgment.verdict.scores == (judgment.raw_scores if mode == "pointwise" else None)
        assert Judgment.model_validate_json(judgment.model_dump_json()) == judgment
    tie = await judged("pairwise", "good", "also good", orders="both", votes=3)
    assert (tie.verdict.status, tie.verdict.probabilities, tie.raw_scores) == ("tie", [0.5, 0.5], [2.5, 2.5])
    one = await judged("pointwise", "great")
    assert (one.verdict.status, one.verdict.best, one.verdict.label, one.verdict.scores) == (
        "decided",
        None,
        None,
        [17.25],
    )


async def test_equal_responses_are_scored_once() -> None:
    asked = judge()
    judgment = await asked.judge(JudgeRequest(mode=Mode.LISTWISE, prompt="Hi", responses=["good", "good", "bad"]))
    assert isinstance(asked.engine, ScriptedScalarEngine)
    assert [response for _, response in asked.engine.calls] == ["good", "bad"]
    assert judgment.verdict.status == "tie"


async def test_requirements_withhold_the_verdict() -> None:
    checked = await judged("pairwise", "great", "bad", require="checked")
    unsure = await judged("pairwise", "bad", "worse", min_confidence=0.9)
    sure = await judged("pairwise", "great", "bad", min_confidence=0.9)
    assert [one.verdict.reason for one in (checked, unsure, sure)] == ["not_checked", "low_confidence", None]
    assert [one.has_verdict for one in decisions_of(checked, asked=(4, 5))] == [False]


async def test_decisions_say_that_a_scalar_model_made_them() -> None:
    each = decisions_of(await judged("pointwise", "great", "bad"), asked=(4, 7))
    assert each == [Decision(shown=(4,), score=17.25, scalar=True), Decision(shown=(7,), score=-3.0000001, scalar=True)]
    (pair,) = decisions_of(await judged("pairwise", "good", "also good"), asked=(4, 7))
    assert (pair.shown, pair.tied, pair.scalar, pair.whole) == ((4, 7), True, True, True)


@pytest.mark.parametrize("mode", ["pointwise", "pairwise"])
async def test_a_rule_may_give_nothing_for_ties_of_scalar_models(mode: str) -> None:
    decisions = decisions_of(await judged(mode, "good", "also good"), asked=(0, 1))
    ratings = [Decision(shown=(0,), score=7.0), Decision(shown=(1,), score=7.0)]
    choices = [Decision(shown=(0, 1), tied=True)]
    rule = ScoringRule(tie=0.5, scalar_tie=0.0)
    for found, expected in ((decisions, 0.0), (ratings if mode == "pointwise" else choices, 0.5)):
        earned = credit(found, (0, 1), right=frozenset({0}), mode=Mode(mode), counting=rule)
        assert earned == ("tie", expected)


@pytest.mark.parametrize("mode", ["pointwise", "pairwise", "listwise"])
async def test_every_mode_is_right_or_wrong(mode: str) -> None:
    assert is_right(await judged(mode, "great", "bad"), 0) == ("right", 1.0)
    assert is_right(await judged(mode, "great", "bad"), 1) == ("wrong", 0.0)
    assert is_right(await judged(mode, "good", "also good"), 1) == ("tie", 0.0)


@pytest.mark.parametrize("method", ["pointwise", "expected_score", "knockout", "all_pairs", "listwise"])
async def test_every_strategy_ranks_by_raw_scores(method: str) -> None:
    responses = ["bad", "great", "good", "worse"]
    found = await select("Hi", responses, judge=judge().judge, method=method)
    assert found.best == 1
    if method in ("pointwise", "expected_score"):
        assert found.scores == tuple(SCORES[response] for response in responses)
        assert found.ranking == (1, 2, 0, 3)


async def test_programs_cannot_be_required() -> None:
    with pytest.raises(ValueError, match="runs no programs"):
        await judged("pairwise", "great", "bad", tools="on")
    with pytest.raises(ValueError, match="no checks"):
        await judged("rules", "great", "bad")
