"""Scores: each response is judged by itself, by the score that the judge wrote or by the expected one."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from tirjudge.concurrency import gather_fail_fast
from tirjudge.strategies.base import Comparison, Contest, PromptCounts, RankedResult
from tirjudge.types import Judgment, Mode


def written_score(judgment: Judgment, *, needs_program: bool) -> float | None:
    """The mean of the scores that the judge wrote, 1 to 10, over the rollouts that count; None: there is none.

    Args:
        judgment: of one response.
        needs_program: whether a rollout only counts if a program ran (`tools="on"`).
    """
    if judgment.verdict.status == "abstained":
        return None
    counting = [rollout.verdict for rollout in judgment.rollouts if rollout.counts(needs_program=needs_program)]
    return fmean(int(verdict.label) for verdict in counting if verdict is not None)


def mean_score(judgment: Judgment) -> float | None:
    """The sum of score x P(score), 1 to 10, over the rollouts that count; None: there is none."""
    return judgment.verdict.scores[0] if judgment.verdict.scores is not None else None


async def judge_each(contest: Contest) -> list[Comparison]:
    """The judgment of each response."""
    return await gather_fail_fast([contest.ask(Mode.POINTWISE, [i]) for i in range(len(contest.responses))])


class ByScore:
    """Ranks by a score of each judgment.

    Args:
        score: of a judgment of a contest; None: it decided nothing.
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
