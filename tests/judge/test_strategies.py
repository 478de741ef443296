"""Who meets whom and what each gets out of it; numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.judgments import build_judgment, build_verdict
from tirjudge.errors import EngineUnavailable
from tirjudge.strategies import STRATEGIES, names_of_strategies
from tirjudge.strategies.base import Contest, RankedResult, chances, rank
from tirjudge.strategies.pairs import all_pairs, neighbours
from tirjudge.types import Judgment, Mode

STRENGTHS = {"weak": 1.0, "fair": 3.0, "good": 4.0, "best": 12.0}


class Meetings:
    """Decides by strength: P(a beats b) = a / (a + b). What holds `never` is not decided, what holds `down` fails."""

    def __init__(self, responses: Sequence[str]) -> None:
        self.responses = responses
        self.met: list[tuple[int, ...]] = []

    async def __call__(self, mode: Mode, indexes: Sequence[int]) -> Judgment | Exception:
        self.met.append(tuple(indexes))
        texts = [self.responses[index] for index in indexes]
        if any("down" in text for text in texts):
            return EngineUnavailable("down")
        strengths = [STRENGTHS.get(text, 1.0) for text in texts]
        is_decided = not any("never" in text for text in texts)
        return judgment([s / sum(strengths) for s in strengths] if is_decided else None)


def judgment(probabilities: list[float] | None) -> Judgment:
    if probabilities is None:
        return build_judgment(build_verdict("abstained", reason="no_verdict"))
    return build_judgment(build_verdict(probabilities=probabilities))


COMPARING = names_of_strategies(fits=lambda strategy: strategy.compares)


async def ranked(meetings: Meetings, strategy: str, *, group_size: int | None = None) -> list[RankedResult]:
    contest = Contest(responses=(), ask=meetings, group_size=group_size)
    return await rank(STRATEGIES[strategy], meetings.responses, contest=contest)


async def rewards(responses: list[str], strategy: str) -> tuple[list[float | None], Meetings]:
    meetings = Meetings(responses)
    return [result.score for result in await ranked(meetings, strategy)], meetings


async def test_all_pairs_gives_the_mean_chance_against_everybody() -> None:
    given, meetings = await rewards(["weak", "fair", "best"], "all_pairs")
    assert given == pytest.approx([(1 / 4 + 1 / 13) / 2, (3 / 4 + 3 / 15) / 2, (12 / 13 + 12 / 15) / 2])
    assert sorted(meetings.met) == [(0, 1), (0, 2), (1, 2)]


async def test_circular_meets_two_neighbours_each() -> None:
    given, meetings = await rewards(["weak", "fair", "good", "best"], "circular")
    assert given == pytest.approx(
        [(1 / 4 + 1 / 13) / 2, (3 / 4 + 3 / 7) / 2, (4 / 7 + 4 / 16) / 2, (12 / 16 + 12 / 13) / 2]
    )
    assert sorted(meetings.met) == [(0, 1), (1, 2), (2, 3), (3, 0)]


async def test_knockout_gives_the_share_of_rounds_survived() -> None:
    given, meetings = await rewards(["weak", "fair", "good", "best"], "knockout")
    assert given[3] == 1.0
    assert sorted(reward or 0.0 for reward in given[:3]) == [0.0, 0.0, 0.5]
    assert len(meetings.met) == 3


async def test_knockout_of_three_lets_the_odd_one_go_on_unmet() -> None:
    given, meetings = await rewards(["weak", "fair", "best"], "knockout")
    assert given[2] == 1.0
    assert len(meetings.met) == 2


@pytest.mark.parametrize("num_responses", range(2, 34))
async def test_nobody_goes_on_unmet_twice_in_a_knockout(num_responses: int) -> None:
    found = await ranked(Meetings([f"r{n}" for n in range(num_responses)]), "knockout")
    num_rounds = (num_responses - 1).bit_length()
    (winner,) = [standing for standing in found if standing.score == 1.0]
    assert len(winner.comparisons) >= num_rounds - 1
    assert all(len(standing.comparisons) >= standing.num_survived for standing in found if standing is not winner)


async def test_listwise_gives_the_chance_to_be_the_best() -> None:
    given, meetings = await rewards(["weak", "fair", "best"], "listwise")
    assert given == pytest.approx([1 / 16, 3 / 16, 12 / 16])
    assert meetings.met == [(0, 1, 2)]


async def test_two_meet_once() -> None:
    for strategy in ("circular", "all_pairs", "knockout"):
        _, meetings = await rewards(["weak", "best"], strategy)
        assert len(meetings.met) == 1, strategy


async def test_equal_texts_are_one_contestant() -> None:
    given, meetings = await rewards(["weak", "best", "weak"], "all_pairs")
    assert given == pytest.approx([1 / 13, 12 / 13, 1 / 13])
    assert meetings.met == [(0, 1)]


async def test_nobody_meets_where_all_are_equal() -> None:
    for strategy in COMPARING:
        given, meetings = await rewards(["fair", "fair"], strategy)
        assert given == [0.5, 0.5]
        assert meetings.met == []


async def test_a_comparison_that_was_not_decided_counts_for_neither_side() -> None:
    given, _ = await rewards(["weak", "never", "best"], "all_pairs")
    assert given == [pytest.approx(1 / 13), None, pytest.approx(12 / 13)]


async def test_in_a_knockout_neither_side_goes_on_from_what_was_not_decided() -> None:
    given, _ = await rewards(["down", "never", "weak", "best"], "knockout")
    assert given[:2] == [None, None]
    assert given.count(1.0) <= 1


async def test_a_failed_list_leaves_everybody_without_a_reward() -> None:
    given, _ = await rewards(["weak", "down", "best"], "listwise")
    assert given == [None, None, None]


def test_pairs_name_each_comparison_once() -> None:
    assert list(neighbours(3)) == [(0, 1), (1, 2), (2, 0)]
    assert list(neighbours(2)) == [(0, 1)]
    assert len(list(all_pairs(16))) == 120


@settings(max_examples=100, deadline=None)
@given(
    texts=st.lists(st.sampled_from([*STRENGTHS, "never", "down", "other", "x", "y"]), min_size=1, max_size=9),
    strategy=st.sampled_from(COMPARING),
)
async def test_rewards_lie_between_0_and_1_and_depend_on_the_text_alone(texts: list[str], strategy: str) -> None:
    found, meetings = await rewards(texts, strategy)
    assert all(reward is None or 0.0 <= reward <= 1.0 for reward in found)
    for text in set(texts):
        own = [reward for other, reward in zip(texts, found, strict=True) if other == text]
        assert own == [own[0]] * len(own)
    limit = {"listwise": 1, "knockout": len(texts) - 1, "circular": len(texts)}
    assert len(meetings.met) <= limit.get(strategy, len(texts) * (len(texts) - 1) // 2)


async def test_a_knockout_is_drawn_by_content_not_by_order() -> None:
    texts = [*STRENGTHS, "x", "y", "z"]
    forward, _ = await rewards(texts, "knockout")
    backward, _ = await rewards(texts[::-1], "knockout")
    assert forward == backward[::-1]


def test_a_standing_without_a_meeting_has_no_reward() -> None:
    assert RankedResult().score is None


async def test_groups_give_the_rounds_survived_and_the_chance_in_the_last() -> None:
    responses = ["weak", "fair", "good", "best"]
    meetings = Meetings(responses)
    found = await ranked(meetings, "listwise", group_size=2)
    assert len(meetings.met) == 3
    (first, second), final = meetings.met[:2], meetings.met[2]
    strength = [STRENGTHS[text] for text in responses]
    for group in (first, second):
        loser = min(group, key=lambda index: strength[index])
        assert found[loser].score == pytest.approx(strength[loser] / sum(strength[i] for i in group) / 2)
    for index in final:
        assert found[index].score == pytest.approx((1 + strength[index] / sum(strength[i] for i in final)) / 2)
    assert sorted(standing.num_survived for standing in found) == [0, 0, 1, 2]


def test_chances_without_probabilities_are_the_judges_word() -> None:
    said = judgment([0.5, 0.5])
    named = said.model_copy(update={"verdict": said.verdict.model_copy(update={"probabilities": None, "best": 1})})
    tied = said.model_copy(update={"verdict": said.verdict.model_copy(update={"probabilities": None, "status": "tie"})})
    assert chances(named, num_compared=2) == [0.0, 1.0]
    assert chances(tied, num_compared=4) == [0.25] * 4
    assert chances(judgment(None), num_compared=2) is None
    assert chances(EngineUnavailable("down"), num_compared=2) is None
