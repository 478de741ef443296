"""What marks add up to: named figures, each a mean over marks, a mean over other figures, or a formula of its own.

A benchmark declares its figures as a tree of these; values and intervals both come from that one declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import ExampleMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonScore:
    """What one comparison earned."""

    outline: ExampleMetadata
    compared: tuple[int, ...]
    """Indexes of the responses that were set against each other."""
    credit: float
    """0 to 1."""
    result: str
    """`right`, `wrong`, `tie`, or `none` for no verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanMetric:
    """The mean credit of some of the marks."""

    name: str
    holds: Callable[[ComparisonScore], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """The mean of other figures."""

    name: str
    parts: tuple[Node, ...]
    weights: tuple[float, ...] | None = None
    """None: all count alike. A part without marks is left out, with its weight."""
    whole: bool = False
    """Whether it has no value unless each of its parts has one."""


def always(judged: JudgedExample) -> bool:
    """Every example."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class FormulaMetric:
    """A figure that no mean gives."""

    name: str
    compute: Callable[[Sequence[JudgedExample]], float | None]
    """None: what it needs was not judged. In a resample a cluster may come twice, under two names: examples that belong
    together are found by `outline.cluster`."""
    holds: Callable[[JudgedExample], bool] = always
    """Which examples it speaks of; `compute` is given no others."""
    bounded: bool = True
    """Whether it lies between 0 and 1."""


Node = MeanMetric | Mean | FormulaMetric


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricValue:
    """The value of a node."""

    name: str
    depth: int
    """0 for what the benchmark is cited by; its parts are one deeper."""
    value: float | None
    """None: nothing that it speaks of was judged."""
    num_marks: int
    """That it rests on; a formula rests on examples, and counts those."""
    interval: tuple[float, float] | None = None
    """95 %: Wilson's for a cell whose marks are of one prompt each, else bootstrapped over clusters; None of one cluster."""


def cells_by(tag: str, values: Sequence[str]) -> tuple[MeanMetric, ...]:
    """One cell a value of a tag; `subset` is one."""

    def holding(value: str) -> Callable[[ComparisonScore], bool]:
        if tag == "subset":
            return lambda mark: mark.outline.subset == value
        return lambda mark: mark.outline.tags.get(tag) == value

    return tuple(MeanMetric(name=value, holds=holding(value)) for value in values)
