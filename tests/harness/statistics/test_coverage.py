"""95 % intervals contain the true value in about 95 % of simulated runs, at the sizes that benchmarks have."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.random import Generator

from tirjudge_harness.statistics.clustered import (
    ClusteredMean,
    clustered_mean,
    difference_interval,
    one_cell,
    share_interval,
)

NUM_RUNS = 1000
"""Number of simulated runs. The standard error of a coverage of 95 % is 0.7 points."""

Draw = Callable[[Generator], ClusteredMean | None]


def coverage(draw: Draw, *, truth: float, interval: Callable[[ClusteredMean], tuple[float, float]]) -> float:
    rng = np.random.default_rng(20)
    found = [mean for _ in range(NUM_RUNS) if (mean := draw(rng)) is not None]
    assert len(found) == NUM_RUNS
    return float(np.mean([low <= truth <= high for low, high in map(interval, found)]))


def of_parts(sizes: Sequence[int], rates: Sequence[float], *, num_each: int = 1, sameness: float = 0.0) -> Draw:
    """Draw runs with parts of equal weight. Each prompt has `num_each` comparisons with the correlation `sameness`."""
    cells = np.repeat(np.arange(len(sizes)), sizes)
    inside = np.eye(len(sizes))[cells]

    def draw(rng: Generator) -> ClusteredMean | None:
        rate = np.array(rates)[cells]
        if sameness:
            strength = 1 / sameness - 1
            rate = rng.beta(rate * strength, (1 - rate) * strength)
        right = rng.binomial(num_each, rate)
        return clustered_mean(inside * right[:, None], inside * num_each, weights=np.full(len(sizes), 1 / len(sizes)))

    return draw


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "rates"),
    [
        pytest.param([12, 16, 25, 47], [0.97, 0.8, 0.92, 0.9], id="rewardbench-100"),
        pytest.param([3] * 23, list(np.linspace(0.8, 0.99, 23)), id="69-in-23-subsets"),
        pytest.param([22, 14, 8, 6], [0.7, 0.6, 0.8, 0.75], id="judgebench-50"),
        pytest.param([475, 160, 183, 450, 495], [0.7, 0.4, 0.65, 0.9, 0.85], id="rewardbench2"),
    ],
)
def test_macro_means_of_small_and_large_parts_have_their_coverage(sizes: list[int], rates: list[float]) -> None:
    """A bootstrap has 88 to 91 % here if the parts are small and most comparisons are right."""
    found = coverage(of_parts(sizes, rates), truth=float(np.mean(rates)), interval=share_interval)
    assert 0.935 <= found <= 0.985


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "num_each"),
    [
        pytest.param([512] * 5, 5, id="ppe"),
        pytest.param([20] * 5, 5, id="ppe-100-prompts"),
        pytest.param([129, 529, 228, 441], 9, id="rmbench"),
        pytest.param([13, 53, 23, 44], 9, id="rmbench-133-prompts"),
    ],
)
def test_means_with_several_comparisons_of_one_prompt_have_their_coverage(sizes: list[int], num_each: int) -> None:
    rates = np.linspace(0.7, 0.9, len(sizes))
    draw = of_parts(sizes, list(rates), num_each=num_each, sameness=0.4)
    found = coverage(draw, truth=float(rates.mean()), interval=share_interval)
    assert 0.93 <= found <= 0.975


@pytest.mark.slow
@pytest.mark.parametrize("num_prompts", [5, 20, 100])
def test_one_mean_over_few_prompts_has_its_coverage(num_prompts: int) -> None:
    found = coverage(of_parts([num_prompts], [0.7], num_each=5, sameness=0.4), truth=0.7, interval=share_interval)
    assert 0.93 <= found <= 0.985


@pytest.mark.slow
@pytest.mark.parametrize(("num_pairs", "discordant"), [(20, 0.2), (50, 0.1), (350, 0.05), (350, 0.3)])
def test_paired_differences_have_their_coverage(num_pairs: int, discordant: float) -> None:
    """A bootstrap has 85 % for 20 pairs, and less if few pairs differ."""
    better, worse = discordant / 2 + 0.01, discordant / 2 - 0.01

    def draw(rng: Generator) -> ClusteredMean | None:
        gains = rng.choice([1.0, -1.0, 0.0], size=num_pairs, p=[better, worse, 1 - better - worse])
        return one_cell(list(gains), np.arange(num_pairs))

    assert 0.94 <= coverage(draw, truth=0.02, interval=difference_interval) <= 0.995


def test_a_small_simulation_of_two_parts_has_its_coverage() -> None:
    """A fast check of one size."""
    rng, draw = np.random.default_rng(1), of_parts([10, 30], [0.95, 0.8])
    intervals = [share_interval(mean) for _ in range(200) if (mean := draw(rng)) is not None]
    assert 0.92 <= np.mean([low <= 0.875 <= high for low, high in intervals]) <= 0.99
