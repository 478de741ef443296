"""From prompts and responses to rewards, by one of four modes; pure but for the asking.

    pointwise               the score as the judge wrote it, the mean over votes
    expected_score          sum of score x P(score): finer, and the default
    pairwise_vs_reference   P(the response is better than the reference)
    cohort                  the responses to one prompt against each other (see `cohort`)

Each response gets a reward of its own, or the reason why it has none; a failure affects its own response alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pydantic import ValidationError

from tirjudge.concurrency import map_concurrently
from tirjudge.errors import logged
from tirjudge.http.protocol import problem_of
from tirjudge.http.rewards import RewardMode
from tirjudge.strategies import STRATEGIES
from tirjudge.strategies.base import Contest, RankedResult, rank
from tirjudge.strategies.scores import written_score
from tirjudge.types import ChatMessage, JudgeRequest, Judgment, Mode, Verdict
from tirjudge_server.failure import FailureRow, Fallbacks, MissingScore, missing_from, missing_in
from tirjudge_web.errors import Refused

LOWEST_SCORE, HIGHEST_SCORE = 1, 10
"""What a judge may answer."""

Ask = Callable[[Callable[[], JudgeRequest]], Awaitable[Judgment | Exception]]
"""Makes a request when there is a place for it, and gets its judgment, or what was raised instead."""

MAX_AT_ONCE = 64
"""Most groups, and most responses of one group, that are worked on side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """How responses become rewards."""

    mode: RewardMode = RewardMode.EXPECTED_SCORE
    strategy: str = "circular"
    """Of a cohort."""
    scale: tuple[float, float] | None = (0.0, 1.0)
    """Worst and best reward; None leaves scores at 1 to 10 and probabilities at 0 to 1."""
    judging: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the `JudgeRequest`s, such as `tools` and `votes`."""

    @property
    def ends(self) -> tuple[float, float]:
        """Worst and best reward."""
        if self.scale is not None:
            return self.scale
        by_score = self.mode in (RewardMode.POINTWISE, RewardMode.EXPECTED_SCORE)
        return (float(LOWEST_SCORE), float(HIGHEST_SCORE)) if by_score else (0.0, 1.0)

    @property
    def middle(self) -> float:
        return sum(self.ends) / 2

    def judged_with(self, **fields: Any) -> Scoring:
        """The same with these fields of the requests."""
        return replace(self, judging={**self.judging, **fields})

    def on(self, scale: tuple[float, float], *, mode: RewardMode) -> Scoring:
        """The same in another mode, with these as worst and best reward."""
        return replace(self, scale=scale, mode=mode)

    def scaled(self, share: float) -> float:
        """A reward between 0 and 1, on the scale."""
        worst, best = self.ends
        return worst + share * (best - worst)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseGroup:
    """Responses to one prompt."""

    prompt: str | tuple[ChatMessage, ...]
    responses: tuple[str, ...]
    reference: str | None = None
    """An answer known to be good; None: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseScore:
    """What one response got."""

    value: float | None
    """On the scale; None: there is no score."""
    missing: MissingScore | None = None
    """Why there is none; None exactly when `value` is a number."""
    reason: str | None = None
    """The same in more words, or why a score is what it is."""
    error: Exception | None = None
    """What was raised instead of a judgment; None if the judge abstained."""
    judgment_ids: tuple[str, ...] = ()
    """What it rests on."""
    score: float | None = None
    """The judge's score, 1 to 10; None in modes that compare."""
    confidence: float | None = None
    forced: bool = False
    """Whether a verdict that it rests on had to be forced."""
    num_comparisons: int = 0
    """How many comparisons it rests on."""
    tool_calls: int = 0
    """Programs of all those judgments."""

    @property
    def is_scored(self) -> bool:
        return self.value is not None

    @property
    def is_ours(self) -> bool:
        """Whether it is missing because the server failed, so that the same request could be answered later."""
        return self.missing is not None and self.missing.is_ours

    @property
    def logged_reason(self) -> str:
        """What a log may say of why there is no reward."""
        return (self.reason or "") if self.error is None else logged(self.error)


def no_score(missing: MissingScore, *, reason: str, error: Exception | None = None) -> ResponseScore:
    """No reward."""
    return ResponseScore(value=None, missing=missing, reason=reason, error=error)


