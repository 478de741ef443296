"""Metrics: a mean over comparison scores, a mean over other metrics, or a formula.

A benchmark declares a tree of metrics. Values and confidence intervals are computed from this tree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from tirjudge.selective import GradedItem
from tirjudge.types import Basis
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import ExampleMetadata

MAX_BREAKDOWN = 50
"""Maximum number of values of one tag that become metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonScore:
    """The score of one comparison."""

    outline: ExampleMetadata
    compared: tuple[int, ...]
    """Indexes of the compared responses."""
    credit: float
    """Score from 0 to 1."""
    result: str
    """`right`, `wrong`, `tie`, or `none` (no verdict)."""
    basis: Basis | None = None
    """Basis of the decisions that counted, together. None: no verdict, or not known."""

    @property
    def graded(self) -> GradedItem:
        """The comparison as an item of coverage and selective accuracy."""
        return GradedItem(credit=self.credit, has_verdict=self.result != "none", basis=self.basis)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanMetric:
    """The mean score (`credit`) of selected comparisons."""

    name: str
    holds: Callable[[ComparisonScore], bool]
    """Whether a comparison counts in this metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """The mean of other metrics."""

    name: str
    parts: tuple[Node, ...]
    weights: tuple[float, ...] | None = None
    """Weight of each part. None: equal weights. A part without comparisons is left out together with its weight."""
    whole: bool = False
    """Whether the mean is None if one of its parts has no value."""


def always(judged: JudgedExample) -> bool:
    """Return True: select every example."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class FormulaOfMeans:
    """A function for `FormulaMetric.compute` that needs only the means of some numbers over the examples. Its resamples are
    sums over clusters, which are fast."""

    each: Callable[[JudgedExample], Sequence[float] | None]
    """Return the numbers of an example. If their number differs, those that all examples have count. None: the example does
    not count."""
    value: Callable[[Sequence[float]], float | None]
    """Compute the metric from the means."""

    def __call__(self, judged: Sequence[JudgedExample]) -> float | None:
        """Compute the metric from examples. None: no example counts."""
        found = [numbers for one in judged if (numbers := self.each(one)) is not None]
        return self.value([fmean(column) for column in zip(*found, strict=False)]) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FormulaMetric:
    """A metric that is not a mean, computed by a function."""

    name: str
    compute: Callable[[Sequence[JudgedExample]], float | None]
    """Compute the metric from the selected examples. None: a necessary example was not judged. A bootstrap sample can
    contain a cluster twice, under two names; use `outline.cluster` to find the examples of one cluster."""
    holds: Callable[[JudgedExample], bool] = always
    """Whether an example is passed to `compute`."""
    bounded: bool = True
    """Whether the value is between 0 and 1."""


Node = MeanMetric | Mean | FormulaMetric


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricValue:
    """The value of one metric in the tree."""

    name: str
    depth: int
    """Depth in the tree. The roots have depth 0."""
    value: float | None
    """Value of the metric. None: no selected comparison or example was judged."""
    num_marks: int
    """Number of comparisons in the value; for a formula, the number of examples."""
    interval: tuple[float, float] | None = None
    """95 % interval. Wilson's interval for means, with the effective number of comparisons if clusters have several; a
    bootstrap over clusters for formulas. None: there is only one cluster."""


def cells_by(tag: str, values: Sequence[str]) -> tuple[MeanMetric, ...]:
    """Return one metric per value of a tag, or of the subset if `tag` is `subset`."""

    def holding(value: str) -> Callable[[ComparisonScore], bool]:
        if tag == "subset":
            return lambda mark: mark.outline.subset == value
        return lambda mark: mark.outline.tags.get(tag) == value

    return tuple(MeanMetric(name=value, holds=holding(value)) for value in values)


def breakdown_by(tag: str, marks: Sequence[ComparisonScore]) -> tuple[MeanMetric, ...]:
    """Return one metric per value of a tag in the comparisons, sorted; of more than `MAX_BREAKDOWN`, the most frequent."""
    counted = Counter(mark.outline.tags[tag] for mark in marks if tag in mark.outline.tags)
    values = sorted(value for value, _ in counted.most_common(MAX_BREAKDOWN))
    return tuple(replace(cell, name=f"{tag}: {cell.name}") for cell in cells_by(tag, values))
