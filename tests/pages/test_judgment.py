"""The page of a judgment: what it shows of verdicts, orders, votes and turns, and its bounds."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.judgments import build_judgment, build_rollout, build_rollout_verdict, build_turn, build_verdict
from tirjudge.types import Mode, Outcome
from tirjudge_pages import FILE_POLICY, PageFrame, render_page
from tirjudge_pages.judgment import MAX_TURNS, JudgmentView, TurnView

REQUEST = {"prompt": "Which is longer?", "responses": ["a big dog", "a dog"]}


def vote(best: int, order: list[int], probability: float = 0.8) -> Any:
    label = "AB"[order.index(best)]
    other = "BA"[order.index(best)]
    chances = {label: probability, other: 1 - probability}
    return build_rollout(order, verdict=build_rollout_verdict(label, best=best, probabilities=chances))


def page_of(view: JudgmentView) -> str:
    return render_page("judgment", frame=PageFrame(is_file=True), view=view, live=None)


def test_orders_have_their_votes_and_the_flip() -> None:
    rollouts = [vote(0, [0, 1]), vote(0, [0, 1]), vote(1, [0, 1]), vote(1, [1, 0])]
    verdict = build_verdict(best=0, label="A", probabilities=[0.6, 0.4])
    view = JudgmentView(build_judgment(verdict, rollouts=rollouts), request=REQUEST)
    assert [(order.shown, order.choice, order.num_votes, order.is_other) for order in view.orders] == [
        ((0, 1), 0, 3, False),
        ((1, 0), 1, 1, True),
    ]
    assert view.flipped
    assert page_of(view).count("flipped</span>") == 2


@pytest.mark.parametrize(
    ("verdict", "mode", "headline"),
    [
        (build_verdict(best=1, label="B"), Mode.PAIRWISE, "Response B is better"),
        (build_verdict(status="tie"), Mode.PAIRWISE, "Tie"),
        (build_verdict(status="abstained"), Mode.PAIRWISE, "No verdict"),
        (build_verdict(label="7", scores=[7.0]), Mode.POINTWISE, "Score 7"),
    ],
)
def test_the_headline_names_the_verdict(verdict: Any, mode: Mode, headline: str) -> None:
    view = JudgmentView(build_judgment(verdict, mode=mode, rollouts=[]), request=REQUEST)
    assert view.headline == headline
    assert headline in page_of(view)


def test_scores_have_the_mean_distribution_of_the_votes() -> None:
    chances = [{"7": 0.5, "10": 0.5}, {"7": 1.0}]
    rollouts = [
        build_rollout([0], verdict=build_rollout_verdict("7", score=7.0, probabilities=each)) for each in chances
    ]
    judgment = build_judgment(build_verdict(label="7", scores=[7.75]), mode=Mode.POINTWISE, rollouts=rollouts)
    view = JudgmentView(judgment, request={"responses": ["a"]})
    assert [(bar.label, bar.value) for bar in view.bars] == [("7", 0.75), ("10", 0.25)]


def test_the_program_of_a_turn_is_shown_once() -> None:
    turn = build_turn(Outcome.OK, text="I count.\n```python\nprint(5)\n```\n```output", code="print(5)\n", output="5")
    view = TurnView(turn=turn, rollout=0, index=0)
    assert view.reasoning == "I count."
    assert "".join(piece.text for piece in view.program) == "print(5)\n"
    other = build_turn(Outcome.OK, text="```python\nprint(6)\n```", code="print(5)\n", output="5")
    assert "print(6)" in TurnView(turn=other, rollout=0, index=0).reasoning


def test_the_timeline_is_bounded_and_says_so() -> None:
    rollout = build_rollout([0, 1], verdict=None, turns=[build_turn(text="t")] * (MAX_TURNS + 5))
    view = JudgmentView(build_judgment(build_verdict(status="abstained"), rollouts=[rollout, rollout]), request={})
    assert view.num_turns_left_out == MAX_TURNS + 10
    assert f"{MAX_TURNS + 10} more turns are not shown" in page_of(view)


def test_a_judgment_without_texts_says_so() -> None:
    page = page_of(JudgmentView(build_judgment(build_verdict(status="tie"), rollouts=[]), request={}))
    assert "The prompt is not known" in page
    assert "The responses are not known" in page


def test_a_file_needs_no_other_file_and_no_server() -> None:
    page = page_of(JudgmentView(build_judgment(build_verdict(status="tie"), rollouts=[]), request=REQUEST))
    assert re.findall(r'(?:src|href)="([^"#]*)[^"]*"', page.replace('href="#content"', "")) == ["data:,"]
    assert FILE_POLICY.count("sha256-") == 2
    assert "<form" not in page


def test_turns_show_their_tokens_and_durations() -> None:
    turn = build_turn(Outcome.OK, code="print(5)\n", output="5")
    timed = turn.model_copy(update={"num_tokens": 34, "engine_ms": 1250.0, "tool_ms": 12.0})
    rollout = build_rollout([0, 1], verdict=build_rollout_verdict("A", best=0), turns=[timed, turn])
    page = page_of(JudgmentView(build_judgment(build_verdict(best=0), rollouts=[rollout]), request=REQUEST))
    assert page.count("34 tokens, 1,250 ms") == 1
    assert page.count("Output, 12 ms") == 1
    assert page.count(">Output<") == 1


def test_responses_have_the_letters_of_their_item() -> None:
    """The judgment is about the responses C and A of an item."""
    rollout = build_rollout([1, 0], verdict=build_rollout_verdict("A", best=1))
    judgment = build_judgment(build_verdict(best=1, probabilities=[0.2, 0.8]), rollouts=[rollout])
    view = JudgmentView(judgment, request={}, responses=(2, 0), id="item-3-")
    assert (view.headline, view.names([0, 1, 2])) == ("Response A is better", "C, A, ?")
    assert [bar.label for bar in view.bars] == ["Response C", "Response A"]
    page = page_of(view)
    assert "Shown in the order A, C" in page
    assert 'href="#item-3-rollout-0"' in page
    assert 'id="item-3-rollout-0"' in page
