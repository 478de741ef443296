"""What a ranking strategy is, and what several of them share.

Every score of a comparing strategy lies between 0 and 1. A comparison that was not decided counts for neither side. Equal
texts are one contestant and share what it gets.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from tirjudge.types import Judgment, Mode

MAX_AT_ONCE = 64
"""Most judgments of one contest under way at a time; the others are not made yet."""

EQUAL = 0.5
"""Score of equals without anybody else to compare them with."""

Comparison = Judgment | Exception
"""How a judgment went; an exception if it could not be made."""

Ask = Callable[[Mode, Sequence[int]], Coroutine[Any, Any, Comparison]]
"""Makes one judgment over the responses of these indexes; its verdict speaks of them in this order."""

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class RankedResult:
    """What one response got."""

    score: float | None = None
    """0 to 1 where responses are compared or voted on, 1 to 10 where each is scored. None: none of its judgments decided
    anything, or a knockout or a group lost it in one that did not."""
    sort_key: tuple[float, ...] | None = None
    """Higher is better; None: as the score."""
    num_survived: int = 0
    """Rounds of a knockout, or of groups, that it came through, byes included."""
    comparisons: list[Comparison] = field(default_factory=list)
    """Its judgments, decided or not."""

    @property
    def order_key(self) -> tuple[float, ...] | None:
        """Who came further in rounds goes first, even if it ended undecided."""
        if self.sort_key is not None:
            return self.sort_key
        if self.score is None and self.num_survived == 0:
            return None
        return self.num_survived, self.score or 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Responses to one prompt, and how they are judged."""

    ask: Ask
    responses: Sequence[str] = ()
    """Different from one another; given by `rank`."""
    seed: int = 0
    """Of the order in which a knockout or groups are drawn; it depends on the texts otherwise, not on their order."""
    group_size: int | None = None
    """Listwise, how many are compared at a time at most; None: all."""
    answers: Sequence[str | None] = ()
    """The final answer of each response, where a strategy needs answers; equal responses have equal answers."""
    counts: Sequence[int] = ()
    """How many of the responses are equal to each; empty: one."""
    needs_program: bool = False
    """Whether a rollout only counts if a program ran."""
    verified_weight: float = 1.0
    """What the vote of a verified response weighs; any other weighs 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCounts:
    """An upper bound of how much a strategy asks."""

    prompts: int
    """Number of prompts."""
    showings: int
    """In how many of these one response is shown, at most."""


class Strategy(Protocol):
    """One way to rank.

    Attributes:
        compares: whether responses are set against each other; if not, each is judged by itself.
        needs_answers: whether it needs the final answers of the responses.
    """

    compares: bool
    needs_answers: bool

    async def rank(self, contest: Contest) -> list[RankedResult]:
        """One result a response, in their order; two responses at least."""
        ...

    def prompt_counts(self, num_responses: int, *, group_size: int) -> PromptCounts:
        """What it asks for so many responses at most, with groups of that size."""
        ...


async def rank(strategy: Strategy, responses: Sequence[str], *, contest: Contest) -> list[RankedResult]:
    """One result a response, in order. Equal texts are judged once; texts that are all equal are not compared.

    Args:
        strategy: ranks.
        responses: to one prompt.
        contest: its `ask` takes indexes of `responses`, and it has an answer for each, or none.
    """
    entries = list(zip(responses, contest.answers or [None] * len(responses), strict=True))
    counts = Counter(entries)
    first_places = {entry: place for place, entry in reversed(list(enumerate(entries)))}
    places = [first_places[entry] for entry in counts]
    if len(places) == 1 and strategy.compares:
        return [RankedResult(score=EQUAL) for _ in responses]

    async def ask(mode: Mode, indexes: Sequence[int]) -> Comparison:
        return await contest.ask(mode, [places[index] for index in indexes])

    distinct = replace(
        contest,
        responses=[responses[place] for place in places],
        answers=[contest.answers[place] for place in places] if contest.answers else (),
        counts=list(counts.values()),
        ask=ask,
    )
    by_entry = dict(zip(counts, await strategy.rank(distinct), strict=True))
    return [by_entry[entry] for entry in entries]


def chances(comparison: Comparison, *, num_compared: int) -> list[float] | None:
    """P(it is the best) of each that was compared; None if nothing was decided.

    A judge whose probabilities cannot be had gives 1 to the one that it named; after a tie all get the same.
    """
    if isinstance(comparison, Exception) or comparison.verdict.status == "abstained":
        return None
    verdict = comparison.verdict
    if verdict.probabilities is not None:
        return verdict.probabilities
    return [1 / num_compared if verdict.best is None else float(place == verdict.best) for place in range(num_compared)]


def drawn(texts: Sequence[str], *, seed: int) -> list[int]:
    """A random order that depends on the texts alone."""
    return sorted(range(len(texts)), key=lambda i: hashlib.sha256(f"{seed}\0{texts[i]}".encode()).digest())


def groups_of(contestants: Sequence[T], *, size: int) -> list[Sequence[T]]:
    """The fewest groups of at most that size, as even as can be.

    >>> groups_of("abcde", size=2)
    ['ad', 'be', 'c']
    """
    num_groups = -(-len(contestants) // size)
    return [contestants[start::num_groups] for start in range(num_groups)]


def num_rounds(num_contestants: int, *, size: int) -> int:
    """How many rounds of groups it takes until one is left.

    >>> [num_rounds(n, size=2) for n in (2, 3, 4, 5)]
    [1, 2, 2, 3]
    """
    rounds = 0
    while num_contestants > 1:
        num_contestants = -(-num_contestants // size)
        rounds += 1
    return rounds
