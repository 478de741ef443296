"""Figures with 95 % intervals: Wilson's where every mark is of another prompt, else a bootstrap that draws prompts.

A resample draws as many clusters as there are, with replacement, and takes everything of each. One recursion over the
sheet computes it: the data themselves are the resample in which each cluster comes once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from tirjudge.statistics import wilson_interval
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.metric_tree import ComparisonScore, FormulaMetric, Mean, MeanMetric, MetricValue, Node

NUM_RESAMPLES = 1000
MOST_RESAMPLES_OF_A_FORMULA = 200
"""A formula is computed anew for each, in Python."""

_DRAWS_AT_ONCE = 1 << 17
"""Clusters drawn before they are added up: few enough to stay in a cache."""

Array: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Interval: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean of numbers, or another figure over them."""

    value: float | None
    """None: of nothing."""
    num: int
    """How many numbers it rests on."""
    interval: Interval | None
    """95 %; None of nothing, and of several numbers of one cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What the nodes of a sheet rest on."""

    marks: Sequence[ComparisonScore]
    holds: Mapping[Node, Mask]
    """Which marks each rests on; a formula on none."""
    judged: Mapping[Node, Sequence[JudgedExample]]
    """Which examples the formulas in each rest on."""

    def clusters(self, node: Node) -> set[str]:
        """The prompts that a node rests on."""
        of_marks = {mark.outline.cluster for mark, held in zip(self.marks, self.holds[node], strict=True) if held}
        return of_marks | {one.outline.cluster for one in self.judged[node]}


def basis_of(sheet: Sequence[Node], marks: Sequence[ComparisonScore], judged: Sequence[JudgedExample]) -> Basis:
    """What every node of a sheet rests on."""
    holds: dict[Node, Mask] = {}
    examples: dict[Node, list[JudgedExample]] = {}

    def visit(node: Node) -> None:
        match node:
            case MeanMetric():
                holds[node] = np.fromiter((node.holds(mark) for mark in marks), dtype=bool, count=len(marks))
                examples[node] = []
            case FormulaMetric():
                holds[node] = np.zeros(len(marks), dtype=bool)
                examples[node] = [one for one in judged if node.holds(one)]
            case Mean():
                for part in node.parts:
                    visit(part)
                holds[node] = np.any([np.zeros(len(marks), dtype=bool), *(holds[p] for p in node.parts)], axis=0)
                examples[node] = list({id(one): one for p in node.parts for one in examples[p]}.values())

    for node in sheet:
        visit(node)
    return Basis(marks=marks, holds=holds, judged=examples)


def figures_of(
    sheet: Sequence[Node],
    marks: Sequence[ComparisonScore],
    judged: Sequence[JudgedExample],
    *,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = 0,
) -> list[MetricValue]:
    """The figures of a sheet with their intervals, each before its parts.

    Args:
        sheet: what is computed.
        marks: what the comparisons earned; cells and means are over these.
        judged: what formulas are computed from.
        num_resamples: for intervals; a figure with a formula in it takes at most 200.
        seed: of the draws.
    """
    basis = basis_of(sheet, marks, judged)
    values = resampled(basis, num_resamples=num_resamples, seed=seed)
    return [_figure(node, depth=depth, values=values[node], basis=basis) for node, depth in walk(sheet)]


def value_of(node: Node, marks: Sequence[ComparisonScore], judged: Sequence[JudgedExample]) -> float | None:
    """The value of one figure; None if nothing that it speaks of was judged."""
    return number(resampled(basis_of([node], marks, judged), num_resamples=0)[node][0])


def share_of(
    values: Sequence[float], *, clusters: Sequence[str], num_resamples: int = NUM_RESAMPLES, seed: int = 0
) -> Estimate:
    """The mean of numbers between 0 and 1, which come from prompts.

    Args:
        values: the numbers.
        clusters: the prompt of each.
    """
    num, num_clusters, total = len(values), len(set(clusters)), float(np.sum(values))
    if not num:
        return Estimate(value=None, num=0, interval=None)
    if num_clusters == num:
        return Estimate(value=total / num, num=num, interval=wilson_interval(total, num_trials=num))
    ratios = _means(values, clusters=clusters, num_resamples=num_resamples, seed=seed)
    interval = _interval_of(ratios, num_clusters=num_clusters, bounded=True)
    return Estimate(value=float(ratios[0]), num=num, interval=interval)


def clustered_share(pairs: Iterable[tuple[str, float]]) -> Estimate:
    """As `share_of`, of numbers that come with their prompts."""
    found = list(pairs)
    return share_of([value for _, value in found], clusters=[cluster for cluster, _ in found])


