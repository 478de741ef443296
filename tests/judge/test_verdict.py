"""Rollouts are combined into a verdict. The expected values were computed manually."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirjudge.types import Completion, ExecResult, Mode, Outcome, Rollout, StopReason, ToolCall, Turn
from tirjudge.verdict import Vote, majority, pointwise_verdict, preference_verdict, rollout_verdict, votes_still_needed


def vote(
    order: tuple[int, ...], label: str | None, probs: dict[str, float], *, calls: int = 0, needs_program: bool = False
) -> Vote:
    completion = Completion(text="", token_ids=(), logprobs=(), finish_reason="stop")
    result = ExecResult(outcome=Outcome.OK)
    turn = Turn(completion=completion, call=ToolCall(tool="python", source="x"), result=result, output="")
    turns = (turn,) * calls
    rollout = Rollout(
        prompt_ids=(),
        turns=turns,
        stop_reason=StopReason.NO_VERDICT if label is None else StopReason.VERDICT,
        model="m",
        label=label,
        label_logprobs={name: math.log(p) for name, p in probs.items()},
    )
    return Vote(order=order, rollout=rollout, needs_program=needs_program)


def test_a_label_refers_to_the_response_shown_under_it() -> None:
    said = rollout_verdict(vote((1, 0), "A", {"A": 0.6, "B": 0.2}), mode=Mode.PAIRWISE)
    assert said is not None
    assert said.best == 1
    assert said.label_mass == pytest.approx(0.8)
    assert said.probabilities == pytest.approx({"A": 0.75, "B": 0.25})


def test_probabilities_follow_the_order_of_the_request() -> None:
    verdict = preference_verdict([vote((1, 0), "A", {"A": 0.6, "B": 0.2})], num_responses=2)
    assert (verdict.status, verdict.best, verdict.label) == ("decided", 1, "B")
    assert verdict.probabilities == pytest.approx([0.25, 0.75])
    assert verdict.label_mass == pytest.approx(0.8)
    assert verdict.confidence == pytest.approx(0.6)


def test_orders_that_disagree_are_a_tie() -> None:
    votes = [vote((0, 1), "A", {"A": 0.9, "B": 0.1}), vote((1, 0), "A", {"A": 0.7, "B": 0.3})]
    verdict = preference_verdict(votes, num_responses=2)
    assert (verdict.status, verdict.best, verdict.reason) == ("tie", None, "orders_disagree")
    assert verdict.probabilities == pytest.approx([0.6, 0.4])


def test_orders_that_agree_decide() -> None:
    votes = [vote((0, 1), "A", {"A": 0.9, "B": 0.1}), vote((1, 0), "B", {"A": 0.3, "B": 0.7})]
    verdict = preference_verdict(votes, num_responses=2)
    assert verdict.best == 0
    assert verdict.probabilities == pytest.approx([0.8, 0.2])


def test_the_majority_of_votes_decides_and_an_even_split_is_a_tie() -> None:
    a, b = vote((0, 1), "A", {"A": 0.6, "B": 0.4}), vote((0, 1), "B", {"A": 0.2, "B": 0.8})
    assert preference_verdict([a, a, b], num_responses=2).best == 0
    split = preference_verdict([a, b], num_responses=2)
    assert (split.status, split.reason) == ("tie", "votes_split")


def test_a_vote_without_a_verdict_is_excluded_from_every_mean() -> None:
    votes = [vote((0, 1), "A", {"A": 0.6, "B": 0.4}), vote((0, 1), None, {})]
    verdict = preference_verdict(votes, num_responses=2)
    assert verdict.best == 0
    assert verdict.probabilities == pytest.approx([0.6, 0.4])


def test_no_verdict_at_all_is_an_abstention_with_its_reason() -> None:
    verdict = preference_verdict([vote((0, 1), None, {})], num_responses=2)
    assert (verdict.status, verdict.best, verdict.probabilities, verdict.reason) == (
        "abstained",
        None,
        None,
        "no_verdict",
    )


def test_an_order_without_a_counted_vote_is_an_abstention_even_if_the_other_has_one() -> None:
    votes = [vote((0, 1), "A", {"A": 0.6, "B": 0.4}), vote((1, 0), None, {})]
    assert preference_verdict(votes, num_responses=2).status == "abstained"


def test_a_verdict_that_needs_a_program_does_not_count_without_one() -> None:
    probs = {"A": 0.6, "B": 0.4}
    assert (
        preference_verdict([vote((0, 1), "A", probs, needs_program=True)], num_responses=2).reason == "no_program_ran"
    )
    assert preference_verdict([vote((0, 1), "A", probs, needs_program=True, calls=1)], num_responses=2).best == 0


def scores(**p: float) -> dict[str, float]:
    return {str(s): p.get(f"s{s}", 1e-9) for s in range(1, 11)}


def test_a_score_is_the_expected_value_over_the_score_tokens() -> None:
    verdict = pointwise_verdict([vote((0,), "8", scores(s8=0.6, s4=0.2))], num_responses=1)
    assert verdict.scores == pytest.approx([7.0], abs=1e-6)
    assert verdict.probabilities == pytest.approx([0.75], abs=1e-6)
    assert (verdict.status, verdict.best, verdict.label) == ("decided", None, "8")
    assert verdict.confidence == pytest.approx(0.6, abs=1e-6)


def test_the_highest_score_is_best_and_equal_scores_are_a_tie() -> None:
    low, high = scores(s3=0.9), scores(s9=0.9)
    best = pointwise_verdict([vote((0,), "3", low), vote((1,), "9", high)], num_responses=2)
    assert (best.best, best.label) == (1, "B")
    tie = pointwise_verdict([vote((0,), "9", high), vote((1,), "9", high)], num_responses=2)
    assert (tie.status, tie.reason) == ("tie", "equal_scores")


def test_a_missing_score_is_an_abstention_and_known_scores_are_reported() -> None:
    verdict = pointwise_verdict([vote((0,), "9", scores(s9=0.9)), vote((1,), None, {})], num_responses=2)
    assert verdict.status == "abstained"
    assert verdict.scores is not None
    assert verdict.scores[1] is None


def test_majority_needs_a_strict_lead() -> None:
    assert majority([0, 0, 1]) == 0
    assert majority([0, 1]) is None
    assert majority([None, None]) is None


def test_votes_stop_as_soon_as_the_rest_cannot_change_the_outcome() -> None:
    assert votes_still_needed([], num_votes=5) == 3
    assert votes_still_needed([0, 0, 0], num_votes=5) == 0
    assert votes_still_needed([0, 0, 1], num_votes=5) == 1
    assert votes_still_needed([0, 1], num_votes=2) == 0
    assert votes_still_needed([0, None, None], num_votes=3) == 0


@given(st.lists(st.integers(0, 2) | st.none(), min_size=1, max_size=9))
def test_early_stop_never_changes_the_majority(choices: list[int | None]) -> None:
    cast: list[int | None] = []
    while needed := votes_still_needed(cast, num_votes=len(choices)):
        cast += choices[len(cast) : len(cast) + needed]
    assert majority(cast) == majority(choices)


def test_scores_that_differ_in_their_last_digits_are_equal() -> None:
    verdict = pointwise_verdict(
        [vote((0,), "9", scores(s9=0.9)), vote((1,), "9", scores(s9=0.9, s1=1.1e-9))], num_responses=2
    )
    assert verdict.reason == "equal_scores"


def test_a_split_in_each_order_is_reported_as_votes_split() -> None:
    there = [vote((0, 1), "A", {"A": 0.6, "B": 0.4}), vote((0, 1), "B", {"A": 0.4, "B": 0.6})]
    back = [vote((1, 0), "A", {"A": 0.6, "B": 0.4}), vote((1, 0), "B", {"A": 0.4, "B": 0.6})]
    assert preference_verdict([*there, *back], num_responses=2).reason == "votes_split"


def test_a_preference_without_model_probabilities_has_no_probabilities() -> None:
    verdict = preference_verdict([vote((1, 0), "A", {})], num_responses=2)
    assert (verdict.status, verdict.best) == ("decided", 1)
    assert (verdict.probabilities, verdict.confidence, verdict.label_mass) == (None, None, None)
    said = rollout_verdict(vote((1, 0), "A", {}), mode=Mode.PAIRWISE)
    assert said is not None
    assert (said.probabilities, said.label_mass) == ({}, None)


def test_one_vote_without_probabilities_removes_them_from_the_verdict() -> None:
    verdict = preference_verdict([vote((0, 1), "A", {"A": 0.9, "B": 0.1}), vote((0, 1), "A", {})], num_responses=2)
    assert (verdict.best, verdict.probabilities) == (0, None)


def test_scores_without_probabilities_are_as_the_judge_wrote_them() -> None:
    verdict = pointwise_verdict([vote((0,), "7", {}), vote((1,), "4", {}), vote((1,), "9", {})], num_responses=2)
    assert verdict.scores == [7.0, 6.5]
    assert (verdict.best, verdict.label) == (0, "A")
    assert (verdict.probabilities, verdict.confidence, verdict.label_mass) == (None, None, None)
