"""The best of N responses to one prompt, chosen by a judge. One definition for the library, the harness and the server.

    pointwise       N judgments: the score that the judge wrote
    expected_score  N judgments: the sum of score x P(score)
    knockout        N-1 comparisons in ceil(log2 N) rounds (see `cohort`)
    round_robin     N(N-1)/2 comparisons: the mean P(it is the better one)
    circular        N comparisons, each response with its neighbours: the same mean
    listwise        groups whose winners meet
    verified_vote   N judgments: a vote over answers, in which one that a program verified weighs more (T3RL)

Equal texts are judged once and share what they get. Of responses that come out equal, those are best whose answer most of the
equal ones share (TIR-Judge, App. E), and of these the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean
from typing import Any, TypeVar

from tirjudge.cohort import standings
from tirjudge.concurrency import gather_fail_fast
from tirjudge.http.rewards import Strategy
from tirjudge.types import ChatMessage, JudgeRequest, Judgment, Mode, Outcome
from tirjudge.verdict import GOOD_SCORE

GROUP_SIZE = 4
"""How many responses one listwise comparison shows."""

VERIFIED_WEIGHT = 4.0
"""What a verified response's vote weighs; any other weighs 1."""

JudgeOne = Callable[[JudgeRequest], Awaitable[Judgment]]
"""A judge in this process, or a client of one elsewhere."""


class Selecting(StrEnum):
    """How the best is found."""

    POINTWISE = "pointwise"
    EXPECTED_SCORE = "expected_score"
    KNOCKOUT = "knockout"
    ROUND_ROBIN = "round_robin"
    CIRCULAR = "circular"
    LISTWISE = "listwise"
    VERIFIED_VOTE = "verified_vote"

    @property
    def needs_answers(self) -> bool:
        return self is Selecting.VERIFIED_VOTE


_STRATEGIES = {
    Selecting.KNOCKOUT: Strategy.KNOCKOUT,
    Selecting.ROUND_ROBIN: Strategy.ALL_PAIRS,
    Selecting.CIRCULAR: Strategy.CIRCULAR,
    Selecting.LISTWISE: Strategy.LISTWISE,
}
"""The methods that set responses against each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What was chosen, and what it rests on."""

    method: Selecting
    ranking: tuple[int, ...]
    """Indexes of all responses, the best first."""
    scores: tuple[float | None, ...]
    """One a response: 1 to 10 where each was scored, else 0 to 1. None: the judge decided nothing about it."""
    judgments: tuple[Judgment, ...]
    """In the order in which they were asked for."""

    @property
    def best(self) -> int:
        return self.ranking[0]

    @property
    def num_calls(self) -> int:
        return len(self.judgments)

    @property
    def num_undecided(self) -> int:
        """Judgments without a verdict."""
        return sum(judgment.verdict.status == "abstained" for judgment in self.judgments)


