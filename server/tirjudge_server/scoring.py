"""Computes rewards of responses in one of four modes. The judge is called through `Ask`; the rest is pure.

    pointwise               the written score, averaged over votes
    expected_score          sum of score x P(score): more fine-grained, the default
    pairwise_vs_reference   P(the response is better than the reference)
    cohort                  compares the responses to one prompt with each other (`tirjudge.strategies`)

Each response gets a reward, or the reason why it has none. A failure affects one response only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pydantic import ValidationError

from tirjudge.basis import combined_basis
from tirjudge.concurrency import map_concurrently
from tirjudge.errors import logged
from tirjudge.http.protocol import problem_of
from tirjudge.http.rewards import RewardMode
from tirjudge.strategies import STRATEGIES
from tirjudge.strategies.base import Contest, RankedResult, rank
from tirjudge.strategies.scores import written_score
from tirjudge.types import Basis, ChatMessage, JudgeRequest, Judgment, Mode, Verdict
from tirjudge_server.failure import FailureRow, Fallbacks, MissingScore, missing_from, missing_in
from tirjudge_web.errors import Refused

LOWEST_SCORE, HIGHEST_SCORE = 1, 10
"""Range of the judge's pointwise scores."""

Ask = Callable[[Callable[[], JudgeRequest]], Awaitable[Judgment | Exception]]
"""Judges a request; returns the judgment, or the exception that was raised instead. The argument builds the request when it
can start."""

MAX_AT_ONCE = 64
"""Maximum number of concurrent groups, and of concurrent responses per group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """How responses become rewards."""

    mode: RewardMode = RewardMode.EXPECTED_SCORE
    """The reward mode."""
    strategy: str = "circular"
    """Name of the strategy that compares the responses, in cohort mode."""
    scale: tuple[float, float] | None = (0.0, 1.0)
    """Worst and best reward; None: scores keep their range of 1 to 10, probabilities 0 to 1."""
    judging: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the `JudgeRequest`s, such as `tools` and `votes`."""

    @property
    def ends(self) -> tuple[float, float]:
        """Worst and best reward."""
        if self.scale is not None:
            return self.scale
        return (float(LOWEST_SCORE), float(HIGHEST_SCORE)) if self.mode.scores_each else (0.0, 1.0)

    @property
    def middle(self) -> float:
        """Mean of the worst and the best reward."""
        return sum(self.ends) / 2

    def judged_with(self, **fields: Any) -> Scoring:
        """A copy with additional fields for the judge requests."""
        return replace(self, judging={**self.judging, **fields})

    def on(self, scale: tuple[float, float], *, mode: RewardMode) -> Scoring:
        """A copy with a different mode and scale."""
        return replace(self, scale=scale, mode=mode)

    def scaled(self, share: float) -> float:
        """Map a value between 0 and 1 to the scale."""
        worst, best = self.ends
        return worst + share * (best - worst)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseGroup:
    """Responses to one prompt."""

    prompt: str | tuple[ChatMessage, ...]
    """The prompt: a text or a conversation."""
    responses: tuple[str, ...]
    """The responses to score."""
    reference: str | None = None
    """A reference answer; None: no reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseScore:
    """The score of one response."""

    value: float | None
    """The reward, on the scale of the `Scoring`; a raw score is not scaled. None: the score is missing."""
    missing: MissingScore | None = None
    """Why the score is missing; None if and only if `value` is a number."""
    reason: str | None = None
    """Details of a missing score, or the reason of a verdict."""
    error: Exception | None = None
    """The exception that was raised instead of a judgment; None: a judgment was made."""
    judgment_ids: tuple[str, ...] = ()
    """Ids of the judgments behind the score."""
    score: float | None = None
    """The judge's score, 1 to 10, or a raw score; None in modes that compare."""
    confidence: float | None = None
    """Confidence of the verdict; None: unknown, or several judgments."""
    forced: bool = False
    """Whether any of the verdicts was forced."""
    basis: Basis | None = None
    """Basis of the verdicts together; None: no verdict."""
    num_comparisons: int = 0
    """Number of comparisons behind the score."""
    tool_calls: int = 0
    """Number of programs that ran in these judgments."""

    @property
    def is_scored(self) -> bool:
        """Whether `value` is known. If not, `missing` is the reason."""
        return self.value is not None

    @property
    def is_ours(self) -> bool:
        """Whether the score is missing because the server failed, so that a retry may succeed."""
        return self.missing is not None and self.missing.is_ours

    @property
    def logged_reason(self) -> str:
        """The reason without texts from requests, for logs."""
        return (self.reason or "") if self.error is None else logged(self.error)


