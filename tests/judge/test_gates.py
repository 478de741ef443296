"""Gates of checks: what a failed check does to the verdict of the model, and verdicts without a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tirjudge.checks import CheckCard, Gate, gated, rules_score, rules_verdict
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.errors import SandboxUnavailable
from tirjudge.judge import Judge
from tirjudge.right import decisions_of, is_right
from tirjudge.types import CheckResult, JudgeRequest, Mode, Verdict
from tirjudge.verdict import held_to

CAP = Gate(cap=3.0)
DECIDES = Gate(decides=True)


def card(name: str = "rule", *, gate: Gate | None = DECIDES, weight: float = 1.0) -> CheckCard:
    return CheckCard(name=name, kind="k", severity="violation", weight=weight, gate=gate, sha256="0")


def result(passed: bool | None, name: str = "rule") -> CheckResult:
    """None: skipped."""
    skipped = "no JSON" if passed is None else None
    return CheckResult(check=name, kind="k", severity="violation", passed=bool(passed), skipped=skipped)


def verdict(best: int | None = 0, *, probabilities: Sequence[float] | None = (0.8, 0.2), **fields: Any) -> Verdict:
    known: dict[str, Any] = {
        "status": "tie" if best is None else "decided",
        "best": best,
        "label": None if best is None else "ABCD"[best],
        "scores": None,
        "probabilities": probabilities,
        "confidence": 0.7,
        "label_mass": 0.9,
        "forced": False,
        "basis": "reasoned",
    }
    return Verdict(**{**known, **fields})


def compared(given: Verdict, *passed: bool | None, gate: Gate = DECIDES) -> Verdict:
    return gated(given, mode=Mode.LISTWISE, cards=[card(gate=gate)], results=[[result(each)] for each in passed])


class WordChecks:
    """Checks that fail each response with a word. They are real checks, without a store."""

    def __init__(self, **gates: Gate | None) -> None:
        self.cards = [card(word, gate=gate) for word, gate in gates.items()]

    async def examine(self, request: JudgeRequest) -> list[list[CheckResult]]:
        return [[result(each.name not in text, each.name) for each in self.cards] for text in request.responses]


class BrokenChecks(WordChecks):
    async def examine(self, request: JudgeRequest) -> list[list[CheckResult]]:
        raise SandboxUnavailable("the store is gone")


def test_response_that_violates_loses_to_the_other() -> None:
    changed = compared(verdict(0), False, True)
    assert (changed.status, changed.best, changed.label) == ("decided", 1, "B")
    assert (changed.reason, changed.basis) == ("rule", "checked")
    assert (changed.probabilities, changed.confidence) == ([0.8, 0.2], 0.7)
    [gate] = changed.gates
    assert (gate.check, gate.response, gate.effect, gate.before, gate.after) == ("rule", 0, "decides", 0, 1)


@pytest.mark.parametrize("passed", [(True, True), (True, False), (False, False), (None, True), (None, None)])
def test_verdict_stands_unless_the_best_violates_and_another_does_not(passed: Any) -> None:
    assert compared(verdict(0), *passed) == verdict(0)


def test_most_probable_of_those_that_pass_wins() -> None:
    changed = compared(verdict(0, probabilities=(0.6, 0.1, 0.3)), False, True, True)
    assert (changed.best, changed.label) == (2, "C")


@pytest.mark.parametrize("probabilities", [(0.6, 0.2, 0.2), None])
def test_tie_if_no_response_that_passes_leads(probabilities: Any) -> None:
    changed = compared(verdict(0, probabilities=probabilities), False, True, True)
    assert (changed.status, changed.best, changed.reason) == ("tie", None, "rule")


def test_tie_is_decided_if_one_response_passes() -> None:
    tie = verdict(None, reason="orders_disagree")
    changed = compared(tie, False, True)
    assert (changed.best, changed.gates[0].before) == (1, None)
    assert compared(verdict(None, probabilities=(0.3, 0.3, 0.4)), False, True, True).best is None


def test_abstention_stays() -> None:
    abstained = verdict(status="abstained", best=None, label=None, probabilities=None, confidence=None, basis=None)
    assert compared(abstained, False, True) == abstained


def test_score_of_a_response_is_capped_although_another_has_none() -> None:
    abstained = verdict(status="abstained", best=None, label=None, scores=[9.0, None], probabilities=None, basis=None)
    results = [[result(False)], [result(True)]]
    found = gated(abstained, mode=Mode.POINTWISE, cards=[card(gate=CAP)], results=results)
    assert (found.status, found.scores, [gate.after for gate in found.gates]) == ("abstained", [3.0, None], [3.0])


def test_cap_does_nothing_in_a_comparison() -> None:
    assert compared(verdict(0), False, True, gate=CAP) == verdict(0)


def scored(*scores: float | None, best: int | None = None, label: str | None = None) -> Verdict:
    return verdict(best, scores=list(scores), label=label, status="decided", probabilities=[0.9] * len(scores))


def capped(given: Verdict, *passed: bool | None, gate: Gate = CAP) -> Verdict:
    return gated(given, mode=Mode.POINTWISE, cards=[card(gate=gate)], results=[[result(each)] for each in passed])


def test_score_is_capped() -> None:
    changed = capped(scored(8.4, label="8"), False)
    assert (changed.scores, changed.label, changed.reason, changed.basis) == ([3.0], "3", "rule", "checked")
    assert (changed.gates[0].effect, changed.gates[0].before, changed.gates[0].after) == ("cap", 8.4, 3.0)


def test_deciding_check_caps_a_score_at_1() -> None:
    assert capped(scored(8.4, label="8"), False, gate=DECIDES).scores == [1.0]
    assert capped(scored(8.4, label="8"), False, gate=Gate(cap=4.0, decides=True)).scores == [1.0]


def test_lower_score_is_not_raised() -> None:
    assert capped(scored(2.0, label="2"), False) == scored(2.0, label="2")


def test_best_of_capped_scores_wins() -> None:
    changed = capped(scored(8.0, 5.0, best=0, label="A"), False, True)
    assert (changed.best, changed.label, changed.reason, changed.basis) == (1, "B", "rule", "checked")
    tied = capped(scored(8.0, 3.0, best=0, label="A"), False, True)
    assert (tied.status, tied.best, tied.reason) == ("tie", None, "equal_scores")
    same = capped(scored(8.0, 5.0, best=0, label="A"), True, False)
    assert (same.best, same.scores, same.reason, same.basis) == (0, [8.0, 3.0], None, "reasoned")


def test_lowest_of_several_caps_holds() -> None:
    cards = [card("a", gate=CAP), card("b", gate=Gate(cap=2.0)), card("c", gate=None)]
    failed = [[result(False, each.name) for each in cards]]
    changed = gated(scored(9.0, label="9"), mode=Mode.POINTWISE, cards=cards, results=failed)
    assert changed.scores == [2.0]
    assert [(gate.check, gate.before, gate.after) for gate in changed.gates] == [("a", 9.0, 3.0), ("b", 3.0, 2.0)]


def test_confidence_of_an_overruled_model_does_not_count() -> None:
    request = JudgeRequest(mode=Mode.PAIRWISE, prompt="p", responses=["a", "b"], min_confidence=0.9, require="checked")
    assert held_to(request, verdict(0)).status == "abstained"
    assert held_to(request, compared(verdict(0), False, True)).best == 1


def test_rules_score_is_the_weighted_share_of_passed_checks() -> None:
    cards = [card("a", weight=2.0), card("b"), card("c", weight=5.0)]
    assert rules_score(cards, [result(True), result(False), result(None)]) == 7.0  # 1 + 9 x 2/3
    assert rules_score(cards, [result(None)] * 3) is None


@pytest.mark.parametrize("mode", list(Mode))
def test_highest_score_wins_without_a_model(mode: Mode) -> None:
    cards = [card("a", gate=None), card("b", gate=None)]
    decided = rules_verdict(mode=mode, cards=cards, results=[[result(True), result(False)], [result(True)] * 2])
    assert (decided.status, decided.best, decided.basis, decided.confidence) == ("decided", 1, "checked", 1.0)
    assert decided.scores == ([5.5, 10.0] if mode.scores_each else None)
    assert decided.probabilities == [0.0, 1.0]
    tied = rules_verdict(mode=mode, cards=cards, results=[[result(True)] * 2] * 2)
    assert (tied.status, tied.best, tied.reason) == ("tie", None, "equal_scores")
    assert tied.probabilities == ([1.0, 1.0] if mode.scores_each else [0.5, 0.5])


def test_rules_abstain_on_a_response_to_which_no_check_applies() -> None:
    skipped = rules_verdict(mode=Mode.RULES, cards=[card()], results=[[result(True)], [result(None)]])
    assert (skipped.status, skipped.reason, skipped.scores) == ("abstained", "no_check_applies", [10.0, None])


@pytest.mark.parametrize("orders", ["single", "both"])
@pytest.mark.parametrize("votes", [1, 3])
async def test_gate_decides_after_all_votes_and_orders(orders: Any, votes: int) -> None:
    engine = ScriptedEngine(
        lambda sequence: "<preference>A</preference>" if orders == "single" else "<preference>B</preference>",
        label_probs={"A": 0.6, "B": 0.4},
    )
    judge = Judge(engine=engine, checks=WordChecks(bad=DECIDES))
    request = JudgeRequest(
        mode=Mode.PAIRWISE, prompt="p", responses=["fine", "bad"], tools="off", orders=orders, votes=votes
    )
    for responses, good in ((["fine", "bad"], 0), (["bad", "fine"], 1)):
        judgment = await judge.judge(request.model_copy(update={"responses": responses}))
        assert judgment.verdict.best == good
        assert [[each.passed for each in row] for row in judgment.checks] == [[text == "fine"] for text in responses]


async def test_gate_changes_a_forced_verdict_which_stays_forced() -> None:
    engine = ScriptedEngine(["no verdict"], label_probs={"9": 0.9})
    judge = Judge(engine=engine, checks=WordChecks(bad=CAP))
    judgment = await judge.judge(JudgeRequest(mode=Mode.POINTWISE, prompt="p", responses=["bad"], tools="off"))
    assert judgment.verdict.forced
    assert judgment.verdict.scores == [3.0]


async def test_judgment_without_checks_is_as_before() -> None:
    judge = Judge(engine=ScriptedEngine(["<score>7</score>"], label_probs={"7": 0.9}))
    judgment = await judge.judge(JudgeRequest(mode=Mode.POINTWISE, prompt="p", responses=["bad"], tools="off"))
    assert {"checks"}.isdisjoint(judgment.model_dump(mode="json"))
    assert {"gates"}.isdisjoint(judgment.model_dump(mode="json")["verdict"])


async def test_failure_of_a_check_fails_the_judgment() -> None:
    judge = Judge(engine=ScriptedEngine(["<score>7</score>"]), checks=BrokenChecks(bad=CAP))
    for mode in (Mode.POINTWISE, Mode.RULES):
        with pytest.raises(SandboxUnavailable, match="the store is gone"):
            await judge.judge(JudgeRequest(mode=mode, prompt="p", responses=["bad"], tools="off"))


async def test_rules_mode_asks_no_model() -> None:
    engine = ScriptedEngine([])
    judge = Judge(engine=engine, checks=WordChecks(bad=None, ugly=None))
    judgment = await judge.judge(JudgeRequest(mode=Mode.RULES, prompt="p", responses=["fine", "bad", "bad ugly"]))
    assert judgment.verdict.scores == [10.0, 5.5, 1.0]
    assert (engine.calls, judgment.rollouts, judgment.usage.rollouts) == ([], [], 0)


async def test_rules_mode_needs_checks() -> None:
    with pytest.raises(ValueError, match="no checks"):
        await Judge(engine=ScriptedEngine([])).judge(JudgeRequest(mode=Mode.RULES, prompt="p", responses=["a"]))


def test_rewards_see_the_verdict_after_the_gates() -> None:
    assert compared(verdict(0), False, True).final_probabilities == [0.0, 1.0]
    tied = compared(verdict(0, probabilities=(0.6, 0.2, 0.2)), False, True, True)
    assert tied.final_probabilities == [0.0, 0.5, 0.5]
    assert capped(scored(8.0, 5.0, best=0, label="A"), False, True).final_probabilities == [0.0, 0.9]
    assert verdict(0).final_probabilities == [0.8, 0.2]
    displaced = compared(verdict(0, probabilities=(0.5, 0.1, 0.1, 0.3)), False, True, True, True)
    assert displaced.final_probabilities == pytest.approx([0.0, 0.2, 0.2, 0.6])
    impossible = compared(verdict(0, probabilities=(1.0, 0.0, 0.0)), False, True, True)
    assert impossible.final_probabilities == [0.0, 0.5, 0.5]


@pytest.mark.parametrize("best", [0, None])
def test_response_that_violates_is_behind_all_that_do_not(best: int | None) -> None:
    """The best response or the tie stays, but a ranking puts the response that fails last."""
    given = verdict(best, probabilities=(0.4, 0.4, 0.2))
    found = compared(given, True, False, True)
    assert found.model_copy(update={"gates": []}) == given
    assert [(gate.response, gate.before, gate.after) for gate in found.gates] == [(1, best, best)]
    assert found.final_probabilities == pytest.approx([2 / 3, 0.0, 1 / 3])


def test_record_that_names_only_the_displaced_response_keeps_its_best() -> None:
    displaced = compared(verdict(0, probabilities=(0.5, 0.3, 0.2)), False, False, True)
    older = displaced.model_copy(update={"gates": displaced.gates[:1]})
    assert older.final_probabilities == displaced.final_probabilities == [0.0, 0.0, 1.0]


async def test_benchmarks_see_the_verdict_after_the_gates() -> None:
    judge = Judge(
        engine=ScriptedEngine(lambda sequence: "<score>9</score>", label_probs={"9": 0.9}),
        checks=WordChecks(bad=CAP),
    )
    judgment = await judge.judge(
        JudgeRequest(mode=Mode.POINTWISE, prompt="p", responses=["bad", "fine"], tools="off", votes=2)
    )
    assert [decision.score for decision in decisions_of(judgment, asked=[0, 1])] == judgment.verdict.scores
    found = is_right(judgment, 1)
    assert found is not None
    assert found[1] == 1.0
