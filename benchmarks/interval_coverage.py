"""Measure the coverage of 95 % intervals in simulated runs, at the sizes that benchmarks have.

    python benchmarks/interval_coverage.py --out benchmarks/results/interval_coverage.json

Each scenario draws runs with known accuracies. The coverage is the share of runs whose interval contains the true value:

closed      the intervals of the harness: `share_interval` and `difference_interval`
bootstrap   percentiles of 500 resamples of prompts, which the harness used before
people      Wilson's interval from labels of people alone
corrected   the interval from labels and verdicts: `prediction_powered`
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import typer
from numpy.random import Generator
from reporting import Out, report

from tirjudge_harness.benchmarks.rewardbench import SECTIONS
from tirjudge_harness.row_sampling import shares_of
from tirjudge_harness.statistics.clustered import clustered_mean, difference_interval, share_interval
from tirjudge_harness.statistics.intervals import Array, Interval, draw_sums, middle_of
from tirjudge_harness.statistics.prediction_powered import prediction_powered

NUM_RESAMPLES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """One simulated run."""

    totals: Array
    """Sum of scores, or of differences, of each prompt in each cell, [prompts, cells]."""
    counts: Array
    """Number of scores of each prompt in each cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Runs of one kind."""

    name: str
    draw: Callable[[Generator], Simulated]
    weights: Array
    """Weight of each cell."""
    truth: float
    is_difference: bool = False


def main(
    runs: Annotated[int, typer.Option(help="Number of simulated runs per scenario.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the simulated runs.")] = 0,
    out: Out = None,
) -> None:
    """Measure, and print the result as JSON."""
    found: dict[str, Any] = {}
    for scenario in scenarios():
        found[scenario.name] = coverage(scenario, num_runs=runs, seed=seed)
        print(scenario.name, found[scenario.name], file=sys.stderr)
    for num, rate, right in ((50, 0.6, 0.85), (100, 0.9, 0.85), (300, 0.6, 0.85), (300, 0.6, 0.98)):
        name = f"{num} labels of 2,000, rate {rate}, judge right on {right}"
        found[name] = coverage_of_labels(num, rate=rate, right=right, num_runs=runs, seed=seed)
        print(name, found[name], file=sys.stderr)
    report({"runs": runs, "seed": seed, "resamples": NUM_RESAMPLES, "coverage": found}, out)


def coverage(scenario: Scenario, *, num_runs: int, seed: int) -> dict[str, float]:
    """Return the coverage of the closed form and of the bootstrap."""
    rng = np.random.default_rng(seed)
    held: dict[str, list[bool]] = {"closed": [], "bootstrap": []}
    for number in range(num_runs):
        run = scenario.draw(rng)
        mean = clustered_mean(run.totals, run.counts, weights=scenario.weights)
        assert mean is not None
        closed = difference_interval(mean) if scenario.is_difference else share_interval(mean)
        drawn = bootstrap(run, weights=scenario.weights, seed=number)
        for name, interval in (("closed", closed), ("bootstrap", drawn)):
            held[name].append(interval is not None and interval[0] <= scenario.truth <= interval[1])
    return {name: round(float(np.mean(found)), 3) for name, found in held.items()}


def bootstrap(run: Simulated, *, weights: Array, seed: int) -> Interval | None:
    """Return the percentile interval. A cell that a resample lacks is left out together with its weight."""
    sums = draw_sums(np.hstack([run.totals, run.counts]), num_resamples=NUM_RESAMPLES, seed=seed)
    totals, counts = np.hsplit(sums, 2)
    means = np.divide(totals, counts, out=np.zeros_like(totals), where=counts > 0)
    values = (means @ weights) / ((counts > 0) @ weights)
    return middle_of(values, num_clusters=len(run.totals))


def coverage_of_labels(num: int, *, rate: float, right: float, num_runs: int, seed: int) -> dict[str, float]:
    """Return the coverage of the intervals from labels alone, and from labels and verdicts."""
    rng = np.random.default_rng(seed)
    held: dict[str, list[bool]] = {"people": [], "corrected": []}
    names = [str(n) for n in range(2000)]
    for _ in range(num_runs):
        truth = rng.random(2000) < rate
        verdicts = np.where(rng.random(2000) < right, truth, ~truth).astype(float)
        labels = [*truth[:num].astype(float).tolist(), *[None] * (2000 - num)]
        found = prediction_powered(labels, verdicts.tolist(), clusters=names, is_share=True)
        for name, one in (("people", found.people), ("corrected", found.corrected)):
            held[name].append(one.interval is not None and one.interval[0] <= rate <= one.interval[1])
    return {name: round(float(np.mean(found)), 3) for name, found in held.items()}


def scenarios() -> Iterator[Scenario]:
    """Yield all scenarios."""
    yield rewardbench(accuracy=0.9, limit=None)
    yield rewardbench(accuracy=0.9, limit=100)
    yield rewardbench(accuracy=0.95, limit=50)
    yield parts("RM-Bench", [129, 529, 228, 441], num_each=9)
    yield parts("RM-Bench, 133 prompts", [13, 53, 23, 44], num_each=9)
    yield parts("PPE", [512] * 5, num_each=5)
    yield parts("PPE, 8 prompts of each set", [8] * 5, num_each=5)
    for num, accuracy in ((5, 0.6), (20, 0.9), (50, 0.97)):
        yield parts(f"{num} prompts of 5, accuracy {accuracy}", [num], num_each=5, lowest=accuracy, highest=accuracy)
    for num, discordant in ((20, 0.05), (20, 0.2), (50, 0.05), (350, 0.05), (350, 0.2)):
        yield difference(num, discordant=discordant)


def rewardbench(*, accuracy: float, limit: int | None) -> Scenario:
    """Return runs on RewardBench, whose subsets have accuracies around a mean."""
    weights = {name: weight for section in SECTIONS.values() for name, weight in section.items()}
    sizes = weights | {"math-prm": 447}
    if limit is not None:
        sizes = shares_of(sizes, size=limit)
    rates = np.clip(accuracy + np.random.default_rng(7).normal(0, 0.06, len(sizes)), 0.02, 0.995)
    present = np.array([size > 0 for size in sizes.values()])
    sections = [np.array([name in section for name in sizes]) & present for section in SECTIONS.values()]
    of_all = np.array(list(weights.values()), dtype=float)
    of_sections = [np.where(inside, of_all, 0) / of_all[inside].sum() for inside in sections]
    shown = "all pairs" if limit is None else f"--limit {limit}"
    return Scenario(
        name=f"RewardBench, {shown}, accuracy {accuracy}",
        draw=drawing(list(sizes.values()), rates, num_each=1, sameness=0.0),
        weights=np.mean(of_sections, axis=0),
        truth=float(np.mean(of_sections, axis=0) @ rates),
    )


def parts(name: str, sizes: Sequence[int], *, num_each: int, lowest: float = 0.7, highest: float = 0.9) -> Scenario:
    """Return runs with parts of equal weight, and several comparisons of each prompt with a correlation of 0.4."""
    rates = np.linspace(lowest, highest, len(sizes))
    return Scenario(
        name=name,
        draw=drawing(sizes, rates, num_each=num_each, sameness=0.4),
        weights=np.full(len(sizes), 1 / len(sizes)),
        truth=float(rates.mean()),
    )


def drawing(sizes: Sequence[int], rates: Array, *, num_each: int, sameness: float) -> Callable[[Generator], Simulated]:
    """Return a function that draws a run: sizes are numbers of prompts, and each has `num_each` comparisons."""
    cells = np.repeat(np.arange(len(sizes)), sizes)
    inside = np.eye(len(sizes))[cells]

    def draw(rng: Generator) -> Simulated:
        rate = rates[cells]
        if sameness:
            strength = 1 / sameness - 1
            rate = rng.beta(rate * strength, (1 - rate) * strength)
        return Simulated(totals=inside * rng.binomial(num_each, rate)[:, None], counts=inside * num_each)

    return draw


def difference(num: int, *, discordant: float) -> Scenario:
    """Return pairs of runs that differ on a share of comparisons, by 2 points."""
    better, worse = discordant / 2 + 0.01, discordant / 2 - 0.01

    def draw(rng: Generator) -> Simulated:
        gains = rng.choice([1.0, -1.0, 0.0], size=num, p=[better, worse, 1 - better - worse])
        return Simulated(totals=gains[:, None], counts=np.ones((num, 1)))

    return Scenario(
        name=f"difference over {num} pairs, {discordant:.0%} differ",
        draw=draw,
        weights=np.ones(1),
        truth=0.02,
        is_difference=True,
    )


if __name__ == "__main__":
    typer.run(main)
