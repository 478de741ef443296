"""Prediction-powered estimates; expected values computed manually, or by ppi-python 0.2.3."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tirjudge.statistics import Z_95
from tirjudge_harness.statistics.prediction_powered import PredictionPowered, prediction_powered, surprises_of

LABELS = [1.0] * 12 + [0.0] * 8
VERDICTS = [1.0] * 10 + [0.0] * 2 + [0.0] * 6 + [1.0] * 2
"""The judge is wrong on four of 20 labeled items."""
REST = [1.0] * 40 + [0.0] * 40


def estimate(
    labels: list[float],
    verdicts: list[float],
    rest: list[float],
    *,
    is_share: bool = False,
    tuning: float | None = None,
) -> PredictionPowered:
    return prediction_powered(
        [*labels, *[None] * len(rest)],
        [*verdicts, *rest],
        clusters=[str(n) for n in range(len(verdicts) + len(rest))],
        is_share=is_share,
        tuning=tuning,
    )


def standard_error(found: PredictionPowered, *, quantile: float) -> float:
    low, high = found.corrected.interval or (0.0, 0.0)
    return (high - low) / 2 / quantile


def test_plain_inference_matches_a_manual_computation() -> None:
    """The judge says 60 % on labeled items and 50 % elsewhere, so 60 % become 50 %. Errors have the variance 4/20."""
    found = estimate(LABELS, VERDICTS, REST, tuning=1.0)
    assert found.corrected.value == pytest.approx(0.6 + 0.5 - 0.6)
    variance = 20 / 19 * (0.2 / 20 + 0.25 / 80)
    assert standard_error(found, quantile=2.100922) == pytest.approx(variance**0.5, rel=1e-4)  # t with 18
    assert found.num_effective == pytest.approx(20 * 0.24 / 20 / (0.2 / 20 + 0.25 / 80))
    assert found.judge == pytest.approx(52 / 100)
    assert (found.people.value, found.people.num, found.corrected.num) == (0.6, 20, 100)


def test_the_tuning_matches_a_manual_computation() -> None:
    """Covariance of label and verdict: 10/20 - 0.6²; variances of the verdicts: 0.24 on 20 items, 0.25 on 80."""
    found = estimate(LABELS, VERDICTS, REST)
    assert found.tuning == pytest.approx((0.14 / 20) / (0.24 / 20 + 0.25 / 80))
    assert found.correlation == pytest.approx(0.14 / 0.24)


def test_a_share_counts_two_more_errors() -> None:
    """One error of 1 and one of -1 among 22 items. The interval is Wilson's, with the same variance and t."""
    found = estimate(LABELS, VERDICTS, REST, is_share=True, tuning=1.0)
    variance = 20 / 19 * (0.2 / 20 + 0.25 / 80) + 2 / 22**2
    num = 0.25 / variance * (Z_95 / 2.100922) ** 2
    half = Z_95 / (1 + Z_95**2 / num) * (0.25 / num + Z_95**2 / 4 / num**2) ** 0.5
    assert found.corrected.interval == pytest.approx((0.5 - half, 0.5 + half), abs=1e-5)


@pytest.mark.parametrize(
    ("tuning", "value", "low", "high"),
    [(1.0, 0.504375, 0.4153484, 0.5934016), (0.5, 0.4771875, 0.41633332, 0.53804168)],
)
def test_values_and_standard_errors_are_those_of_ppi_python(
    tuning: float, value: float, low: float, high: float
) -> None:
    """Its variances divide by n, and ours by n - 1; its quantile is the normal one."""
    labels = [(7 * n) % 10 / 10 for n in range(50)]
    verdicts = [(7 * n) % 10 / 10 + (3 * n) % 7 / 7 - 0.3 for n in range(50)]
    found = estimate(labels, verdicts, [(3 * n) % 11 / 8 for n in range(400)], tuning=tuning)
    assert found.corrected.value == pytest.approx(value, abs=1e-6)
    ours = standard_error(found, quantile=2.010635)  # t with 48
    assert ours == pytest.approx((high - low) / 2 / Z_95 * (50 / 49) ** 0.5, rel=1e-4)


def test_the_tuned_value_is_close_to_that_of_ppi_python() -> None:
    """It pools the variance of the verdicts over all items: its factor is 0.446, and its value 0.47424."""
    labels = [(7 * n) % 10 / 10 for n in range(50)]
    verdicts = [(7 * n) % 10 / 10 + (3 * n) % 7 / 7 - 0.3 for n in range(50)]
    found = estimate(labels, verdicts, [(3 * n) % 11 / 8 for n in range(400)])
    assert found.corrected.value == pytest.approx(0.47423677, abs=2e-3)


def test_a_judge_of_no_use_changes_little() -> None:
    """Verdicts without a relation to labels, here equal on both halves: the factor is 0."""
    labels = [float(n % 2) for n in range(40)]
    found = estimate(labels, [float(n % 4 < 2) for n in range(40)], REST)
    assert found.tuning == pytest.approx(0.0)
    assert found.corrected.value == 0.5
    assert found.num_effective == pytest.approx(40)


