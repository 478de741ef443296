"""Selection of the best of N with each method. The expected scores and votes were computed manually."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.judgments import Status, build_judgment, build_rollout, build_rollout_verdict, build_turn, build_verdict
from tirjudge.best_of_n import best_first, majority_index, select
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.errors import EngineUnavailable
from tirjudge.judge import Judge
from tirjudge.strategies.verified_vote import is_verified
from tirjudge.tools.python import python_tools
from tirjudge.types import JudgeRequest, Judgment, Mode, Outcome, StopReason
from tirjudge_sandbox import SandboxPool

COMPARING = ("knockout", "round_robin", "circular", "listwise")


class Strengths:
    """A judge with a fixed number for each response: P(a is the best) = a / (sum of all numbers), and the score is the
    number.

    Args:
        strengths: response -> its number.
        undecided: responses whose comparisons with each other are abstentions.
        ran: response -> outcome of the judge's program.
        expected: response -> expected score. None: its number.
        tells: whether the judge returns probabilities.
    """

    def __init__(
        self,
        strengths: Mapping[str, float],
        *,
        undecided: Sequence[str] = (),
        ran: Mapping[str, Outcome] | None = None,
        expected: Mapping[str, float] | None = None,
        tells: bool = True,
    ) -> None:
        self.strengths, self.undecided, self.ran = strengths, set(undecided), ran or {}
        self.expected, self.tells = expected or strengths, tells
        self.asked: list[list[str]] = []

    async def __call__(self, request: JudgeRequest) -> Judgment:
        self.asked.append(list(request.responses))
        await asyncio.sleep(0)
        if set(request.responses) <= self.undecided:
            return judgment(request, status="abstained")
        if request.mode is Mode.POINTWISE:
            text = request.responses[0]
            return judgment(
                request, scores=[self.expected[text]], label=str(int(self.strengths[text])), outcome=self.ran.get(text)
            )
        numbers = [self.strengths[text] for text in request.responses]
        top = max(numbers)
        tied = numbers.count(top) > 1
        return judgment(
            request,
            status="tie" if tied else "decided",
            best=None if tied else numbers.index(top),
            probabilities=[number / sum(numbers) for number in numbers] if self.tells else None,
        )


def judgment(
    request: JudgeRequest,
    *,
    status: Status = "decided",
    label: str | None = None,
    outcome: Outcome | None = None,
    **verdict: Any,
) -> Judgment:
    written = build_rollout_verdict(label) if label else None
    turns = [] if outcome is None else [build_turn(outcome)]
    return build_judgment(
        build_verdict(status, **verdict),
        id="jdg_" + "|".join(request.responses),
        mode=request.mode,
        rollouts=[build_rollout([0], verdict=written, turns=turns, stop_reason=StopReason.VERDICT)],
    )


async def test_pointwise_selects_the_highest_score_and_judges_identical_responses_once() -> None:
    judge = Strengths({"bad": 2, "good": 9, "fair": 5})
    found = await select("p", ["bad", "good", "fair", "bad"], judge=judge, method="pointwise")
    assert (found.best, found.ranking) == (1, (1, 2, 0, 3))
    assert found.scores == (2, 9, 5, 2)
    assert judge.asked == [["bad"], ["good"], ["fair"]]
    assert found.num_calls == 3


async def test_among_equal_scores_the_most_frequent_answer_wins() -> None:
    judge = Strengths({"a": 9, "b": 9, "c": 9, "d": 3, "e": 3})
    answers = ["7", "8", "8", "7", "7"]
    found = await select("p", list("abcde"), judge=judge, method="pointwise", answers=answers)
    assert found.ranking == (1, 2, 0, 3, 4)


async def test_among_equal_scores_without_a_majority_the_first_wins() -> None:
    found = await select("p", list("abc"), judge=Strengths({"a": 4, "b": 8, "c": 8}), method="pointwise")
    assert found.best == 1


async def test_missing_answers_do_not_form_a_majority() -> None:
    judge = Strengths(dict.fromkeys("abcd", 8))
    found = await select("p", list("abcd"), judge=judge, method="pointwise", answers=[None, None, None, "5"])
    assert found.ranking == (3, 0, 1, 2)


async def test_pointwise_uses_written_scores_and_expected_score_uses_means() -> None:
    judge = Strengths({"a": 7, "b": 8}, expected={"a": 7.4, "b": 7.2})
    assert (await select("p", ["a", "b"], judge=judge, method="pointwise")).scores == (7, 8)
    by_mean = await select("p", ["a", "b"], judge=judge, method="expected_score")
    assert (by_mean.best, by_mean.scores) == (0, (7.4, 7.2))


async def test_a_response_without_a_verdict_is_ranked_last() -> None:
    judge = Strengths({"a": 1, "b": 1, "c": 3}, undecided=["a"])
    found = await select("p", ["a", "b", "c"], judge=judge, method="pointwise")
    assert found.ranking == (2, 1, 0)
    assert found.scores == (None, 1, 3)
    assert found.num_undecided == 1


async def test_a_knockout_of_n_makes_n_minus_1_comparisons_and_scores_by_rounds() -> None:
    judge = Strengths({str(n): n for n in range(1, 9)})
    found = await select("p", [str(n) for n in range(1, 9)], judge=judge, method="knockout")
    assert found.best == 7
    assert found.num_calls == 7
    assert sorted(score or 0.0 for score in found.scores) == pytest.approx([0, 0, 0, 0, 1 / 3, 1 / 3, 2 / 3, 1])


async def test_finalists_of_an_undecided_final_rank_before_earlier_losers() -> None:
    texts = ["w1", "s1", "w2", "s2"]
    judge = Strengths({"w1": 1, "w2": 1, "s1": 9, "s2": 9}, undecided=["s1", "s2"])
    seeds = [seed for seed in range(20) if {"s1", "s2"} not in [set(pair) for pair in first_round(texts, seed=seed)]]
    found = await select("p", texts, judge=judge, method="knockout", seed=seeds[0])
    assert set(found.ranking[:2]) == {1, 3}
    assert found.ranking[0] == 1
    assert [found.scores[index] for index in (1, 3)] == [None, None]
    assert found.num_undecided == 1


def first_round(texts: Sequence[str], *, seed: int) -> list[tuple[str, str]]:
    """The pairs of the first round: neighbors in the order of the hashes of seed and text."""
    from hashlib import sha256

    drawn = sorted(texts, key=lambda text: sha256(f"{seed}\0{text}".encode()).digest())
    return list(zip(drawn[::2], drawn[1::2], strict=True))


async def test_round_robin_scores_the_mean_probability_over_all_pairs() -> None:
    judge = Strengths({"a": 1, "b": 3, "c": 4})
    found = await select("p", ["a", "b", "c"], judge=judge, method="round_robin")
    assert found.scores == pytest.approx(((1 / 4 + 1 / 5) / 2, (3 / 4 + 3 / 7) / 2, (4 / 5 + 4 / 7) / 2))
    assert judge.asked == [["a", "b"], ["a", "c"], ["b", "c"]]
    assert found.ranking == (2, 1, 0)


async def test_listwise_groups_are_even_and_their_winners_are_compared() -> None:
    texts = [str(n) for n in range(1, 11)]
    judge = Strengths({text: float(text) for text in texts})
    found = await select("p", texts, judge=judge, method="listwise", group_size=4)
    assert sorted(map(len, judge.asked)) == [3, 3, 3, 4]  # 10 in three groups, and the three winners
    assert found.best == 9
    final = judge.asked[-1]
    assert "10" in final
    assert found.scores[9] == pytest.approx((1 + 10 / sum(map(float, final))) / 2)
    beaten = judge.asked[0]
    assert found.scores[texts.index(min(beaten, key=float))] == pytest.approx(
        float(min(beaten, key=float)) / sum(map(float, beaten)) / 2
    )


async def test_responses_that_fit_one_group_are_judged_once() -> None:
    judge = Strengths({"a": 1, "b": 3, "c": 4})
    found = await select("p", ["a", "b", "c"], judge=judge, method="listwise")
    assert judge.asked == [["a", "b", "c"]]
    assert found.scores == pytest.approx((1 / 8, 3 / 8, 4 / 8))


async def test_an_undecided_group_is_eliminated() -> None:
    texts = ["a", "b", "c", "d"]
    for pair in (["a", "b"], ["a", "c"], ["a", "d"]):
        judge = Strengths(dict(zip(texts, (9.0, 8.0, 2.0, 1.0), strict=True)), undecided=pair)
        found = await select("p", texts, judge=judge, method="listwise", group_size=2)
        if sorted(judge.asked[0]) == pair or sorted(judge.asked[1]) == pair:
            left = sorted(set(texts) - set(pair))
            assert texts[found.best] == left[0]
            assert found.scores[texts.index(left[0])] == 1.0
            assert found.scores[0] is None
            return
    raise AssertionError("no pair met in the first round")


async def test_a_verified_answer_outweighs_a_majority() -> None:
    judge = Strengths({"a": 7, "b": 7, "c": 7, "d": 8}, ran={"d": Outcome.OK})
    found = await select("p", list("abcd"), judge=judge, method="verified_vote", answers=["1", "1", "1", "2"])
    assert found.best == 3
    assert found.scores == pytest.approx((3 / 7, 3 / 7, 3 / 7, 4 / 7))


async def test_a_large_enough_majority_outweighs_a_verified_answer() -> None:
    judge = Strengths(dict.fromkeys("abcdef", 7.0), ran={"f": Outcome.OK})
    answers = ["1", "1", "1", "1", "1", "2"]
    found = await select("p", list("abcdef"), judge=judge, method="verified_vote", answers=answers)
    assert found.best == 0
    assert found.scores[0] == pytest.approx(5 / 9)
    weighed = await select(
        "p", list("abcdef"), judge=judge, method="verified_vote", answers=answers, verified_weight=6.0
    )
    assert weighed.best == 5


async def test_among_equal_answers_verified_responses_rank_first_then_higher_scores() -> None:
    judge = Strengths({"a": 9, "b": 6, "c": 7}, ran={"b": Outcome.OK})
    found = await select("p", list("abc"), judge=judge, method="verified_vote", answers=["1", "1", "1"])
    assert found.ranking == (1, 0, 2)


@pytest.mark.parametrize(
    ("label", "outcome", "verified"),
    [("6", Outcome.OK, True), ("5", Outcome.OK, False), ("10", None, False), ("10", Outcome.ERROR, False)],
)
def test_a_response_is_verified_by_a_successful_program_and_a_good_score(
    label: str, outcome: Outcome | None, verified: bool
) -> None:
    request = JudgeRequest(mode=Mode.POINTWISE, prompt="p", responses=["r"])
    assert is_verified(judgment(request, label=label, outcome=outcome, scores=[float(label)])) is verified


async def test_without_probabilities_the_chosen_response_counts() -> None:
    judge = Strengths({"a": 1, "b": 3, "c": 3, "d": 9}, tells=False)
    for method in ("knockout", "round_robin", "listwise"):
        assert (await select("p", list("abcd"), judge=judge, method=method)).best == 3
    found = await select("p", list("abc"), judge=judge, method="round_robin")
    assert found.scores == (0.0, (1 + 0.5) / 2, (1 + 0.5) / 2)


@pytest.mark.parametrize("method", COMPARING)
async def test_identical_responses_need_no_comparison(method: str) -> None:
    judge = Strengths({"same": 5})
    found = await select("p", ["same", "same"], judge=judge, method=method)
    assert (found.best, found.num_calls, judge.asked) == (0, 0, [])


async def test_judgments_are_listed_in_the_order_of_the_requests() -> None:
    b_is_done = asyncio.Event()

    class Slow(Strengths):
        async def __call__(self, request: JudgeRequest) -> Judgment:
            if request.responses == ["a"]:
                await b_is_done.wait()
            answer = await super().__call__(request)
            b_is_done.set()
            return answer

    judge = Slow({"a": 1, "b": 2})
    found = await select("p", ["a", "b"], judge=judge, method="pointwise")
    assert [each.id for each in found.judgments] == ["jdg_a", "jdg_b"]
    assert judge.asked == [["b"], ["a"]]


async def test_a_failed_judgment_cancels_the_selection_and_its_other_judgments() -> None:
    ended: list[str] = []

    async def judge(request: JudgeRequest) -> Judgment:
        if request.responses == ["b"]:
            raise EngineUnavailable("down")
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(request.responses[0])
        raise AssertionError("not cancelled")

    with pytest.raises(EngineUnavailable, match="down"):
        await select("p", ["a", "b", "c"], judge=judge, method="pointwise")
    assert sorted(ended) == ["a", "c"]


@pytest.mark.parametrize(
    ("responses", "options", "message"),
    [
        ([], {}, "none given"),
        (["a", "b"], {"answers": ["1"]}, "1 given for 2 responses"),
        (["a", "b"], {"group_size": 1}, "group_size: 1"),
        (["a", "b"], {"method": "verified_vote"}, "answers: not given"),
        (
            ["a", "b"],
            {"method": "verified_vote", "answers": ["1", "2"], "tools": "off"},
            "vote over answers that programs verify",
        ),
        (["a", "b"], {"method": "elo"}, "elo"),
        (["a", "b"], {"votes": 0}, "votes"),
    ],
)
async def test_invalid_arguments_are_rejected_before_any_judgment(
    responses: list[str], options: dict[str, Any], message: str
) -> None:
    judge = Strengths({"a": 1, "b": 2})
    with pytest.raises(ValueError, match=message):
        await select("p", responses, judge=judge, **options)
    assert judge.asked == []


async def test_further_fields_are_passed_on_to_each_request() -> None:
    seen: list[JudgeRequest] = []
    strengths = Strengths({"a": 1, "b": 2})

    async def judge(request: JudgeRequest) -> Judgment:
        seen.append(request)
        return await strengths(request)

    await select("p", ["a", "b"], judge=judge, seed=5, orders="both", tools="off", reference="r")
    assert [(r.seed, r.orders, r.tools, r.reference, r.mode) for r in seen] == [(5, "both", "off", "r", Mode.PAIRWISE)]


@settings(max_examples=60, deadline=None)
@given(
    strengths=st.lists(st.integers(min_value=1, max_value=10), min_size=1, max_size=9, unique=True),
    method=st.sampled_from([*COMPARING, "pointwise", "expected_score"]),
    group_size=st.integers(min_value=2, max_value=5),
)
async def test_every_method_selects_the_strongest_response(strengths: list[int], method: str, group_size: int) -> None:
    texts = [str(number) for number in strengths]
    judge = Strengths({text: float(text) for text in texts})
    found = await select("p", texts, judge=judge, method=method, group_size=group_size)
    assert sorted(found.ranking) == list(range(len(texts)))
    if method != "circular":  # neighbours may be weaker than the strongest's are
        assert strengths[found.best] == max(strengths)


@given(st.lists(st.tuples(st.none() | st.integers(0, 3), st.none() | st.sampled_from("xyz")), max_size=12))
def test_best_first_is_a_permutation_in_descending_order(
    given: list[tuple[int | None, str | None]],
) -> None:
    merits = [None if merit is None else float(merit) for merit, _ in given]
    order = best_first(merits, answers=[answer for _, answer in given])
    assert sorted(order) == list(range(len(given)))
    ordered = [-1.0 if merits[index] is None else merits[index] for index in order]
    assert ordered == sorted(ordered, key=lambda merit: -(merit or 0.0))


def test_majority_index_prefers_the_first_of_equally_frequent_answers() -> None:
    assert majority_index(["7", None, "8", "8", None, None]) == 2
    assert majority_index(["7", "8"]) == 0
    assert majority_index([None, None]) == 0


def writes_the_score_in_the_response(sequence: str) -> str:
    """Script of a judge that runs one program, and then writes the score named in the response."""
    if "```output" not in sequence.rpartition("<response")[2]:
        return "```python\nprint(response[-1])\n```\n```output"
    return f"<score>{sequence.rpartition('worth ')[2][0]}</score>"


async def test_verified_vote_works_with_a_real_sandbox(pool: SandboxPool) -> None:
    engine = ScriptedEngine(writes_the_score_in_the_response, label_probs=lambda s: {s.rpartition("worth ")[2][0]: 0.9})
    judge = Judge(engine=engine, tools=python_tools(pool))
    responses = ["it is 4, worth 2", "it is 4, worth 3", "it is 5, worth 8"]
    found = await select("p", responses, judge=judge.judge, method="verified_vote", answers=["4", "4", "5"])
    assert [is_verified(each) for each in found.judgments] == [False, False, True]
    assert found.best == 2
    assert fmean(score or 0.0 for score in found.scores) == pytest.approx((2 / 6 + 2 / 6 + 4 / 6) / 3)
