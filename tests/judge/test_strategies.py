"""Which responses each strategy compares, and their scores. The expected values were computed manually."""

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


class StrengthJudge:
    """Decides by strength: P(a beats b) = a / (a + b). A comparison with `never` is undecided, one with `down` fails."""

    def __init__(self, responses: Sequence[str]) -> None:
        self.responses = responses
        self.compared: list[tuple[int, ...]] = []
        """Indexes of the responses in each comparison."""

    async def __call__(self, mode: Mode, indexes: Sequence[int]) -> Judgment | Exception:
        self.compared.append(tuple(indexes))
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


async def ranked(judge: StrengthJudge, strategy: str, *, group_size: int | None = None) -> list[RankedResult]:
    contest = Contest(responses=(), ask=judge, group_size=group_size)
    return await rank(STRATEGIES[strategy], judge.responses, contest=contest)


async def rewards(responses: list[str], strategy: str) -> tuple[list[float | None], StrengthJudge]:
    judge = StrengthJudge(responses)
    return [result.score for result in await ranked(judge, strategy)], judge


async def test_all_pairs_scores_the_mean_probability_over_all_opponents() -> None:
    given, judge = await rewards(["weak", "fair", "best"], "all_pairs")
    assert given == pytest.approx([(1 / 4 + 1 / 13) / 2, (3 / 4 + 3 / 15) / 2, (12 / 13 + 12 / 15) / 2])
    assert sorted(judge.compared) == [(0, 1), (0, 2), (1, 2)]


async def test_circular_compares_each_response_with_two_neighbors() -> None:
    given, judge = await rewards(["weak", "fair", "good", "best"], "circular")
    assert given == pytest.approx(
        [(1 / 4 + 1 / 13) / 2, (3 / 4 + 3 / 7) / 2, (4 / 7 + 4 / 16) / 2, (12 / 16 + 12 / 13) / 2]
    )
    assert sorted(judge.compared) == [(0, 1), (1, 2), (2, 3), (3, 0)]


async def test_knockout_scores_the_share_of_rounds_survived() -> None:
    given, judge = await rewards(["weak", "fair", "good", "best"], "knockout")
    assert given[3] == 1.0
    assert sorted(reward or 0.0 for reward in given[:3]) == [0.0, 0.0, 0.5]
    assert len(judge.compared) == 3


async def test_knockout_of_three_has_one_bye() -> None:
    given, judge = await rewards(["weak", "fair", "best"], "knockout")
    assert given[2] == 1.0
    assert len(judge.compared) == 2


@pytest.mark.parametrize("num_responses", range(2, 34))
async def test_no_response_has_two_byes_in_a_knockout(num_responses: int) -> None:
    found = await ranked(StrengthJudge([f"r{n}" for n in range(num_responses)]), "knockout")
    num_rounds = (num_responses - 1).bit_length()
    (winner,) = [result for result in found if result.score == 1.0]
    assert len(winner.comparisons) >= num_rounds - 1
    assert all(len(result.comparisons) >= result.num_survived for result in found if result is not winner)


async def test_listwise_scores_the_probability_of_being_the_best() -> None:
    given, judge = await rewards(["weak", "fair", "best"], "listwise")
    assert given == pytest.approx([1 / 16, 3 / 16, 12 / 16])
    assert judge.compared == [(0, 1, 2)]


async def test_two_responses_are_compared_once() -> None:
    for strategy in ("circular", "all_pairs", "knockout"):
        _, judge = await rewards(["weak", "best"], strategy)
        assert len(judge.compared) == 1, strategy


async def test_identical_responses_compete_as_one() -> None:
    given, judge = await rewards(["weak", "best", "weak"], "all_pairs")
    assert given == pytest.approx([1 / 13, 12 / 13, 1 / 13])
    assert judge.compared == [(0, 1)]


async def test_equal_responses_are_not_compared() -> None:
    for strategy in COMPARING:
        given, judge = await rewards(["fair", "fair"], strategy)
        assert given == [0.5, 0.5]
        assert judge.compared == []


async def test_an_undecided_comparison_counts_for_neither_side() -> None:
    given, _ = await rewards(["weak", "never", "best"], "all_pairs")
    assert given == [pytest.approx(1 / 13), None, pytest.approx(12 / 13)]


async def test_an_undecided_comparison_eliminates_both_sides_of_a_knockout() -> None:
    given, _ = await rewards(["down", "never", "weak", "best"], "knockout")
    assert given[:2] == [None, None]
    assert given.count(1.0) <= 1


async def test_a_failed_list_leaves_all_responses_without_a_score() -> None:
    given, _ = await rewards(["weak", "down", "best"], "listwise")
    assert given == [None, None, None]


def test_each_pair_is_listed_once() -> None:
    assert list(neighbours(3)) == [(0, 1), (1, 2), (2, 0)]
    assert list(neighbours(2)) == [(0, 1)]
    assert len(list(all_pairs(16))) == 120


@settings(max_examples=50, deadline=None)
@given(
    texts=st.lists(st.sampled_from([*STRENGTHS, "never", "down", "other", "x", "y"]), min_size=1, max_size=9),
    strategy=st.sampled_from(COMPARING),
)
async def test_scores_are_between_0_and_1_and_equal_for_identical_responses(texts: list[str], strategy: str) -> None:
    found, judge = await rewards(texts, strategy)
    assert all(reward is None or 0.0 <= reward <= 1.0 for reward in found)
    for text in set(texts):
        own = [reward for other, reward in zip(texts, found, strict=True) if other == text]
        assert own == [own[0]] * len(own)
    limit = {"listwise": 1, "knockout": len(texts) - 1, "circular": len(texts)}
    assert len(judge.compared) <= limit.get(strategy, len(texts) * (len(texts) - 1) // 2)


async def test_the_draw_of_a_knockout_does_not_depend_on_the_order_of_responses() -> None:
    texts = [*STRENGTHS, "x", "y", "z"]
    forward, _ = await rewards(texts, "knockout")
    backward, _ = await rewards(texts[::-1], "knockout")
    assert forward == backward[::-1]


def test_a_result_without_comparisons_has_no_score() -> None:
    assert RankedResult().score is None


async def test_groups_score_rounds_survived_and_the_probability_in_the_last_round() -> None:
    responses = ["weak", "fair", "good", "best"]
    judge = StrengthJudge(responses)
    found = await ranked(judge, "listwise", group_size=2)
    assert len(judge.compared) == 3
    (first, second), final = judge.compared[:2], judge.compared[2]
    strength = [STRENGTHS[text] for text in responses]
    for group in (first, second):
        loser = min(group, key=lambda index: strength[index])
        assert found[loser].score == pytest.approx(strength[loser] / sum(strength[i] for i in group) / 2)
    for index in final:
        assert found[index].score == pytest.approx((1 + strength[index] / sum(strength[i] for i in final)) / 2)
    assert sorted(result.num_survived for result in found) == [0, 0, 1, 2]


def test_chances_without_probabilities_follow_the_chosen_response() -> None:
    said = judgment([0.5, 0.5])
    named = said.model_copy(update={"verdict": said.verdict.model_copy(update={"probabilities": None, "best": 1})})
    tied = said.model_copy(update={"verdict": said.verdict.model_copy(update={"probabilities": None, "status": "tie"})})
    assert chances(named, num_compared=2) == [0.0, 1.0]
    assert chances(tied, num_compared=4) == [0.25] * 4
    assert chances(judgment(None), num_compared=2) is None
    assert chances(EngineUnavailable("down"), num_compared=2) is None