def average_of(
    values: Sequence[float], *, clusters: Sequence[str], num_resamples: int = NUM_RESAMPLES, seed: int = 0
) -> Estimate:
    """The mean of any numbers, which come from prompts.

    Args:
        values: the numbers.
        clusters: the prompt of each.
        num_resamples: for the interval.
        seed: of the draws.
    """
    if not values:
        return Estimate(value=None, num=0, interval=None)
    means = _means(values, clusters=clusters, num_resamples=num_resamples, seed=seed)
    interval = middle_of(means, num_clusters=len(set(clusters)))
    return Estimate(value=float(means[0]), num=len(values), interval=interval)


def _means(values: Sequence[float], *, clusters: Sequence[str], num_resamples: int, seed: int) -> Array:
    """Of the data, then of each resample."""
    codes, column = codes_of(clusters), np.array(values, dtype=float)[:, None]
    num_clusters = int(codes.max()) + 1
    totals = _by_cluster(column, codes, num_clusters=num_clusters)
    counts = _by_cluster(np.ones_like(column), codes, num_clusters=num_clusters)
    return _ratios(totals, counts, num_resamples=num_resamples, seed=seed)[:, 0]


def resampled(basis: Basis, *, num_resamples: int, seed: int = 0) -> dict[Node, Array]:
    """The values of every node: first of the data, then of each resample; not a number where there is none.

    Two runs over the same clusters are resampled alike under the same seed, so that their values can be subtracted.
    """
    formulas = [node for node in basis.judged if isinstance(node, FormulaMetric)]
    cells = [node for node in basis.holds if isinstance(node, MeanMetric)]
    of_formulas = {one.outline.cluster for node in formulas for one in basis.judged[node]}
    names = sorted({mark.outline.cluster for mark in basis.marks} | of_formulas)
    place = {name: index for index, name in enumerate(names)}
    values: dict[Node, Array] = {}
    if cells:
        held = np.array([basis.holds[cell] for cell in cells], dtype=float).T
        credits = np.array([mark.credit for mark in basis.marks], dtype=float)[:, None]
        codes = np.array([place[mark.outline.cluster] for mark in basis.marks], dtype=np.int64)
        totals = _by_cluster(held * credits, codes, num_clusters=len(names))
        counts = _by_cluster(held, codes, num_clusters=len(names))
        ratios = _ratios(totals, counts, num_resamples=num_resamples, seed=seed)
        values |= {cell: ratios[:, index] for index, cell in enumerate(cells)}
    few = min(num_resamples, MOST_RESAMPLES_OF_A_FORMULA)
    for node in formulas:
        values[node] = _formula_values(node, basis.judged[node], place=place, num_resamples=few, seed=seed)
    for node in basis.holds:
        if isinstance(node, Mean):  # its parts stand before it
            values[node] = _mean(node, values=values)
    return values


def walk(sheet: Sequence[Node]) -> Iterator[tuple[Node, int]]:
    """Each node before its parts, with how deep it is; one that stands in several places only where it comes first."""
    met: set[Node] = set()

    def below(nodes: Sequence[Node], *, depth: int) -> Iterator[tuple[Node, int]]:
        for node in nodes:
            if node not in met:
                met.add(node)
                yield node, depth
                if isinstance(node, Mean):
                    yield from below(node.parts, depth=depth + 1)

    return below(sheet, depth=0)


def number(value: float) -> float | None:
    """None for what is not a number."""
    return None if np.isnan(value) else float(value)


def codes_of(names: Sequence[str]) -> NDArray[np.int64]:
    """The place of each name among all of them, sorted: draws must not depend on the order in which a run finished."""
    place = {name: index for index, name in enumerate(sorted(set(names)))}
    return np.array([place[name] for name in names], dtype=np.int64)


