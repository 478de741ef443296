"""Rewards of rollouts with a few turns, compared with manually computed values."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirjudge.types import Completion, ExecResult, Mode, Outcome, Rollout, StopReason, Turn
from tirjudge_training.items import TrainingItem
from tirjudge_training.rewards import (
    RewardRule,
    RolloutReward,
    answers_of,
    consistent_with,
    evidence_agrees,
    pseudo_rewards,
    ranked_highest,
    rewards_of,
    verified_of,
    verified_vote,
)

PAIR = TrainingItem(
    id="p",
    mode=Mode.PAIRWISE,
    prompt="?",
    responses=("good", "bad"),
    best=0,
    task="math",
    source="hand",
    verifiable=True,
    order=(1, 0),
)
"""An item whose bad response is shown as A and whose good response is shown as B. So the right verdict is B."""
SHOWN = (1, 0)
SCORED = replace(PAIR, id="s", mode=Mode.POINTWISE)
CHAT = replace(PAIR, id="c", task="safety", verifiable=False)

OK, ERROR = Outcome.OK, Outcome.ERROR


def rollout(
    label: str | None,
    *outcomes: Outcome,
    stop: StopReason | None = None,
    output: str = "",
    forced: bool = False,
) -> Rollout:
    """A rollout with one program per outcome, followed by a verdict with the label."""
    completion = Completion(text="x", token_ids=(1,), logprobs=(-0.5,), finish_reason="stop")
    calls = [Turn(completion=completion, result=ExecResult(outcome=o, stdout=output), output=output) for o in outcomes]
    stop = stop or (StopReason.NO_VERDICT if label is None else StopReason.VERDICT)
    return Rollout(
        prompt_ids=(0,),
        turns=(*calls, Turn(completion=completion)),
        stop_reason=stop,
        model="m",
        label=label,
        forced_ids=(9,) if forced else (),
    )


def totals(item: TrainingItem, group: Sequence[Rollout], **rule: object) -> list[float]:
    found = rewards_of(item, {item.order: group}, rule=RewardRule.model_validate(rule))
    return [reward.total for reward in found[item.order]]


CASES = [
    # rollout                                                  Rc     Rf     Rt     R
    (rollout("B"), 1.0, True, True, 1.0),
    (rollout("B", OK, OK, OK), 1.0, True, True, 1.0),
    (rollout("B", OK, ERROR), 1.0, True, False, 0.1),
    (rollout("B", Outcome.REFUSED), 1.0, True, False, 0.1),
    (rollout("B", OK, OK, OK, OK), 1.0, True, False, 0.1),
    (rollout("A", OK), 0.0, True, True, 0.0),
    (rollout(None, OK), 0.0, False, True, 0.0),
    (rollout(None, OK, OK, OK, stop=StopReason.TOOL_BUDGET), 0.0, False, False, 0.0),
    (rollout("B", stop=StopReason.LENGTH, forced=True), 0.0, False, True, 0.0),
    (rollout(None, stop=StopReason.MALFORMED), 0.0, False, True, 0.0),
]


@pytest.mark.parametrize(("done", "correct", "form", "tool", "total"), CASES)
def test_tir_reward_matches_manual_values(done: Rollout, correct: float, form: bool, tool: bool, total: float) -> None:
    (reward,) = rewards_of(PAIR, {SHOWN: [done]}, rule=RewardRule())[SHOWN]
    assert reward == RolloutReward(total=total, correct=correct, format=form, tool=tool)


def test_program_breaks_the_format_of_unverifiable_items() -> None:
    assert totals(CHAT, [rollout("B"), rollout("B", OK), rollout("A")]) == [1.0, 0.1, 0.0]
    assert totals(CHAT, [rollout("B"), rollout("B", OK), rollout("A")], no_tool_rule=False) == [1.0, 1.0, 0.0]


def test_each_switch_disables_its_part_of_the_reward() -> None:
    failed, four, called = rollout("B", ERROR), rollout("B", OK, OK, OK, OK), rollout("B", OK)
    assert totals(PAIR, [failed, four], tool=False) == [1.0, 1.0]
    assert totals(PAIR, [failed, four], format=False) == [0.1, 0.1]
    assert totals(CHAT, [called], format=False) == [1.0]
    assert totals(PAIR, [called, four], max_calls=0) == [0.1, 0.1]


def test_listwise_labels_refer_to_the_order_shown() -> None:
    item = replace(PAIR, mode=Mode.LISTWISE, responses=("w", "x", "y"), best=2, order=(1, 2, 0))
    # A is response 1, B is response 2 (the right one), C is response 0
    assert totals(item, [rollout("A"), rollout("B"), rollout("C")]) == [0.0, 1.0, 0.0]


def test_pointwise_pairs_share_correctness_and_ties_get_zero() -> None:
    good = [rollout("8"), rollout("5"), rollout("3"), rollout(None), rollout("9", ERROR)]
    bad = [rollout("4"), rollout("5"), rollout("6"), rollout("1"), rollout("2")]
    found = rewards_of(SCORED, {(0,): good, (1,): bad}, rule=RewardRule())
    # 8 > 4 right; 5 = 5 tie; 3 < 6 wrong; no score; 9 > 2 right, but a program of the good response failed
    assert [reward.correct for reward in found[(0,)]] == [1, 0, 0, 0, 1]
    assert [reward.correct for reward in found[(1,)]] == [1, 0, 0, 0, 1]
    assert [reward.total for reward in found[(0,)]] == [1, 0, 0, 0, 0.1]
    assert [reward.total for reward in found[(1,)]] == [1, 0, 0, 0, 1]


def test_scores_are_compared_as_numbers() -> None:
    found = rewards_of(SCORED, {(0,): [rollout("10")], (1,): [rollout("9")]}, rule=RewardRule())
    assert found[(0,)][0].correct == 1


def test_cross_credit_is_the_share_of_beaten_rollouts() -> None:
    good, bad = [rollout("8"), rollout("5")], [rollout("4"), rollout("6"), rollout("8")]
    found = rewards_of(SCORED, {(0,): good, (1,): bad}, rule=RewardRule(pair_credit="cross"))
    # 8 beats 4 and 6, but not 8: 2/3. 5 beats only 4: 1/3. 4 loses to both: 2/2. 6 loses only to 8: 1/2. 8 loses to none: 0.
    assert [reward.correct for reward in found[(0,)]] == pytest.approx([2 / 3, 1 / 3])
    assert [reward.correct for reward in found[(1,)]] == pytest.approx([1, 1 / 2, 0])
    assert [reward.total for reward in found[(0,)]] == pytest.approx([2 / 3, 1 / 3])


def test_artist_reward_adds_answer_format_and_tool_parts() -> None:
    group = [
        rollout("B", OK, ERROR),  # 1 + 1 + 1/2
        rollout("A", OK),  # 0 + 1 + 1
        rollout("B"),  # 1 + 1 + 0
        rollout(None, OK, OK, OK, stop=StopReason.TOOL_BUDGET),  # 0 + 0 + 3/4: the call beyond the budget failed
    ]
    assert totals(PAIR, group, kind="artist") == [2.5, 2.0, 2.0, 0.75]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({(0, 1): [rollout("A")]}, "its prompts are"),
        ({(0,): [rollout("A")]}, "its prompts are"),
    ],
)
def test_groups_of_other_prompts_are_rejected(groups: dict[tuple[int, ...], list[Rollout]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rewards_of(PAIR, groups, rule=RewardRule())


def test_missing_label_and_unequal_groups_are_rejected() -> None:
    with pytest.raises(ValueError, match="use pseudo-labels"):
        rewards_of(replace(PAIR, best=None), {SHOWN: [rollout("A")]}, rule=RewardRule())
    with pytest.raises(ValueError, match="must have the same size"):
        rewards_of(SCORED, {(0,): [rollout("8")], (1,): []}, rule=RewardRule())
    with pytest.raises(ValueError, match="extra"):
        RewardRule.model_validate({"fromat": False})


LABELS = st.sampled_from(["A", "B", None])
OUTCOMES = st.lists(st.sampled_from(list(Outcome)), max_size=5)


@given(LABELS, OUTCOMES, st.booleans(), st.sampled_from(list(StopReason)))
def test_binary_answer_has_reward_0_or_a_tenth_or_1(
    label: str | None, outcomes: list[Outcome], verifiable: bool, stop: StopReason
) -> None:
    item = replace(PAIR, verifiable=verifiable)
    (reward,) = rewards_of(item, {SHOWN: [rollout(label, *outcomes, stop=stop)]}, rule=RewardRule())[SHOWN]
    assert reward.total in (0.0, 0.1, 1.0)
    assert (reward.total > 0) == (reward.correct == 1) == (label == "B")
    assert (reward.total == 1) == (reward.correct == 1 and reward.format and reward.tool)


SCORES = st.lists(st.sampled_from([*map(str, range(1, 11)), None]), min_size=4, max_size=4)


@given(SCORES, SCORES)
def test_cross_credits_have_equal_sums_and_index_credit_compares_equal_numbers(
    above: list[str | None], below: list[str | None]
) -> None:
    groups = {(0,): [rollout(label) for label in above], (1,): [rollout(label) for label in below]}
    cross = rewards_of(SCORED, groups, rule=RewardRule(pair_credit="cross"))
    sums = [sum(reward.correct for reward in group) for group in cross.values()]
    assert sums[0] == pytest.approx(sums[1])
    index = rewards_of(SCORED, groups, rule=RewardRule())
    expected = [float(a is not None and b is not None and int(a) > int(b)) for a, b in zip(above, below, strict=True)]
    assert [reward.correct for reward in index[(0,)]] == expected


# T3RL


def test_one_verified_answer_outweighs_a_majority() -> None:
    vote = verified_vote([0, 0, 1, None], [False, False, True, False], weight=4.0)
    # weight of answer 0: 1 + 1 = 2; weight of answer 1: 4; verified weight: 4 of 6
    assert (vote.label, vote.tied, vote.verified_mass) == (1, False, pytest.approx(4 / 6))
    assert (vote.num_answers, vote.num_verified) == (3, 1)
    plain = verified_vote([0, 0, 1, None], [False, False, True, False], weight=1.0)
    assert (plain.label, plain.verified_mass) == (0, pytest.approx(1 / 3))


def test_tied_vote_has_the_lowest_index_and_is_not_trusted() -> None:
    vote = verified_vote([1, 0], [True, True], weight=2.0)
    assert (vote.label, vote.tied, vote.verified_mass) == (0, True, 1.0)
    assert not vote.is_trusted(min_verified_mass=0.0)


def test_vote_with_too_little_verified_weight_is_not_trusted() -> None:
    vote = verified_vote([0, 0, 0, 1], [True, False, False, False], weight=2.0)  # 2 of 5
    assert vote.is_trusted(min_verified_mass=0.4)
    assert not vote.is_trusted(min_verified_mass=0.41)
    assert not verified_vote([None], [True], weight=1.0).is_trusted(min_verified_mass=0.0)
    with pytest.raises(ValueError, match=r"weight: .* got 0"):
        verified_vote([0], [True], weight=0)


def test_pseudo_rewards_use_the_vote_and_not_the_label() -> None:
    group = [rollout("A"), rollout("B", ERROR), rollout("A", ERROR), rollout(None)]
    vote = verified_vote([1, 0, 1, None], [False] * 4, weight=1.0)
    assert vote.label == 1  # shown as A; the label of the item is B
    found = pseudo_rewards(PAIR, {SHOWN: group}, vote=vote)[SHOWN]
    assert [reward.total for reward in found] == [1.0, 0.0, 1.0, 0.0]
    with pytest.raises(ValueError, match="the vote has no label"):
        pseudo_rewards(PAIR, {SHOWN: [rollout(None)]}, vote=verified_vote([None], [False], weight=1.0))


@pytest.mark.parametrize(
    ("output", "named"),
    [
        ("A 0 0 1\nB 1 0 1\nbest B\n", {"B"}),
        ("A 1/2\nB 2/2", {"B"}),
        ("A 1/2\nB 1/4\nC 3/6", {"A", "C"}),
        ("A: 3\nB: 4.5", {"B"}),
        ("A 1 1 0\nB 0 1 0", {"A"}),
        ("best A B", {"A", "B"}),
        ("A 7", None),
        ("the answer is 7", None),
        ("", None),
    ],
)
def test_ranking_output_yields_the_highest_labels(output: str, named: set[str] | None) -> None:
    assert ranked_highest(output, offered=("A", "B", "C")) == named


def test_answer_is_verified_if_the_last_successful_output_agrees() -> None:
    def agrees(done: Rollout) -> bool:
        return evidence_agrees(done, mode=Mode.PAIRWISE, num_shown=2)

    assert agrees(rollout("B", OK, output="A 0\nB 1\nbest B"))
    assert not agrees(rollout("A", OK, output="A 0\nB 1\nbest B"))
    assert not agrees(rollout("B", OK, output="best A B")), "the output names all labels"
    assert agrees(rollout("A", OK, output="hello")), "the output has no ranking, and a program ran"
    assert not agrees(rollout("B", ERROR, output="best B"))
    assert not agrees(rollout("B"))
    assert agrees(rollout("B", OK, ERROR, output="best B")), "the last successful program counts"
    scored = rollout("7", OK, output="1 0 1\nscore 7")
    assert evidence_agrees(scored, mode=Mode.POINTWISE, num_shown=1)
    assert not evidence_agrees(replace(scored, label="8"), mode=Mode.POINTWISE, num_shown=1)


def test_pointwise_answer_is_the_response_with_the_higher_score() -> None:
    ran = rollout("8", OK, output="score 8")
    groups = {
        (0,): [ran, rollout("3"), rollout("5"), rollout(None)],
        (1,): [ran, rollout("4"), rollout("2"), rollout("1")],
    }
    assert answers_of(SCORED, groups) == [None, 1, 0, None]
    assert verified_of(SCORED, groups) == [True, False, False, False]
    assert answers_of(PAIR, {SHOWN: [rollout("A"), rollout("B"), rollout(None)]}) == [1, 0, None]


def test_answer_is_consistent_if_the_opposite_order_agrees() -> None:
    assert consistent_with([0, 1, None], [0, 0, 1]) == [True, False, False]
    assert consistent_with([0, 1], [0, 1]) == [False, False]  # a tie has no majority
