"""Listwise ranking: one judgment over all responses, or over groups and then over their winners."""

from __future__ import annotations

from collections.abc import Sequence

from tirjudge.concurrency import gather_fail_fast
from tirjudge.strategies.base import Contest, PromptCounts, RankedResult, chances, drawn, groups_of, num_rounds
from tirjudge.types import Mode


class Listwise:
    """Listwise ranking.

    One group: the score is P(it is the best). Several rounds of groups: the score is (rounds survived + P(it is the
    best) in the last round of the response) / rounds.

    The most probable response of each group advances. An undecided group is eliminated. A group of one has a bye.
    """

    compares, needs_answers = True, False

    async def rank(self, contest: Contest) -> list[RankedResult]:
        num = len(contest.responses)
        size = contest.group_size or num
        results = [RankedResult() for _ in range(num)]
        if num <= size:
            decided = await _compare(range(num), contest=contest, results=results)
            for index, result in enumerate(results):
                result.score = None if decided is None else decided[index]
            return results
        rounds = num_rounds(num, size=size)
        left: Sequence[int] = drawn(contest.responses, seed=contest.seed)
        for number in range(rounds):
            groups = groups_of(left, size=size)
            outcomes = await gather_fail_fast([_compare(group, contest=contest, results=results) for group in groups])
            for group, decided in zip(groups, outcomes, strict=True):
                for place, contestant in enumerate(group):
                    results[contestant].score = None if decided is None else (number + decided[place]) / rounds
            left = [
                group[max(range(len(group)), key=decided.__getitem__)]
                for group, decided in zip(groups, outcomes, strict=True)
                if decided is not None
            ]
            for contestant in left:
                results[contestant].num_survived = number + 1
        return results

    def prompt_counts(self, num_responses: int, *, group_size: int) -> PromptCounts:
        prompts = rounds = 0
        while num_responses > 1:
            num_responses = -(-num_responses // max(2, group_size))
            prompts, rounds = prompts + num_responses, rounds + 1
        return PromptCounts(prompts=max(1, prompts), showings=max(1, rounds))


async def _compare(group: Sequence[int], *, contest: Contest, results: Sequence[RankedResult]) -> list[float] | None:
    """Compare a group and return P(it is the best) of each member; None if undecided."""
    if len(group) == 1:
        return [1.0]
    comparison = await contest.ask(Mode.LISTWISE, group)
    for contestant in group:
        results[contestant].comparisons.append(comparison)
    return chances(comparison, num_compared=len(group))


STRATEGY = Listwise()
