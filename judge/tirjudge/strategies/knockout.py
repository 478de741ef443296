"""Knockout tournament. The score of a response is the share of rounds that it survived."""

from __future__ import annotations

from collections.abc import Sequence

from tirjudge.concurrency import gather_fail_fast
from tirjudge.strategies.base import Contest, PromptCounts, RankedResult, chances, drawn, num_rounds
from tirjudge.types import Mode


class Knockout:
    """Knockout tournament.

    With an odd number of contestants, the last one has a bye and is compared first in the next round. An undecided
    comparison eliminates both sides, and the opponent of its missing winner has a bye.
    """

    compares, needs_answers = True, False

    async def rank(self, contest: Contest) -> list[RankedResult]:
        num = len(contest.responses)
        results = [RankedResult() for _ in range(num)]
        rounds = num_rounds(num, size=2)
        left: list[int | None] = list(drawn(contest.responses, seed=contest.seed))
        for number in range(rounds):
            pairs = [(left[i], left[i + 1]) for i in range(0, len(left) - 1, 2)]
            winners = await gather_fail_fast([_winner(pair, contest=contest, results=results) for pair in pairs])
            for pair, winner in zip(pairs, winners, strict=True):
                for contestant in pair:
                    if contestant is not None and winner is not None and contestant != winner:
                        results[contestant].score = number / rounds
            left = [*left[2 * len(pairs) :], *winners]
            for contestant in left:
                if contestant is not None:
                    results[contestant].num_survived = number + 1
        if left[0] is not None:
            results[left[0]].score = 1.0
        return results

    def prompt_counts(self, num_responses: int, *, group_size: int) -> PromptCounts:
        return PromptCounts(prompts=num_responses - 1, showings=num_responses.bit_length())


async def _winner(
    pair: tuple[int | None, int | None], *, contest: Contest, results: Sequence[RankedResult]
) -> int | None:
    """Compare a pair and return the winner; None if undecided. If both are equally probable, the first one wins."""
    first, second = pair
    if first is None or second is None:
        return second if first is None else first
    comparison = await contest.ask(Mode.PAIRWISE, (first, second))
    for contestant in (first, second):
        results[contestant].comparisons.append(comparison)
    decided = chances(comparison, num_compared=2)
    if decided is None:
        return None
    return first if decided[0] >= decided[1] else second


STRATEGY = Knockout()