async def select(
    prompt: str | Sequence[ChatMessage],
    responses: Sequence[str],
    *,
    judge: JudgeOne,
    method: Selecting | str = Selecting.KNOCKOUT,
    answers: Sequence[str | None] | None = None,
    seed: int = 0,
    group_size: int = GROUP_SIZE,
    verified_weight: float = VERIFIED_WEIGHT,
    **judging: Any,
) -> Selection:
    """Choose the best response.

    Args:
        prompt: what the responses answer: text, or a conversation.
        responses: one at least.
        judge: makes one judgment; several are asked for side by side.
        method: how the best is found.
        answers: the final answer of each response, in a form in which equal answers are equal texts; an answer of None agrees
            with nothing. None: each text is its own answer.
        seed: of orders, samples, and the draw of a knockout or of groups.
        group_size: how many responses a listwise comparison shows at most.
        verified_weight: what the vote of a verified response weighs.
        judging: fields of the `JudgeRequest`s, such as `tools`, `votes` and `reference`.

    Raises:
        ValueError: there is no response, the answers are not as many, or the method needs what is not given.
        EngineUnavailable, ServerUnavailable, ...: a judgment could not be made; nothing is selected.
    """
    method = Selecting(method)
    _check(responses, answers=answers, method=method, group_size=group_size, tools=judging.get("tools"))
    shown = prompt if isinstance(prompt, str) else list(prompt)
    asking = _Asking(judge=judge, fields={"prompt": shown, "seed": seed, **judging})
    if method in _STRATEGIES:
        merits, scores = await _compared(responses, method=method, asking=asking, seed=seed, group_size=group_size)
    else:
        judged = await _one_by_one(responses, asking=asking)
        needs_program = judging.get("tools") == "on"
        if method is Selecting.VERIFIED_VOTE:
            merits, scores = _voted(judged, answers=answers or (), weight=verified_weight, needs_program=needs_program)
        else:
            by_word = method is Selecting.POINTWISE
            scores = [written_score(j, needs_program=needs_program) if by_word else mean_score(j) for j in judged]
            merits = [None if score is None else (score,) for score in scores]
    return Selection(
        method=method,
        ranking=tuple(best_first(merits, answers=responses if answers is None else answers)),
        scores=tuple(scores),
        judgments=tuple(asking.judgments[number] for number in range(asking.num_asked)),
    )


Merit = TypeVar("Merit", float, tuple[float, ...])


def best_first(merits: Sequence[Merit | None], *, answers: Sequence[Hashable | None] | None = None) -> list[int]:
    """Indexes in the order of their merits, those without one at the end.

    Equal ones: by how many of the equal ones share their answer, which None never does, and then in their own order.

    >>> best_first([7.0, 9.0, None, 9.0, 9.0], answers=["4", "5", "6", "6", "6"])
    [3, 4, 1, 0, 2]
    """
    own = answers if answers is not None else [None] * len(merits)
    classes = [(merit, answer) for merit, answer in zip(merits, own, strict=True)]
    votes = Counter(each for each in classes if each[1] is not None)
    first_of: dict[tuple[object, object], int] = {}
    for index, each in enumerate(classes):
        first_of.setdefault(each, index)
    places = {merit: place for place, merit in enumerate(sorted({m for m in merits if m is not None}, reverse=True))}

    def key(index: int) -> tuple[int, int, int, int]:
        place = places.get(merits[index], len(places))  # type: ignore[arg-type]
        return place, -votes[classes[index]], first_of[classes[index]], index

    return sorted(range(len(merits)), key=key)


def majority_index(answers: Sequence[Hashable | None]) -> int:
    """The first response with the answer that most give; of answers given as often, the one that was given first.

    >>> majority_index(["7", None, "8", "8", None, None])
    2
    """
    return best_first([0.0] * len(answers), answers=answers)[0]


def written_score(judgment: Judgment, *, needs_program: bool) -> float | None:
    """The mean of the scores that the judge wrote, 1 to 10, over the rollouts that count; None: there is none.

    Args:
        judgment: of one response.
        needs_program: whether a rollout only counts if a program ran (`tools="on"`).
    """
    if judgment.verdict.status == "abstained":
        return None
    return fmean(score for score, _ in _written(judgment, needs_program=needs_program))


def mean_score(judgment: Judgment) -> float | None:
    """The sum of score x P(score), 1 to 10, over the rollouts that count; None: there is none."""
    return judgment.verdict.scores[0] if judgment.verdict.scores is not None else None


def is_verified(judgment: Judgment, *, needs_program: bool = False) -> bool:
    """Whether a program of the judge's own ended well and the judge then wrote a good score, the mean over such rollouts."""
    if judgment.verdict.status == "abstained":
        return False
    checked = [score for score, outcomes in _written(judgment, needs_program=needs_program) if Outcome.OK in outcomes]
    return bool(checked) and fmean(checked) >= GOOD_SCORE


