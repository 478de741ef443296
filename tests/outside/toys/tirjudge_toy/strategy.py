"""A toy strategy: the first response is the champion, and each other response challenges the current champion."""

from tirjudge.strategies.base import Contest, PromptCounts, RankedResult, chances
from tirjudge.types import Mode


class Ladder:
    compares, needs_answers = True, False

    async def rank(self, contest: Contest) -> list[RankedResult]:
        results = [RankedResult(score=0.0) for _ in contest.responses]
        champion = 0
        for challenger in range(1, len(results)):
            comparison = await contest.ask(Mode.PAIRWISE, (champion, challenger))
            decided = chances(comparison, num_compared=2) or [1.0, 0.0]
            for index in (champion, challenger):
                results[index].comparisons.append(comparison)
            champion = champion if decided[0] >= decided[1] else challenger
        results[champion].score = 1.0
        return results

    def prompt_counts(self, num_responses: int, *, group_size: int) -> PromptCounts:
        return PromptCounts(prompts=num_responses - 1, showings=num_responses - 1)


STRATEGY = Ladder()
