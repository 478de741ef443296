"""Ranking by scores: each response is judged separately and gets the written or the expected score."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from tirjudge.concurrency import gather_fail_fast
from tirjudge.strategies.base import Comparison, Contest, PromptCounts, RankedResult
from tirjudge.types import Judgment, Mode


def written_score(judgment: Judgment, *, needs_program: bool) -> float | None:
    """Return the mean score, 1 to 10, that the judge wrote in the rollouts that count; None for an abstention. If checks or
    a scalar reward model decided, it is the score of the verdict.

    Args:
        judgment: pointwise judgment of one response.
        needs_program: whether a rollout only counts if a program ran (`tools="on"`).
    """
    if judgment.verdict.status == "abstained":
        return None
    if judgment.decided_as_whole:
        return mean_score(judgment)
    counting = [rollout.verdict for rollout in judgment.rollouts if rollout.counts(needs_program=needs_program)]
    return fmean(float(verdict.label) for verdict in counting if verdict is not None)


def mean_score(judgment: Judgment) -> float | None:
    """Return the expected score, 1 to 10, over the rollouts that count; None for an abstention."""
    return judgment.verdict.scores[0] if judgment.verdict.scores is not None else None


async def judge_each(contest: Contest) -> list[Comparison]:
    """Judge each response separately and concurrently. Return one judgment or exception per response."""
    return await gather_fail_fast([contest.ask(Mode.POINTWISE, [i]) for i in range(len(contest.responses))])


class ByScore:
    """Ranking by the scores of separate judgments.

    Args:
        score: function from a judgment and its contest to the score; None if the judgment decided nothing.
    """

    compares, needs_answers = False, False

    def __init__(self, score: Callable[[Judgment, Contest], float | None]) -> None:
        self._score = score

    async def rank(self, contest: Contest) -> list[RankedResult]:
        results = []
        for judged in await judge_each(contest):
            score = None if isinstance(judged, Exception) else self._score(judged, contest)
            results.append(
                RankedResult(score=score, sort_key=None if score is None else (score,), comparisons=[judged])
            )
        return results

    def prompt_counts(self, num_responses: int, *, group_size: int) -> PromptCounts:
        return PromptCounts(prompts=num_responses, showings=1)


POINTWISE = ByScore(lambda judgment, contest: written_score(judgment, needs_program=contest.needs_program))
EXPECTED_SCORE = ByScore(lambda judgment, contest: mean_score(judgment))
