"""Protocol of a ranking strategy, and code shared by several strategies.

Scores of comparing strategies are between 0 and 1. An undecided comparison counts for neither side. Equal texts are
merged into one contestant and share its result.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from tirjudge.types import Judgment, Mode

MAX_AT_ONCE = 64
"""Maximum number of concurrent judgments of one contest."""

EQUAL = 0.5
"""Score of each response if all responses are equal."""

Comparison = Judgment | Exception
"""A judgment, or the exception if it could not be made."""

Ask = Callable[[Mode, Sequence[int]], Coroutine[Any, Any, Comparison]]
"""Makes one judgment over the responses with these indexes. Its verdict refers to them in this order."""

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class RankedResult:
    """Result of one response."""

    score: float | None = None
    """0 to 1 if responses are compared or voted on, 1 to 10 if each is scored. None: no judgment of this response
    decided anything, or an undecided comparison eliminated it."""
    sort_key: tuple[float, ...] | None = None
    """Sort key, higher is better. None: sort by rounds survived, then by score."""
    num_survived: int = 0
    """Number of rounds of a knockout or of groups that this response survived, including byes."""
    comparisons: list[Comparison] = field(default_factory=list)
    """All judgments of this response, decided or not."""

    @property
    def order_key(self) -> tuple[float, ...] | None:
        """Effective sort key. A response that survived more rounds goes first, even without a score. None: goes
        last."""
        if self.sort_key is not None:
            return self.sort_key
        if self.score is None and self.num_survived == 0:
            return None
        return self.num_survived, self.score or 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Input of a strategy: responses to one prompt, and the parameters of the ranking."""

    ask: Ask
    """Makes one judgment."""
    responses: Sequence[str] = ()
    """Distinct response texts; set by the function `rank`."""
    seed: int = 0
    """Seed of the draw of a knockout or of groups. The draw depends on the seed and the texts, not on their order."""
    group_size: int | None = None
    """Maximum number of responses in one listwise comparison. None: all."""
    answers: Sequence[str | None] = ()
    """Final answer of each response, for strategies that need answers. Empty: no answers are known."""
    counts: Sequence[int] = ()
    """Number of original responses with each text. Empty: one each."""
    needs_program: bool = False
    """Whether a rollout only counts if a program ran."""
    verified_weight: float = 1.0
    """Weight of the vote of a verified response. Other votes have weight 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCounts:
    """Upper bound of the cost of a strategy."""

    prompts: int
    """Maximum number of prompts."""
    showings: int
    """Maximum number of prompts that show the same response."""


class Strategy(Protocol):
    """A way to rank responses.

    Attributes:
        compares: whether responses are compared with each other. False: each is judged separately.
        needs_answers: whether the strategy needs the final answers of the responses.
    """

    compares: bool
    needs_answers: bool

    async def rank(self, contest: Contest) -> list[RankedResult]:
        """Rank the responses of a contest. Return one result per response, in their order.

        A comparing strategy gets at least two responses.
        """
        ...

    def prompt_counts(self, num_responses: int, *, group_size: int) -> PromptCounts:
        """Return an upper bound of the cost of ranking that many responses."""
        ...


async def rank(strategy: Strategy, responses: Sequence[str], *, contest: Contest) -> list[RankedResult]:
    """Rank responses. Return one result per response, in their order.

    Identical responses are judged once. If all responses are identical, a comparing strategy makes no judgment.

    Args:
        strategy: strategy to use.
        responses: responses to one prompt.
        contest: parameters. Its `ask` takes indexes into `responses`. Its `answers` has one answer per response or is
            empty.
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
    """Return P(it is the best) for each compared response; None if the comparison is undecided.

    Without probabilities from the judge, the chosen response gets 1. After a tie, all responses get the same
    probability.
    """
    if isinstance(comparison, Exception) or comparison.verdict.status == "abstained":
        return None
    verdict = comparison.verdict
    if verdict.final_probabilities is not None:
        return verdict.final_probabilities
    return [1 / num_compared if verdict.best is None else float(place == verdict.best) for place in range(num_compared)]


def drawn(texts: Sequence[str], *, seed: int) -> list[int]:
    """Return a pseudorandom order of the texts that depends only on the seed and the texts."""
    return sorted(range(len(texts)), key=lambda i: hashlib.sha256(f"{seed}\0{texts[i]}".encode()).digest())


def groups_of(contestants: Sequence[T], *, size: int) -> list[Sequence[T]]:
    """Split contestants into the smallest number of groups with at most `size` members, as equal in size as possible.

    >>> groups_of("abcde", size=2)
    ['ad', 'be', 'c']
    """
    num_groups = -(-len(contestants) // size)
    return [contestants[start::num_groups] for start in range(num_groups)]


def num_rounds(num_contestants: int, *, size: int) -> int:
    """Return how many rounds in groups of `size` reduce the contestants to one.

    >>> [num_rounds(n, size=2) for n in (2, 3, 4, 5)]
    [1, 2, 2, 3]
    """
    rounds = 0
    while num_contestants > 1:
        num_contestants = -(-num_contestants // size)
        rounds += 1
    return rounds
