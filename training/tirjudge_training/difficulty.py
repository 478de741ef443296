"""Which items a step draws: each in turn, or those most likely to be neither always right nor always wrong.

Both orders are functions of (seed, step, rank) and of a state that is kept beside the checkpoint, so that a resumed run
draws what the run would have drawn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Protocol

from tirjudge_training.items import TrainingItem

DISCOUNT = 0.8
"""What an item's past counts for beside a new group of it: the policy that it tells of is gone."""


class ItemOrder(Protocol):
    """Decides what is drawn."""

    def stream(self, *, step: int, rank: int, num_groups: int) -> Iterator[int]:
        """Indexes into the items without end, the first to be drawn first.

        Args:
            step: of the optimiser, from 0.
            rank: of this process among those that collect.
            num_groups: groups that the step wants of this rank.
        """
        ...

    def learn(self, index: int, *, correct: float, wrong: float) -> None:
        """Told how many rollouts of a group were right and wrong, in the order of the draws."""
        ...

    def state(self) -> dict[str, Any]:
        """What a resumed run has to be given, as JSON."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        ...


class EpochOrder:
    """Every item once an epoch, shuffled anew; what has to be drawn beside it is drawn at random.

    The groups of an epoch stand in a row, those of a pointwise item side by side; step s of rank r takes those from
    (s * num_ranks + r) * num_groups on. So nothing has to be kept.

    Args:
        items: to draw from.
        seed: of the shuffles.
        num_ranks: processes that collect.
    """

    def __init__(self, items: Sequence[TrainingItem], *, seed: int, num_ranks: int = 1) -> None:
        if not items:
            raise ValueError("items: none given, so there is nothing to draw")
        self._sizes = [item.num_groups for item in items]
        self._seed = seed
        self._num_ranks = num_ranks

    def stream(self, *, step: int, rank: int, num_groups: int) -> Iterator[int]:
        first = list(dict.fromkeys(self._own(step=step, rank=rank, num_groups=num_groups)))
        yield from first
        rng = Random(f"{self._seed}/refill/{step}/{rank}")
        others = sorted(set(range(len(self._sizes))) - set(first))
        while True:
            rng.shuffle(others)
            yield from others
            others = list(range(len(self._sizes)))

    def _own(self, *, step: int, rank: int, num_groups: int) -> Iterator[int]:
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
        """It makes no difference."""

    def state(self) -> dict[str, Any]:
        return {"kind": "epoch"}

    def restore(self, state: Mapping[str, Any]) -> None:
        _check_kind(state, wanted="epoch")


class DifficultyOrder:
    """Thompson sampling of what is likely to be mixed.

    The chance p that a rollout of an item is right has a posterior Beta(a, b), from Beta(1, 1). A step draws a p of each
    item and takes those with the highest 1 - p^G - (1 - p)^G, the chance that a group of G is mixed. A group with c right
    and w wrong makes it a <- 1 + d (a - 1) + c, b <- 1 + d (b - 1) + w. Rank r draws from every num_ranks-th item, so
    no two ranks draw the same and each learns of its own.

    Args:
        items: to draw from.
        seed: of the samples.
        group_size: G.
        discount: d, 0 to 1; 1 never forgets.
        num_ranks: processes that collect.
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
            raise ValueError(f"items: {len(items)} given for {num_ranks} ranks, each needs at least one")
        if not 0 <= discount <= 1:
            raise ValueError(f"discount: {discount} given, it is 0 to 1")
        self._ids = [item.id for item in items]
        self._index = {name: index for index, name in enumerate(self._ids)}
        self._posteriors: dict[int, tuple[float, float]] = {}
        self._seed = int.from_bytes(hashlib.sha256(str(seed).encode()).digest()[:8], "big")
        self._group_size = group_size
        self._discount = discount
        self._num_ranks = num_ranks

    def posterior(self, index: int) -> tuple[float, float]:
        """a and b of an item."""
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
        """Go on from there.

        Raises:
            ValueError: it is the state of another order, or of other items.
        """
        _check_kind(state, wanted="difficulty")
        unknown = [name for name in state["posteriors"] if name not in self._index]
        if unknown:
            raise ValueError(f'difficulty state: item "{unknown[0]}" is not among the items; they have to be the same')
        self._posteriors = {self._index[name]: (a, b) for name, (a, b) in state["posteriors"].items()}


def _check_kind(state: Mapping[str, Any], *, wanted: str) -> None:
    if state.get("kind") != wanted:
        raise ValueError(f'item order: the state of "{state.get("kind")}" given, "{wanted}" is configured')
