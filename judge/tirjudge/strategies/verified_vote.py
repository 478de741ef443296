"""Vote over final answers in which responses verified by a program have more weight (T3RL)."""

from __future__ import annotations

from statistics import fmean

from tirjudge.strategies.base import Comparison, Contest, PromptCounts, RankedResult
from tirjudge.strategies.scores import judge_each, mean_score
from tirjudge.types import GOOD_SCORE, Judgment, Outcome


def is_verified(judgment: Comparison, *, needs_program: bool = False) -> bool:
    """Whether the judge verified a response with a program.

    A response is verified if its mean score over the rollouts in which a program succeeded is at least `GOOD_SCORE`.
    """
    if not isinstance(judgment, Judgment) or judgment.verdict.status == "abstained":
        return False
    checked = [
        float(rollout.verdict.label)
        for rollout in judgment.rollouts
        if rollout.verdict is not None
        and rollout.counts(needs_program=needs_program)
        and Outcome.OK in rollout.outcomes
    ]
    return bool(checked) and fmean(checked) >= GOOD_SCORE


class VerifiedVote:
    """Weighted vote over final answers. The score of a response is the share of votes for its answer.

    Responses with the same answer are ordered by whether a program verified them, then by their expected score.
    """

    compares, needs_answers = False, True

    async def rank(self, contest: Contest) -> list[RankedResult]:
        judged = await judge_each(contest)
        verified = [is_verified(judgment, needs_program=contest.needs_program) for judgment in judged]
        votes: dict[str, float] = {}
        counts = contest.counts or [1] * len(judged)
        for answer, is_checked, count in zip(contest.answers, verified, counts, strict=True):
            if answer is not None:
                votes[answer] = votes.get(answer, 0.0) + count * (contest.verified_weight if is_checked else 1.0)
        total = sum(votes.values()) or 1.0
        results = []
        for answer, is_checked, judgment in zip(contest.answers, verified, judged, strict=True):
            share = 0.0 if answer is None else votes[answer] / total
            score = (mean_score(judgment) if isinstance(judgment, Judgment) else None) or 0.0
            key = (share, float(is_checked), score)
            results.append(RankedResult(score=share, sort_key=key, comparisons=[judgment]))
        return results

    def prompt_counts(self, num_responses: int, *, group_size: int) -> PromptCounts:
        return PromptCounts(prompts=num_responses, showings=1)


STRATEGY = VerifiedVote()
