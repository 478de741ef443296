"""What a benchmark is: where its rows come from, how a row becomes examples, and what its marks add up to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tirjudge.kinds import Kinds
from tirjudge.right import ScoringRule
from tirjudge.types import Mode
from tirjudge_harness.examples import Example, ExampleMetadata
from tirjudge_harness.metric_tree import Node
from tirjudge_harness.protocols import DEFAULT_OFFICIAL, Official, Protocol

Row = Mapping[str, Any]
Compared = Callable[[ExampleMetadata, Mode], list[tuple[int, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSource:
    """Rows on the Hugging Face hub: the arguments of `datasets.load_dataset`."""

    id: str
    """A repository; or `json`, for files at a URL."""
    split: str
    """`*`: all of them, and each row says in `split` which one it is of."""
    config: str | None = None
    revision: str = "main"
    """A commit, so that a table can be made again."""
    files: str | None = None
    """A file of the repository, or a URL, that is read instead of the default files."""


def every_pair(outline: ExampleMetadata, mode: Mode) -> list[tuple[int, ...]]:
    """Each right response with each wrong one; listwise, all of them at once."""
    if mode is Mode.LISTWISE:
        return [tuple(range(outline.num_responses))]
    wrong = [index for index in range(outline.num_responses) if index not in outline.correct]
    return [(right, other) for right in outline.correct for other in wrong]


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One benchmark."""

    name: str
    """As on the command line."""
    title: str
    """As in tables."""
    citation: str
    sources: Mapping[str, HubSource]
    """By the name of a part, such as a split; the parts of `parts` are judged unless others are asked for."""
    columns: tuple[str, ...]
    """That each row must have."""
    examples: Callable[[Row, str], Iterable[Example]]
    """The examples of one row of a part. Raises ValueError or KeyError where the row is broken."""
    sheet: tuple[Node, ...]
    """Its figures; the first is the one that it is cited by."""
    parts: tuple[str, ...] = ()
    """The parts that count by default; empty: all."""
    modes: tuple[Mode, ...] = (Mode.PAIRWISE, Mode.POINTWISE)
    """In which it can be judged; the first is the default."""
    compared: Compared = every_pair
    """What is set against what: what a judge is asked pairwise and listwise, and what scores are compared between."""
    official: Mapping[Mode, Official] = field(default_factory=lambda: DEFAULT_OFFICIAL)
    """Its own rule for each mode; a mode that is not here has the default one: one order, ties half."""

    @property
    def default_parts(self) -> tuple[str, ...]:
        """Those that count by default."""
        return self.parts or tuple(self.sources)

    def rule(self, protocol: Protocol, *, mode: Mode) -> tuple[Literal["single", "both"], ScoringRule]:
        """The orders to ask for, and how they count, under a protocol."""
        own = self.official.get(mode, DEFAULT_OFFICIAL[mode])
        return (own.orders, own.counting) if protocol.counting is None else (protocol.orders, protocol.counting)

    def asked(self, outline: ExampleMetadata, *, mode: Mode) -> list[tuple[int, ...]]:
        """What a judge is asked about an example: each response alone, or each comparison."""
        if mode is Mode.POINTWISE:
            return [(index,) for index in range(outline.num_responses)]
        return self.compared(outline, mode)


BENCHMARKS: Kinds[Benchmark] = Kinds("tirjudge.benchmarks", what="benchmark")
"""All that are installed, by name: ours, and those of other packages."""
