"""Wilson's interval, compared with values computed manually."""

from __future__ import annotations

import pytest

from tirjudge.statistics import ratio, wilson_interval


@pytest.mark.parametrize(
    ("successes", "num_trials", "low", "high"),
    [
        # Computed with z = 1.96, z^2 = 3.8416: center (s/n + z^2/2n) / (1 + z^2/n), spread z sqrt(p q/n + z^2/4n^2) / (...).
        # 8 of 10: center 0.99208/1.38416 = 0.7167, spread 0.3135/1.38416 = 0.2265.
        (8, 10, 0.4902, 0.9433),
        # 0 of 4: center = spread = 0.4802/1.9604 = 0.2449.
        (0, 4, 0.0, 0.4899),
        # 5.5 of 11: center 1/2, spread 1.96 sqrt(0.25/11 + 3.8416/484) / 1.34924 = 0.2545.
        (5.5, 11, 0.2455, 0.7545),
    ],
)
def test_wilson_interval_equals_values_computed_manually(
    successes: float, num_trials: int, low: float, high: float
) -> None:
    assert wilson_interval(successes, num_trials=num_trials) == (
        pytest.approx(low, abs=2e-4),
        pytest.approx(high, abs=2e-4),
    )


@pytest.mark.parametrize("num_trials", range(1, 200))
def test_wilson_interval_contains_a_share_of_0_or_1(num_trials: int) -> None:
    assert wilson_interval(0, num_trials=num_trials)[0] == 0.0
    assert wilson_interval(num_trials, num_trials=num_trials)[1] == 1.0


def test_ratio_of_zero_is_none() -> None:
    assert ratio(0, of=0) is None
    assert ratio(1, of=4) == 0.25