def test_a_judge_of_no_use_does_not_narrow_the_interval_of_ties() -> None:
    """Most labels are ties, so they vary less than right and wrong ones. The labels alone do not use that."""
    labels = [0.5] * 16 + [1.0] * 6 + [0.0] * 3
    found = estimate(labels, [0.5] * 25, [0.5] * 25, is_share=True)
    assert found.corrected.interval == found.people.interval
    weak = estimate(labels, [label + n % 3 for n, label in enumerate(labels)], REST, is_share=True, tuning=1e-6)
    assert weak.corrected.interval is not None
    assert weak.corrected.interval == pytest.approx(found.people.interval, abs=0.02)


def test_labels_of_all_items_need_no_judge() -> None:
    found = estimate(LABELS * 2, VERDICTS * 2, [])
    assert (found.tuning, found.corrected.value, found.num_effective) == (0.0, 0.6, pytest.approx(40))


@pytest.mark.parametrize("label", [0.0, 1.0, 0.1, 7.3])
def test_equal_labels_show_no_variance(label: float) -> None:
    """Only a share has an interval: Wilson's, here of 40 labels that are all 1 or all 0."""
    found = estimate([label] * 40, VERDICTS * 2, REST)
    assert (found.people.interval, found.corrected.interval) == (None, None)
    assert found.corrected.value == pytest.approx(label)
    if label in (0, 1):
        share = estimate([label] * 40, VERDICTS * 2, REST, is_share=True).corrected.interval or (0.0, 0.0)
        assert share[1] - share[0] > 0.05


def test_too_few_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="labels: 19 prompts have labels; give at least 20"):
        estimate(LABELS[:19], VERDICTS[:19], REST)


def test_items_of_one_prompt_count_once() -> None:
    """Every item five times, in the cluster of its prompt: the interval stays, and the labels count five times less."""
    once = estimate(LABELS, VERDICTS, REST, tuning=1.0)
    often = prediction_powered(
        [*LABELS, *[None] * 80] * 5,
        [*VERDICTS, *REST] * 5,
        clusters=[str(n) for n in range(100)] * 5,
        is_share=False,
        tuning=1.0,
    )
    assert often.corrected.interval == pytest.approx(once.corrected.interval)
    assert often.num_effective == pytest.approx(5 * once.num_effective)


@settings(deadline=None)
@given(st.floats(0.1, 10), st.floats(-5, 5))
def test_the_scale_of_the_judge_does_not_matter(scale: float, shift: float) -> None:
    plain = estimate(LABELS, VERDICTS, REST)
    moved = estimate(LABELS, [scale * one + shift for one in VERDICTS], [scale * one + shift for one in REST])
    assert moved.corrected.value == pytest.approx(plain.corrected.value)
    assert moved.corrected.interval == pytest.approx(plain.corrected.interval)


def test_a_random_sample_is_no_surprise_and_other_samples_are() -> None:
    rng = np.random.default_rng(5)
    names, subsets = [str(n) for n in range(1000)], ["ab"[n % 2] for n in range(1000)]
    verdicts = rng.random(1000)
    random = np.isin(np.arange(1000), rng.choice(1000, 200, replace=False))
    assert surprises_of(list(random), list(verdicts), subsets=subsets, clusters=names) == []
    one_subset = [n % 2 == 0 and n < 400 for n in range(1000)]
    assert surprises_of(one_subset, list(verdicts), subsets=subsets, clusters=names) == [
        "subset 'a': 200 of 200 labeled prompts, 100 expected",
        "subset 'b': 0 of 200 labeled prompts, 100 expected",
    ]
    highest = list(verdicts > np.quantile(verdicts, 0.8))
    (found,) = surprises_of(highest, list(verdicts), subsets=subsets, clusters=names)
    assert found.startswith("mean verdict of the judge: 0.899 on labeled prompts")


@pytest.mark.slow
@pytest.mark.parametrize(("num", "rate", "right_yes", "right_no"), [
    (50, 0.6, 0.85, 0.75), (100, 0.9, 0.9, 0.7), (300, 0.6, 0.98, 0.97), (300, 0.95, 0.97, 0.9),
])  # fmt: skip
def test_intervals_have_their_coverage(num: int, rate: float, right_yes: float, right_no: float) -> None:
    """600 simulated runs: the standard error of a coverage of 95 % is 0.9 points."""
    rng = np.random.default_rng(9)
    held = []
    for _ in range(600):
        truth = rng.random(num + 1000) < rate
        verdicts = np.where(truth, rng.random(len(truth)) < right_yes, rng.random(len(truth)) > right_no)
        found = estimate(
            truth[:num].astype(float).tolist(),
            verdicts[:num].astype(float).tolist(),
            verdicts[num:].astype(float).tolist(),
            is_share=True,
        )
        low, high = found.corrected.interval or (0.0, 0.0)
        held.append(low <= rate <= high)
    assert 0.92 <= np.mean(held) <= 0.99