UNREADABLE = no_score(
    MissingScore.UNREADABLE, reason="the text has no reading as a prompt and one response, or more than one"
)


async def score_groups(
    groups: Sequence[ResponseGroup | ResponseScore | None], *, scoring: Scoring, ask: Ask
) -> list[list[ResponseScore]]:
    """The rewards of each group, in order; a group that is None could not be read, and gets one missing score. A score in
    the place of a group is known already.

    Raises:
        Refused: the judge takes no such request at all.
    """
    works = (score_group(group, scoring=scoring, ask=ask) for group in groups)
    return await map_concurrently(works, num_at_once=min(len(groups), MAX_AT_ONCE))


async def score_group(
    group: ResponseGroup | ResponseScore | None, *, scoring: Scoring, ask: Ask
) -> list[ResponseScore]:
    """One reward a response."""
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
            one = _by_itself
    works = (one(group, text, scoring=scoring, ask=ask) for text in group.responses)
    return await map_concurrently(works, num_at_once=min(len(group.responses), MAX_AT_ONCE))


def judge_request(group: ResponseGroup, *, mode: Mode, responses: Sequence[str], scoring: Scoring) -> JudgeRequest:
    """The same words for the same content, so that a retry finds the judgment of the first try.

    Raises:
        Refused: the settings do not fit one another, or what is to be judged.
    """
    prompt = group.prompt if isinstance(group.prompt, str) else list(group.prompt)
    reference = None if scoring.mode is RewardMode.PAIRWISE_VS_REFERENCE else group.reference
    fields: dict[str, Any] = {"reference": reference, **scoring.judging}
    try:
        return JudgeRequest(mode=mode, prompt=prompt, responses=list(responses), **fields)
    except ValidationError as error:
        raise Refused(problem_of(error)) from error


async def _by_itself(group: ResponseGroup, response: str, *, scoring: Scoring, ask: Ask) -> ResponseScore:
    answer = await ask(partial(judge_request, group, mode=Mode.POINTWISE, responses=[response], scoring=scoring))
    if isinstance(answer, Exception):
        return failed(answer)
    missing, verdict = missing_in(answer.verdict), answer.verdict
    if missing is not None or verdict.scores is None or verdict.scores[0] is None:
        return _abstained(answer, missing=missing or MissingScore.ABSTAINED)
    score = verdict.scores[0]
    if scoring.mode is RewardMode.POINTWISE:
        score = written_score(answer, needs_program=scoring.judging.get("tools") == "on") or score
    share = (score - LOWEST_SCORE) / (HIGHEST_SCORE - LOWEST_SCORE)
    return _scored(scoring.scaled(share), verdict=verdict, answers=[answer], score=score)


async def _versus_reference(group: ResponseGroup, response: str, *, scoring: Scoring, ask: Ask) -> ResponseScore:
    if group.reference is None:
        return no_score(MissingScore.UNREADABLE, reason="reference: not given, and the mode compares with it")
    pair = [response, group.reference]
    answer = await ask(partial(judge_request, group, mode=Mode.PAIRWISE, responses=pair, scoring=scoring))
    if isinstance(answer, Exception):
        return failed(answer)
    missing, chances = missing_in(answer.verdict), answer.verdict.probabilities
    if missing is not None or chances is None:
        return _abstained(answer, missing=missing or MissingScore.ABSTAINED)
    return _scored(scoring.scaled(chances[0]), verdict=answer.verdict, answers=[answer])


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
    """What went wrong first, if all that there is to say is that we failed; None if there is anything else."""
    errors = [reward.error for reward in rewards if reward.is_ours]
    return errors[0] if errors and len(errors) == len(rewards) else None


def count_missing(rewards: Sequence[ResponseScore], *, label: str, row: FailureRow, fallbacks: Fallbacks) -> None:
    """Log and count the rewards that are missing, under the label of a row of the failure table."""
    missing = Counter((reward.missing, reward.logged_reason) for reward in rewards if reward.missing is not None)
    for (why, reason), num in missing.items():
        fallbacks.add(label, why, style=row.style(why), reason=reason, num=num)


def failed(error: Exception) -> ResponseScore:
    """No reward, because no judgment could be made.

    Raises:
        Refused: the request is at fault, and so will be the next one.
    """
    if isinstance(error, Refused):
        raise error
    return no_score(missing_from(error), reason=str(error) or type(error).__name__, error=error)