def no_score(missing: MissingScore, *, reason: str, error: Exception | None = None) -> ResponseScore:
    """A missing score."""
    return ResponseScore(value=None, missing=missing, reason=reason, error=error)


UNREADABLE = no_score(
    MissingScore.UNREADABLE, reason="the text cannot be split into a prompt and a response, or the split is ambiguous"
)


async def score_groups(
    groups: Sequence[ResponseGroup | ResponseScore | None], *, scoring: Scoring, ask: Ask
) -> list[list[ResponseScore]]:
    """Score all groups concurrently; return the scores of each group in order.

    Args:
        groups: the groups. None: a group that could not be parsed, which gets one missing score. A `ResponseScore`: a score
            that is already known, which is returned as is.
        scoring: how responses become rewards.
        ask: judges a request.

    Raises:
        Refused: the request is invalid.
    """
    works = (score_group(group, scoring=scoring, ask=ask) for group in groups)
    return await map_concurrently(works, num_at_once=min(len(groups), MAX_AT_ONCE))


async def score_group(
    group: ResponseGroup | ResponseScore | None, *, scoring: Scoring, ask: Ask
) -> list[ResponseScore]:
    """Score each response of one group; the arguments are as for `score_groups`."""
    if group is None:
        return [UNREADABLE]
    if isinstance(group, ResponseScore):
        return [group]
    match scoring.mode:
        case RewardMode.COHORT:
            return await _score_cohort(group, scoring=scoring, ask=ask)
        case RewardMode.PAIRWISE_VS_REFERENCE:
            one = _versus_reference
        case _:
            one = _pointwise
    works = (one(group, text, scoring=scoring, ask=ask) for text in group.responses)
    return await map_concurrently(works, num_at_once=min(len(group.responses), MAX_AT_ONCE))


def judge_request(group: ResponseGroup, *, mode: Mode, responses: Sequence[str], scoring: Scoring) -> JudgeRequest:
    """Build a judge request. Equal arguments give equal requests, so a retry finds the first attempt's judgment.

    Raises:
        Refused: the settings contradict each other or do not fit the responses.
    """
    prompt = group.prompt if isinstance(group.prompt, str) else list(group.prompt)
    reference = None if scoring.mode is RewardMode.PAIRWISE_VS_REFERENCE else group.reference
    fields: dict[str, Any] = {"reference": reference, **scoring.judging}
    try:
        return JudgeRequest(mode=mode, prompt=prompt, responses=list(responses), **fields)
    except ValidationError as error:
        raise Refused(problem_of(error)) from error


async def _pointwise(group: ResponseGroup, response: str, *, scoring: Scoring, ask: Ask) -> ResponseScore:
    answer = await ask(partial(judge_request, group, mode=Mode.POINTWISE, responses=[response], scoring=scoring))
    if isinstance(answer, Exception):
        return failed(answer)
    missing, verdict = missing_in(answer.verdict), answer.verdict
    if missing is not None or verdict.scores is None or verdict.scores[0] is None:
        return _abstained(answer, missing=missing or MissingScore.ABSTAINED)
    score = verdict.scores[0]
    if answer.raw_scores is not None:
        return _scored(score, verdict=verdict, answers=[answer], score=score)
    if scoring.mode is RewardMode.POINTWISE:
        score = written_score(answer, needs_program=scoring.judging.get("tools") == "on") or score
    share = (score - LOWEST_SCORE) / (HIGHEST_SCORE - LOWEST_SCORE)
    return _scored(scoring.scaled(share), verdict=verdict, answers=[answer], score=score)


