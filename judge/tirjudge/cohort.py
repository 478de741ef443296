"""How the responses to one prompt are set against each other, and what each gets out of it.

Every reward here lies between 0 and 1. A comparison that was not decided counts for neither side: the mean is over those
that were. Equal texts are one contestant and share what it gets.

    circular    n comparisons, each response with its neighbours    mean P(it is the better one)
    all_pairs   n(n-1)/2 comparisons                                mean P(it is the better one)
    knockout    n-1 comparisons in ceil(log2 n) rounds              share of the rounds that it survived
    listwise    one judgment over all                               P(it is the best)
                or in groups whose winners meet                     (rounds survived + P(it is the best) in its last) / rounds
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import fmean

from tirjudge.concurrency import gather_fail_fast, map_concurrently
from tirjudge.http.rewards import Strategy
from tirjudge.types import Judgment

Comparison = Judgment | Exception
"""How a comparison went; an exception if it could not be made."""

Compare = Callable[[Sequence[int]], Awaitable[Comparison]]
"""Compares the responses of these indexes; the verdict speaks of them in this order."""

MAX_AT_ONCE = 64
"""Most comparisons of one cohort under way at a time; the others are not made yet."""

EQUAL = 0.5
"""What equals get who have nobody else to meet."""


@dataclass(slots=True, kw_only=True)
class RankedResult:
    """What one response got."""

    reward: float | None = None
    """None: none of its comparisons was decided, or a knockout or group lost it in one that was not."""
    num_survived: int = 0
    """Rounds of a knockout, or of groups, that it came through, unmet ones included."""
    meetings: list[Comparison] = field(default_factory=list)
    """Its comparisons, decided or not."""


async def standings(
    responses: Sequence[str], *, strategy: Strategy, meet: Compare, seed: int = 0, group_size: int | None = None
) -> list[RankedResult]:
    """One standing a response, in order.

    Args:
        responses: to one prompt.
        strategy: who meets whom.
        meet: compares.
        seed: of the order in which a knockout or groups are drawn; it depends on the texts otherwise, not on their order.
        group_size: listwise, how many meet at a time at most; None: all.
    """
    first_places: dict[str, int] = {}
    for place, text in enumerate(responses):
        first_places.setdefault(text, place)
    contestants, places = list(first_places), list(first_places.values())
    if len(contestants) == 1:
        own = [RankedResult(reward=EQUAL)]
    elif strategy is Strategy.LISTWISE:
        own = await _listwise(places, texts=contestants, meet=meet, seed=seed, size=group_size or len(places))
    elif strategy is Strategy.KNOCKOUT:
        own = await _knockout(places, texts=contestants, meet=meet, seed=seed)
    else:
        pairs = list(pairs_of(len(places), strategy=strategy))
        own = await _round_robin(places, pairs=pairs, meet=meet)
    by_text = dict(zip(contestants, own, strict=True))
    return [by_text[text] for text in responses]


def pairs_of(num_responses: int, *, strategy: Strategy) -> Iterable[tuple[int, int]]:
    """The comparisons of a strategy that knows them beforehand, made one by one.

    >>> list(pairs_of(4, strategy=Strategy.CIRCULAR))
    [(0, 1), (1, 2), (2, 3), (3, 0)]
    """
    if strategy is Strategy.ALL_PAIRS or num_responses == 2:
        return combinations(range(num_responses), 2)
    return ((i, (i + 1) % num_responses) for i in range(num_responses))


def chances(meeting: Comparison, *, num_met: int) -> list[float] | None:
    """P(it is the best) of each that met; None if nothing was decided.

    A judge whose probabilities cannot be had gives 1 to the one that it named; after a tie all get the same.
    """
    if isinstance(meeting, Exception) or meeting.verdict.status == "abstained":
        return None
    verdict = meeting.verdict
    if verdict.probabilities is not None:
        return verdict.probabilities
    return [1 / num_met if verdict.best is None else float(place == verdict.best) for place in range(num_met)]


async def _round_robin(places: Sequence[int], *, pairs: Sequence[tuple[int, int]], meet: Compare) -> list[RankedResult]:
    works = (_met(meet, (places[i], places[j])) for i, j in pairs)
    meetings = await map_concurrently(works, num_at_once=min(len(pairs), MAX_AT_ONCE))
    won: list[list[float]] = [[] for _ in places]
    standing = [RankedResult() for _ in places]
    for pair, meeting in zip(pairs, meetings, strict=True):
        decided = chances(meeting, num_met=2)
        for side, place in enumerate(pair):
            standing[place].meetings.append(meeting)
            if decided is not None:
                won[place].append(decided[side])
    for one, points in zip(standing, won, strict=True):
        one.reward = fmean(points) if points else None
    return standing


async def _listwise(
    places: Sequence[int], *, texts: Sequence[str], meet: Compare, seed: int, size: int
) -> list[RankedResult]:
    """The likeliest of each group goes on; of a group that was not decided nobody does, and one alone goes on unmet."""
    if len(places) <= size:
        return await _one_list(places, meet=meet)
    standing = [RankedResult() for _ in places]
    num_rounds = _num_rounds(len(places), size=size)
    left = _drawn(texts, seed=seed)
    for number in range(num_rounds):
        num_groups = -(-len(left) // size)
        groups = [left[start::num_groups] for start in range(num_groups)]
        outcomes = await gather_fail_fast(
            [_group(group, places=places, standing=standing, meet=meet) for group in groups]
        )
        for group, decided in zip(groups, outcomes, strict=True):
            for place, contestant in enumerate(group):
                standing[contestant].reward = None if decided is None else (number + decided[place]) / num_rounds
        left = [
            group[max(range(len(group)), key=decided.__getitem__)]
            for group, decided in zip(groups, outcomes, strict=True)
            if decided is not None
        ]
        for contestant in left:
            standing[contestant].num_survived = number + 1
    return standing


async def _one_list(places: Sequence[int], *, meet: Compare) -> list[RankedResult]:
    meeting = await meet(places)
    decided = chances(meeting, num_met=len(places))
    return [RankedResult(reward=decided[i] if decided else None, meetings=[meeting]) for i in range(len(places))]


async def _group(
    group: Sequence[int], *, places: Sequence[int], standing: Sequence[RankedResult], meet: Compare
) -> list[float] | None:
    """P(it is the best) of each; None if that was not decided."""
    if len(group) == 1:
        return [1.0]
    meeting = await meet([places[contestant] for contestant in group])
    for contestant in group:
        standing[contestant].meetings.append(meeting)
    return chances(meeting, num_met=len(group))


async def _knockout(places: Sequence[int], *, texts: Sequence[str], meet: Compare, seed: int) -> list[RankedResult]:
    """Winners go on. The odd one out of a round goes on unmet, and is the first to meet somebody in the next. After a
    comparison that was not decided neither side goes on, and who would have met the winner goes on unmet."""
    standing = [RankedResult() for _ in places]
    num_rounds = _num_rounds(len(places), size=2)
    left: list[int | None] = list(_drawn(texts, seed=seed))
    for number in range(num_rounds):
        ties = [(left[i], left[i + 1]) for i in range(0, len(left) - 1, 2)]
        winners = await gather_fail_fast([_tie(tie, places=places, standing=standing, meet=meet) for tie in ties])
        for tie, winner in zip(ties, winners, strict=True):
            for contestant in tie:
                if contestant is not None and winner is not None and contestant != winner:
                    standing[contestant].reward = number / num_rounds
        left = [*left[2 * len(ties) :], *winners]
        for contestant in left:
            if contestant is not None:
                standing[contestant].num_survived = number + 1
    if left[0] is not None:
        standing[left[0]].reward = 1.0
    return standing


async def _tie(
    tie: tuple[int | None, int | None], *, places: Sequence[int], standing: Sequence[RankedResult], meet: Compare
) -> int | None:
    """Who goes on; None if that was not decided. Even chances are decided by the draw."""
    first, second = tie
    if first is None or second is None:
        return second if first is None else first
    meeting = await meet((places[first], places[second]))
    for contestant in (first, second):
        standing[contestant].meetings.append(meeting)
    decided = chances(meeting, num_met=2)
    if decided is None:
        return None
    return first if decided[0] >= decided[1] else second


async def _met(meet: Compare, indexes: Sequence[int]) -> Comparison:
    return await meet(indexes)


def _drawn(texts: Sequence[str], *, seed: int) -> list[int]:
    """A random order that depends on the texts alone."""
    return sorted(range(len(texts)), key=lambda i: hashlib.sha256(f"{seed}\0{texts[i]}".encode()).digest())


def _num_rounds(num_contestants: int, *, size: int) -> int:
    """How many rounds of groups it takes until one is left.

    >>> [_num_rounds(n, size=2) for n in (2, 3, 4, 5)]
    [1, 2, 2, 3]
    """
    num_rounds = 0
    while num_contestants > 1:
        num_contestants = -(-num_contestants // size)
        num_rounds += 1
    return num_rounds
