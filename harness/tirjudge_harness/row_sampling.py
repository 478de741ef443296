"""Select the examples of a run: a sample, a shard, or all. The selection is the same on every machine and for every judge."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from tirjudge_harness.examples import Example, ExampleMetadata
from tirjudge_harness.items import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One of several runs that together judge all examples."""

    number: int
    """Number of this shard, counted from 1."""
    of: int
    """Number of shards."""

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Parse a shard such as `2/4`, the second of four.

        Raises:
            InputError: invalid shard.
        """
        number, _, of = text.partition("/")
        if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
            raise InputError(f"--shard: expected i/n, such as 2/4 for the second of four, got {text!r}")
        return cls(number=int(number), of=int(of))

    def holds(self, outline: ExampleMetadata) -> bool:
        """Whether an example belongs to this shard. The examples of one cluster are in the same shard."""
        return _hashed("shard", outline.cluster) % self.of == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def sample(examples: Sequence[Example], *, size: int, seed: int) -> list[Example]:
    """Return a sample of `size` examples in their original order.

    Each subset gets its proportional share, by the largest remainder method. A hash of seed and id selects the examples.
    """
    if size >= len(examples):
        return list(examples)
    subsets: dict[str, list[Example]] = {}
    for one in examples:
        subsets.setdefault(one.outline.subset, []).append(one)
    shares = shares_of({name: len(members) for name, members in subsets.items()}, size=size)
    chosen: set[str] = set()
    for name, members in subsets.items():
        drawn = sorted(members, key=lambda one: _hashed(str(seed), one.outline.id))
        chosen.update(one.outline.id for one in drawn[: shares[name]])
    return [one for one in examples if one.outline.id in chosen]


def shares_of(sizes: dict[str, int], *, size: int) -> dict[str, int]:
    """Return the number of examples per subset, `size` in total, by the largest remainder method."""
    total = sum(sizes.values())
    shares = {name: size * of // total for name, of in sizes.items()}
    by_rest = sorted(sizes, key=lambda name: (-(size * sizes[name] % total), name))
    for name in by_rest[: size - sum(shares.values())]:
        shares[name] += 1
    return shares


def _hashed(*parts: str) -> int:
    return int.from_bytes(hashlib.sha256("\0".join(parts).encode()).digest()[:8], "big")