def _written(judgment: Judgment, *, needs_program: bool) -> list[tuple[int, list[Outcome]]]:
    """The score and the outcomes of the programs of each rollout that counts."""
    ran = [
        (rollout.verdict, [turn.outcome for turn in rollout.turns if turn.outcome not in (None, Outcome.REFUSED)])
        for rollout in judgment.rollouts
    ]
    return [(int(verdict.label), outcomes) for verdict, outcomes in ran if verdict and (outcomes or not needs_program)]


@dataclass(slots=True, kw_only=True)
class _Asking:
    """Puts the questions of one selection."""

    judge: JudgeOne
    fields: Mapping[str, Any]
    """Of every request."""
    num_asked: int = 0
    judgments: dict[int, Judgment] = field(default_factory=dict)
    """By the number of the question."""

    async def ask(self, mode: Mode, responses: Sequence[str]) -> Judgment:
        number, self.num_asked = self.num_asked, self.num_asked + 1
        request = JudgeRequest.model_validate({"mode": mode, "responses": list(responses), **self.fields})
        self.judgments[number] = judgment = await self.judge(request)
        return judgment


async def _compared(
    responses: Sequence[str], *, method: Selecting, asking: _Asking, seed: int, group_size: int
) -> tuple[list[tuple[float, ...] | None], list[float | None]]:
    """Merits and scores of responses that meet. Who came further in a knockout has more merit, even if it ended undecided."""
    mode = Mode.LISTWISE if method is Selecting.LISTWISE else Mode.PAIRWISE

    async def meet(indexes: Sequence[int]) -> Judgment:
        return await asking.ask(mode, [responses[index] for index in indexes])

    found = await standings(
        responses,
        strategy=_STRATEGIES[method],
        meet=meet,
        seed=seed,
        group_size=group_size if mode is Mode.LISTWISE else None,
    )
    merits = [
        None if one.reward is None and one.num_survived == 0 else (one.num_survived, one.reward or 0.0) for one in found
    ]
    return merits, [one.reward for one in found]


async def _one_by_one(responses: Sequence[str], *, asking: _Asking) -> list[Judgment]:
    """The judgment of each response, equal ones sharing one."""
    texts = list(dict.fromkeys(responses))
    judged = await gather_fail_fast([asking.ask(Mode.POINTWISE, [text]) for text in texts])
    by_text = dict(zip(texts, judged, strict=True))
    return [by_text[text] for text in responses]


def _voted(
    judged: Sequence[Judgment], *, answers: Sequence[str | None], weight: float, needs_program: bool
) -> tuple[list[tuple[float, ...] | None], list[float | None]]:
    """Merits and scores by the share of all votes that an answer got; among its responses, those that a program verified
    come first, then those that the judge scored higher."""
    verified = [is_verified(judgment, needs_program=needs_program) for judgment in judged]
    votes: dict[str, float] = {}
    for answer, has_program in zip(answers, verified, strict=True):
        if answer is not None:
            votes[answer] = votes.get(answer, 0.0) + (weight if has_program else 1.0)
    total = sum(votes.values()) or 1.0
    shares = [0.0 if answer is None else votes[answer] / total for answer in answers]
    scores = [mean_score(judgment) or 0.0 for judgment in judged]
    return list(zip(shares, map(float, verified), scores, strict=True)), list(shares)


def _check(
    responses: Sequence[str],
    *,
    answers: Sequence[str | None] | None,
    method: Selecting,
    group_size: int,
    tools: str | None,
) -> None:
    if not responses:
        raise ValueError("responses: none given, one at least is needed")
    if answers is not None and len(answers) != len(responses):
        raise ValueError(f"answers: {len(answers)} given for {len(responses)} responses; one each is needed")
    if group_size < 2:
        raise ValueError(f"group_size: {group_size} given, at least 2 responses meet")
    if method is Selecting.VERIFIED_VOTE:
        if answers is None:
            raise ValueError("answers: not given, and verified_vote is a vote over them")
        if tools == "off":
            raise ValueError('tools: "off" given, and verified_vote counts what programs verified; "auto" would do')
