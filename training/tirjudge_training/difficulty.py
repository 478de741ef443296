"""Item orders: which items a step draws. Either each item once per epoch, or items most likely to have mixed results.

Both orders depend only on (seed, step, rank) and on a state that is saved with the checkpoint. So a resumed run draws
the same items as an uninterrupted one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Protocol

from tirjudge_training.items import TrainingItem

DISCOUNT = 0.8
"""Weight of the earlier results of an item relative to a new group, because earlier policies produced them."""


class ItemOrder(Protocol):
    """Decides in which order items are drawn."""

    def stream(self, *, step: int, rank: int, num_groups: int) -> Iterator[int]:
        """Yield indices of items in the order of the draws, forever.

        Args:
            step: Optimizer step, starting at 0.
            rank: Rank of this process.
            num_groups: Number of groups that this rank needs in the step.
        """
        ...

    def learn(self, index: int, *, correct: float, wrong: float) -> None:
        """Record the numbers of correct and wrong rollouts in a group. Called in the order of the draws."""
        ...

    def state(self) -> dict[str, Any]:
        """Return the state for a resumed run, as JSON values."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a state."""
        ...


class EpochOrder:
    """Draws every item once per epoch, in a new random order each epoch. Additional draws are random.

    The groups of an epoch form a sequence, in which the two groups of a pointwise item are adjacent. Step s of rank r takes
    num_groups groups, starting at position (s * num_ranks + r) * num_groups. So no state has to be saved.

    Args:
        items: Items to draw from.
        seed: Seed of the shuffles.
        num_ranks: Number of processes that collect.

    Raises:
        ValueError: no items given.
    """

    def __init__(self, items: Sequence[TrainingItem], *, seed: int, num_ranks: int = 1) -> None:
        if not items:
            raise ValueError("items: expected at least one, got none")
        self._sizes = [item.num_groups for item in items]
        self._seed = seed
        self._num_ranks = num_ranks

    def stream(self, *, step: int, rank: int, num_groups: int) -> Iterator[int]:
        first = list(dict.fromkeys(self.scheduled(step=step, rank=rank, num_groups=num_groups)))
        yield from first
        rng = Random(f"{self._seed}/refill/{step}/{rank}")
        others = sorted(set(range(len(self._sizes))) - set(first))
        while True:
            rng.shuffle(others)
            yield from others
            others = list(range(len(self._sizes)))

    def scheduled(self, *, step: int, rank: int, num_groups: int) -> Iterator[int]:
        """Yield the items whose groups belong to the step. At the end of an epoch, an item may occur twice."""
        epoch, start = divmod((step * self._num_ranks + rank) * num_groups, sum(self._sizes))
        end = start + num_groups
        while end > 0:
            place = 0
            order = list(range(len(self._sizes)))
            Random(f"{self._seed}/epoch/{epoch}").shuffle(order)
            for index in order:
                if start <= place < end:
                    yield index
                place += self._sizes[index]
            epoch, start, end = epoch + 1, 0, end - place

    def learn(self, index: int, *, correct: float, wrong: float) -> None:
        """Do nothing: the order does not depend on results."""

    def state(self) -> dict[str, Any]:
        return {"kind": "epoch"}

    def restore(self, state: Mapping[str, Any]) -> None:
        _check_kind(state, wanted="epoch")


class DifficultyOrder:
    """Draws items whose groups are probably mixed (some rollouts right, some wrong), by Thompson sampling.

    The probability p that a rollout of an item is right has a posterior Beta(a, b), with the prior Beta(1, 1). A step
    samples p for each item and takes the items with the highest 1 - p^G - (1 - p)^G, the probability that a group of G
    is mixed. A group with c right and w wrong rollouts updates a <- 1 + d (a - 1) + c and b <- 1 + d (b - 1) + w. Rank
    r draws from every num_ranks-th item only. So two ranks never draw the same item, and each rank keeps its
    posteriors.

    Args:
        items: Items to draw from.
        seed: Seed of the samples.
        group_size: G.
        discount: d, 0 to 1. 1: earlier results keep their full weight.
        num_ranks: Number of processes that collect.

    Raises:
        ValueError: there are fewer items than ranks, or `discount` is outside 0 to 1.
    """

    def __init__(
        self,
        items: Sequence[TrainingItem],
        *,
        seed: int,
        group_size: int,
        discount: float = DISCOUNT,
        num_ranks: int = 1,
    ) -> None:
        if len(items) < num_ranks:
            raise ValueError(f"items: {len(items)} given for {num_ranks} ranks; each rank needs at least one")
        if not 0 <= discount <= 1:
            raise ValueError(f"discount: expected 0 to 1, got {discount}")
        self._ids = [item.id for item in items]
        self._index = {name: index for index, name in enumerate(self._ids)}
        self._posteriors: dict[int, tuple[float, float]] = {}
        self._seed = int.from_bytes(hashlib.sha256(str(seed).encode()).digest()[:8], "big")
        self._group_size = group_size
        self._discount = discount
        self._num_ranks = num_ranks

    def posterior(self, index: int) -> tuple[float, float]:
        """Return the parameters a and b of an item's posterior."""
        return self._posteriors.get(index, (1.0, 1.0))

    def stream(self, *, step: int, rank: int, num_groups: int) -> Iterator[int]:
        import numpy as np

        rng = np.random.default_rng([self._seed, step, rank])
        own = range(rank, len(self._ids), self._num_ranks)
        a, b = np.array([self.posterior(index) for index in own]).T
        while True:
            p = rng.beta(a, b)
            mixed = 1 - p**self._group_size - (1 - p) ** self._group_size
            yield from (own[place] for place in np.argsort(-mixed, kind="stable").tolist())

    def learn(self, index: int, *, correct: float, wrong: float) -> None:
        a, b = self.posterior(index)
        self._posteriors[index] = (1 + self._discount * (a - 1) + correct, 1 + self._discount * (b - 1) + wrong)

    def state(self) -> dict[str, Any]:
        posteriors = {self._ids[index]: list(ab) for index, ab in sorted(self._posteriors.items())}
        return {"kind": "difficulty", "posteriors": posteriors}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a state.

        Raises:
            ValueError: the state belongs to a different order or different items.
        """
        _check_kind(state, wanted="difficulty")
        unknown = [name for name in state["posteriors"] if name not in self._index]
        if unknown:
            raise ValueError(f'difficulty state: unknown item "{unknown[0]}"; the items must be the same as before')
        self._posteriors = {self._index[name]: (a, b) for name, (a, b) in state["posteriors"].items()}


def _check_kind(state: Mapping[str, Any], *, wanted: str) -> None:
    if state.get("kind") != wanted:
        raise ValueError(f'item order: state of "{state.get("kind")}" given, but "{wanted}" is configured')