def draws(num_clusters: int, *, num_resamples: int, seed: int) -> Iterator[Array]:
    """How often each cluster is drawn: rows of resamples, some at a time; the first row is the data, once each."""
    yield np.ones((1, num_clusters))
    rng = np.random.default_rng(seed)
    at_once = max(1, _DRAWS_AT_ONCE // max(1, num_clusters))
    for start in range(0, num_resamples if num_clusters else 0, at_once):
        rows = min(at_once, num_resamples - start)
        drawn = rng.integers(num_clusters, size=(rows, num_clusters))
        drawn += np.arange(rows)[:, None] * num_clusters
        yield np.bincount(drawn.ravel(), minlength=rows * num_clusters).reshape(rows, num_clusters).astype(float)


def middle_of(values: Array, *, num_clusters: int) -> Interval | None:
    """The middle 95 % of the resamples, widened to hold the value of the data, which comes first in `values`."""
    value, others = values[0], values[1:][~np.isnan(values[1:])]
    if np.isnan(value) or num_clusters < 2 or not others.size:
        return None
    low, high = np.percentile(others, [2.5, 97.5])
    return min(float(low), float(value)), max(float(high), float(value))


def _interval_of(values: Array, *, num_clusters: int, bounded: bool) -> Interval | None:
    """As `middle_of`, but for marks that are all right or all wrong: resamples of these are all alike, which says
    nothing about the next mark, and Wilson's interval over the clusters is given."""
    if bounded and num_clusters > 1 and values[0] in (0.0, 1.0):
        return wilson_interval(float(values[0]) * num_clusters, num_trials=num_clusters)
    return middle_of(values, num_clusters=num_clusters)


def _figure(node: Node, *, depth: int, values: Array, basis: Basis) -> MetricValue:
    num_marks = int(basis.holds[node].sum())
    clusters = basis.clusters(node)
    if isinstance(node, MeanMetric) and num_marks and len(clusters) == num_marks:
        interval = wilson_interval(float(values[0]) * num_marks, num_trials=num_marks)
    else:
        interval = _interval_of(values, num_clusters=len(clusters), bounded=_is_bounded(node))
    return MetricValue(
        name=node.name,
        depth=depth,
        value=number(values[0]),
        num_marks=num_marks + len(basis.judged[node]),
        interval=interval,
    )


def _is_bounded(node: Node) -> bool:
    if isinstance(node, Mean):
        return all(map(_is_bounded, node.parts))
    return isinstance(node, MeanMetric) or node.bounded


def _by_cluster(columns: Array, codes: NDArray[np.int64], *, num_clusters: int) -> Array:
    """[marks, cells] added up to [clusters, cells]."""
    sums = np.zeros((num_clusters, columns.shape[1]))
    np.add.at(sums, codes, columns)
    return sums


def draw_sums(columns: Array, *, num_resamples: int, seed: int) -> Array:
    """[clusters, columns] added up to [1 + resamples, columns]; the first row is of the data."""
    with threadpool_limits(limits=1, user_api="blas"):  # matrices this thin are slower on several threads
        sums = [rows @ columns for rows in draws(len(columns), num_resamples=num_resamples, seed=seed)]
    return np.vstack(sums)


def _ratios(totals: Array, counts: Array, *, num_resamples: int, seed: int) -> Array:
    """[1 + resamples, cells]: sums over the drawn clusters, divided."""
    sums = draw_sums(np.hstack([totals, counts]), num_resamples=num_resamples, seed=seed)
    num_cells = totals.shape[1]
    with np.errstate(invalid="ignore"):
        return sums[:, :num_cells] / sums[:, num_cells:]


def _mean(node: Mean, *, values: Mapping[Node, Array]) -> Array:
    """A part without a value is left out, with its weight."""
    rows = min((len(values[part]) for part in node.parts), default=1)
    parts = np.array([values[part][:rows] for part in node.parts]).reshape(len(node.parts), rows)
    weights = np.ones(len(node.parts)) if node.weights is None else np.array(node.weights, dtype=float)
    there = ~np.isnan(parts)
    with np.errstate(invalid="ignore"):
        means = (weights @ np.where(there, parts, 0.0)) / (weights @ there)
    return np.where(there.all(axis=0), means, np.nan) if node.whole else means


def _formula_values(
    formula: FormulaMetric, judged: Sequence[JudgedExample], *, place: Mapping[str, int], num_resamples: int, seed: int
) -> Array:
    by_cluster: dict[int, list[JudgedExample]] = defaultdict(list)
    for one in judged:
        by_cluster[place[one.outline.cluster]].append(one)
    copies: dict[tuple[int, int], list[JudgedExample]] = {}
    values: list[float] = []
    for rows in draws(len(place), num_resamples=num_resamples, seed=seed):
        for row in rows.astype(int):
            drawn: list[JudgedExample] = []
            for code, members in sorted(by_cluster.items()):
                for copy in range(row[code]):
                    if (code, copy) not in copies:
                        copies[code, copy] = [_copy(one, copy=copy) for one in members]
                    drawn += copies[code, copy]
            value = formula.compute(drawn) if drawn else None
            values.append(np.nan if value is None else value)
    return np.array(values)


def _copy(judged: JudgedExample, *, copy: int) -> JudgedExample:
    """The same, as another example of another cluster: what is drawn twice counts twice."""
    if not copy:
        return judged
    outline = judged.outline
    renamed = replace(outline, id=f"{outline.id}#{copy}", cluster=f"{outline.cluster}#{copy}")
    return replace(judged, outline=renamed)