async def _versus_reference(group: ResponseGroup, response: str, *, scoring: Scoring, ask: Ask) -> ResponseScore:
    if group.reference is None:
        return no_score(MissingScore.UNREADABLE, reason="reference: missing; mode pairwise_vs_reference needs one")
    pair = [response, group.reference]
    answer = await ask(partial(judge_request, group, mode=Mode.PAIRWISE, responses=pair, scoring=scoring))
    if isinstance(answer, Exception):
        return failed(answer)
    missing, probabilities = missing_in(answer.verdict), answer.verdict.final_probabilities
    if missing is not None or probabilities is None:
        return _abstained(answer, missing=missing or MissingScore.ABSTAINED)
    return _scored(scoring.scaled(probabilities[0]), verdict=answer.verdict, answers=[answer])


async def _score_cohort(group: ResponseGroup, *, scoring: Scoring, ask: Ask) -> list[ResponseScore]:
    async def compare(mode: Mode, indexes: Sequence[int]) -> Judgment | Exception:
        responses = [group.responses[index] for index in indexes]
        return await ask(partial(judge_request, group, mode=mode, responses=responses, scoring=scoring))

    contest = Contest(ask=compare, seed=int(scoring.judging.get("seed", 0)))
    results = await rank(STRATEGIES.named(scoring.strategy), group.responses, contest=contest)
    return [_from_ranked(result, scoring=scoring) for result in results]


def _from_ranked(result: RankedResult, *, scoring: Scoring) -> ResponseScore:
    judged = [each for each in result.comparisons if isinstance(each, Judgment)]
    errors = [each for each in result.comparisons if isinstance(each, Exception)]
    if result.score is None:
        undecided = next((judgment for judgment in judged if missing_in(judgment.verdict)), None)
        if errors:
            return failed(errors[0])
        assert undecided is not None
        return _abstained(undecided, missing=missing_in(undecided.verdict) or MissingScore.ABSTAINED)
    decided = [judgment for judgment in judged if missing_in(judgment.verdict) is None]
    reward = _scored(scoring.scaled(result.score), verdict=None, answers=decided)
    return reward if result.comparisons else ResponseScore(value=reward.value, reason="all_responses_equal")


def _scored(
    value: float, *, verdict: Verdict | None, answers: Sequence[Judgment], score: float | None = None
) -> ResponseScore:
    return ResponseScore(
        value=value,
        reason=None if verdict is None else verdict.reason,
        judgment_ids=tuple(answer.id for answer in answers),
        score=score,
        confidence=None if verdict is None else verdict.confidence,
        forced=any(answer.verdict.forced for answer in answers),
        basis=combined_basis(answer.verdict.basis for answer in answers),
        num_comparisons=sum(answer.mode is not Mode.POINTWISE for answer in answers),
        tool_calls=sum(answer.usage.tool_calls for answer in answers),
    )


def _abstained(judgment: Judgment, *, missing: MissingScore) -> ResponseScore:
    return ResponseScore(
        value=None,
        missing=missing,
        reason=judgment.verdict.reason,
        judgment_ids=(judgment.id,),
        tool_calls=judgment.usage.tool_calls,
    )


def only_failures(rewards: Sequence[ResponseScore]) -> Exception | None:
    """The first error, if every score is missing because of the server; None otherwise."""
    errors = [reward.error for reward in rewards if reward.is_ours]
    return errors[0] if errors and len(errors) == len(rewards) else None


def count_missing(rewards: Sequence[ResponseScore], *, label: str, row: FailureRow, fallbacks: Fallbacks) -> None:
    """Log and count missing scores.

    Args:
        rewards: the scores of a response.
        label: label of the row, such as the name of the dialect.
        row: the row of the failure table.
        fallbacks: the counters.
    """
    missing = Counter((reward.missing, reward.logged_reason) for reward in rewards if reward.missing is not None)
    for (why, reason), num in missing.items():
        fallbacks.add(label, why, style=row.style(why), reason=reason, num=num)


def failed(error: Exception) -> ResponseScore:
    """The missing score for a failed judgment.

    Raises:
        Refused: the request is invalid, so a retry would fail as well.
    """
    if isinstance(error, Refused):
        raise error
    return no_score(missing_from(error), reason=str(error) or type(error).__name__, error=error)
