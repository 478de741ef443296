"""Ranking by a fixed set of pairs. The score of a response is its mean P(it is better)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations
from statistics import fmean

from tirjudge.concurrency import map_concurrently
from tirjudge.strategies.base import MAX_AT_ONCE, Comparison, Contest, PromptCounts, RankedResult, chances
from tirjudge.types import Mode


def all_pairs(num_responses: int) -> Iterable[tuple[int, int]]:
    """Return all pairs."""
    return combinations(range(num_responses), 2)


def neighbours(num_responses: int) -> Iterable[tuple[int, int]]:
    """Return the pairs of neighbors on a circle: each response with the next one, and the last with the first.

    >>> list(neighbours(4)), list(neighbours(2))
    ([(0, 1), (1, 2), (2, 3), (3, 0)], [(0, 1)])
    """
    if num_responses == 2:
        return [(0, 1)]
    return ((i, (i + 1) % num_responses) for i in range(num_responses))


class RoundRobin:
    """Ranking by a fixed set of pairs. The score of a response is the mean over its decided comparisons.

    Args:
        pairs: number of responses -> the pairs to compare, generated lazily.
        counts: number of responses -> number of pairs, and number of pairs per response.
    """

    compares, needs_answers = True, False

    def __init__(
        self, pairs: Callable[[int], Iterable[tuple[int, int]]], *, counts: Callable[[int], PromptCounts]
    ) -> None:
        self.pairs = pairs
        self._counts = counts

    async def rank(self, contest: Contest) -> list[RankedResult]:
        async def compare(pair: tuple[int, int]) -> tuple[tuple[int, int], Comparison]:
            return pair, await contest.ask(Mode.PAIRWISE, pair)

        num = len(contest.responses)
        num_pairs = self._counts(num).prompts
        works = (compare(pair) for pair in self.pairs(num))
        compared = await map_concurrently(works, num_at_once=max(1, min(num_pairs, MAX_AT_ONCE)))
        won: list[list[float]] = [[] for _ in range(num)]
        results = [RankedResult() for _ in range(num)]
        for pair, comparison in compared:
            decided = chances(comparison, num_compared=2)
            for side, index in enumerate(pair):
                results[index].comparisons.append(comparison)
                if decided is not None:
                    won[index].append(decided[side])
        for result, points in zip(results, won, strict=True):
            result.score = fmean(points) if points else None
        return results

    def prompt_counts(self, num_responses: int, *, group_size: int) -> PromptCounts:
        return self._counts(num_responses)


ALL_PAIRS = RoundRobin(all_pairs, counts=lambda n: PromptCounts(prompts=n * (n - 1) // 2, showings=n - 1))
CIRCULAR = RoundRobin(neighbours, counts=lambda n: PromptCounts(prompts=n, showings=2))
