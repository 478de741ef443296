"""The definition of a benchmark: the source of its rows, the conversion of a row to examples, and its metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tirjudge.kinds import Kinds
from tirjudge.right import ScoringRule
from tirjudge.types import Mode
from tirjudge_harness.examples import Example, ExampleMetadata
from tirjudge_harness.metric_tree import Node
from tirjudge_harness.protocols import DEFAULT_OFFICIAL, DEFAULT_RULE, Official, OfficialSampling, Protocol

Row = Mapping[str, Any]
Compared = Callable[[ExampleMetadata, Mode], list[tuple[int, ...]]]
Joined = Callable[[Example, Example], Example]


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSource:
    """Rows on the Hugging Face hub: the arguments of `datasets.load_dataset`."""

    id: str
    """Name of the repository; or `json`, for files at a URL."""
    split: str
    """Name of the split. `*`: all splits; each row then gets the name of its split as the column `split`."""
    config: str | None = None
    revision: str = "main"
    """Branch or commit of the repository. With a commit, results are reproducible."""
    files: str | tuple[str, ...] | None = None
    """A file of the repository, or a URL, to read; or several. None: the default files."""
    license: str | None = None
    """License of the rows. None: unknown, or none is named."""
    num_rows: int | None = None
    """Number of rows. None: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltInSource:
    """Rows that this package generates, without a download."""

    id: str
    """Name of the rows, for the manifest of a run."""
    revision: str
    """Version of the rows, for the manifest of a run."""
    rows: Callable[[], Sequence[Row]]
    """Return the rows."""

    @property
    def license(self) -> str:
        """License of the rows."""
        return "as this package"

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.rows())


def every_pair(outline: ExampleMetadata, mode: Mode) -> list[tuple[int, ...]]:
    """Return each pair of a right and a wrong response, as indexes. In listwise mode: one tuple of all indexes."""
    if mode is Mode.LISTWISE:
        return [tuple(range(outline.num_responses))]
    wrong = [index for index in range(outline.num_responses) if index not in outline.correct]
    return [(right, other) for right in outline.correct for other in wrong]


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One benchmark."""

    name: str
    """Name on the command line."""
    title: str
    """Name in tables."""
    citation: str
    """Authors, year and title of the paper, or a URL."""
    sources: Mapping[str, HubSource | BuiltInSource]
    """Name of a part, such as a split -> its source."""
    columns: tuple[str, ...]
    """Columns that each row must have."""
    examples: Callable[[Row, str], Iterable[Example]]
    """Convert one row of a part to examples. Raises ValueError or KeyError if the row is invalid."""
    sheet: tuple[Node, ...]
    """Tree of metrics. The first node is the headline metric."""
    breakdown: tuple[str, ...] = ()
    """Tags whose values become further metrics, such as the language. The values are those of the rows."""
    parts: tuple[str, ...] = ()
    """Parts that are judged by default. Empty: all parts."""
    modes: tuple[Mode, ...] = (Mode.PAIRWISE, Mode.POINTWISE)
    """Supported modes. The first is the default. Empty: each example names its own mode, see `ExampleMetadata.mode`."""
    compared: Compared = every_pair
    """Return the comparisons of an example, as tuples of response indexes. In pairwise and listwise mode, each comparison is
    one request. In pointwise mode, the scores of the responses in a comparison are compared; a comparison of one response
    accepts or rejects it."""
    joined: Joined | None = None
    """Join two examples with the same id and texts, such as two votes on one pair. None: the second is a duplicate."""
    official: Mapping[Mode | None, Official] = field(default_factory=lambda: DEFAULT_OFFICIAL)
    """The official rule for each mode of a run; None: each example has its own mode. A missing mode uses the default rule:
    one order, a tie counts as 0.5."""

    @property
    def default_parts(self) -> tuple[str, ...]:
        """Names of the parts that are judged by default."""
        return self.parts or tuple(self.sources)

    @property
    def default_mode(self) -> Mode | None:
        """The mode of a run that names none. None: each example names its own mode."""
        return self.modes[0] if self.modes else None

    def check_mode(self, mode: Mode | None, *, option: str) -> None:
        """Check that the benchmark has a mode.

        Args:
            mode: mode of a run. None: each example names its own mode.
            option: name of the option, for the message.

        Raises:
            ValueError: the benchmark does not have this mode.
        """
        if mode is not None and not self.modes:
            raise ValueError(
                f"{option}: {mode.value!r} given, but each item of {self.name} has its own mode; leave it out"
            )
        if mode not in self.modes and self.modes:
            given = None if mode is None else mode.value
            raise ValueError(f"{option}: {given!r} is not a mode of {self.name}; choose {', '.join(self.modes)}")

    def rule(self, protocol: Protocol, *, mode: Mode | None) -> tuple[Literal["single", "both"], ScoringRule]:
        """Return the orders to request and the scoring rule, under a protocol. `mode`: the mode of the run, or None if
        each example names its own."""
        own = self.official_for(mode)
        return (own.orders, own.counting) if protocol.counting is None else (protocol.orders, protocol.counting)

    def official_for(self, mode: Mode | None) -> Official:
        """Return the official rule for the mode of a run. None: each example has its own mode."""
        return self.official.get(mode, DEFAULT_RULE)

    def sampling(self, protocol: Protocol, *, mode: Mode | None) -> OfficialSampling | None:
        """Return how answers are sampled under a protocol. None: as the request and the profile of the judge say."""
        return self.official_for(mode).sampling if protocol.counting is None else None

    def asked(self, outline: ExampleMetadata, *, mode: Mode) -> list[tuple[int, ...]]:
        """Return the response indexes of each request about an example: each response alone, or each comparison."""
        if mode is Mode.POINTWISE:
            return [(index,) for index in range(outline.num_responses)]
        return self.compared(outline, mode)


BENCHMARKS: Kinds[Benchmark] = Kinds("tirjudge.benchmarks", what="benchmark")
"""All installed benchmarks by name, including those of other packages."""
