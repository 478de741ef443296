"""Prediction-powered inference: the mean of people's labels, from a few labels and many verdicts of a judge.

Angelopoulos et al. 2023 (arXiv:2301.09633) correct the mean of the judge by its error on the labeled items. PPI++ (arXiv:
2311.01453) multiplies the verdicts by a tuning factor, so that a poor judge does not make the interval wider. The interval
is valid for any judge, if the labeled items are a random sample of all items.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from tirjudge.statistics import Z_95
from tirjudge_harness.statistics.clustered import effective_interval, mean_interval, t_quantile
from tirjudge_harness.statistics.intervals import (
    Array,
    Estimate,
    Interval,
    Mask,
    average_of,
    codes_of,
    number,
    share_of,
)

MIN_LABELED = 20
"""Minimum number of prompts with labels. Below, the variance of the correction is not known well enough."""

_SURPRISE = 0.001
"""Significance level of the checks that labeled items are a random sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionPowered:
    """A mean of people's labels, estimated in three ways."""

    people: Estimate
    """From the labels alone."""
    judge: float
    """Mean verdict of the judge over all items, without correction. It has the bias of the judge."""
    corrected: Estimate
    """From labels and verdicts. `num` is the number of all items."""
    tuning: float
    """Factor of the verdicts, lambda in PPI++. 0: the verdicts are of no use. 1: plain PPI."""
    correlation: float | None
    """Pearson's correlation of label and verdict on the labeled items. None: one of them is constant."""
    num_effective: float
    """Number of labels that would give the same standard error without a judge."""


def prediction_powered(
    labels: Sequence[float | None],
    verdicts: Sequence[float],
    *,
    clusters: Sequence[str],
    is_share: bool,
    tuning: float | None = None,
) -> PredictionPowered:
    """Estimate the mean label over all items.

    With n labels Y, verdicts f, and N items without a label, the estimate is mean(Y) + tuning x (mean of f over the N items -
    mean of f over the n items) (PPI++, eq. 3). Its variance is the sum over clusters of squared contributions; for one item
    per cluster that is var(Y - tuning x f) / n + tuning^2 x var(f) / N.

    Args:
        labels: label of each item. None: not labeled.
        verdicts: verdict of the judge on each item, on any scale.
        clusters: prompt of each item.
        is_share: whether labels are between 0 and 1. The interval is then Wilson's with an effective number of labels, and
            one item with an error of 1 and one with -1 are added to the labeled ones, because a judge without an error on few
            items is not perfect. Otherwise the interval is the value ± t standard errors, and None if all labels are equal.
        tuning: factor of the verdicts. None: the factor with the smallest variance.

    Raises:
        ValueError: the lengths differ, or fewer than `MIN_LABELED` prompts have labels.
    """
    if not len(labels) == len(verdicts) == len(clusters):
        raise ValueError(f"labels: {len(labels)} labels, {len(verdicts)} verdicts and {len(clusters)} clusters differ")
    codes, judged = codes_of(clusters), np.array(verdicts, dtype=float)
    held = np.array([label is not None for label in labels], dtype=bool)
    given = np.array([label for label in labels if label is not None], dtype=float)
    num_labeled = len(set(codes[held]))
    if num_labeled < MIN_LABELED:
        raise ValueError(f"labels: {num_labeled} prompts have labels; give at least {MIN_LABELED}")

    def by_cluster(values: Array, where: Mask) -> Array:
        """Return the contribution of each cluster to the error of a mean."""
        spread = (values - values.mean()) / len(values)
        return np.bincount(codes[where], spread, minlength=codes.max() + 1).astype(float)

    of_labels, of_verdicts = by_cluster(given, held), by_cluster(judged[held], held)
    shift = 0.0
    if not held.all():
        of_verdicts = of_verdicts - by_cluster(judged[~held], ~held)
        shift = float(judged[~held].mean() - judged[held].mean())
    factor = _tuning(of_labels, of_verdicts, has_rest=not held.all()) if tuning is None else tuning
    few = num_labeled / (num_labeled - 1)
    variance = few * float(((of_labels - factor * of_verdicts) ** 2).sum())
    alone = few * float((of_labels**2).sum())
    if is_share:
        variance += 2 * factor**2 / (num_labeled + 2) ** 2
    value = float(given.mean()) + factor * shift
    people = labels_alone(labels, clusters=clusters, is_share=is_share)
    gain = alone / variance if variance > 0 else 1.0
    if factor == 0:
        interval = people.interval
    elif is_share:
        interval = _share_interval(value, alone=alone, gain=gain, num_given=len(given), num_labeled=num_labeled)
    else:
        interval = mean_interval(value, variance=variance, num_free=num_labeled - 2)
    return PredictionPowered(
        people=people,
        judge=float(judged.mean()),
        corrected=Estimate(value=value, num=len(labels), interval=interval),
        tuning=factor,
        correlation=_correlation(given, judged[held]),
        num_effective=len(given) * gain,
    )


def labels_alone(labels: Sequence[float | None], *, clusters: Sequence[str], is_share: bool) -> Estimate:
    """Return the mean of people's labels, without any verdict of a judge.

    Args:
        labels: label of each item. None: not labeled.
        clusters: prompt of each item.
        is_share: whether labels are between 0 and 1.
    """
    given = [(label, cluster) for label, cluster in zip(labels, clusters, strict=True) if label is not None]
    mean_of = share_of if is_share else average_of
    return mean_of([label for label, _ in given], clusters=[cluster for _, cluster in given])


def surprises_of(
    is_labeled: Sequence[bool], verdicts: Sequence[float], *, subsets: Sequence[str], clusters: Sequence[str]
) -> list[str]:
    """Return what shows that the labeled items are not a random sample of all items. Empty: nothing.

    The checks count prompts: the share of each subset (hypergeometric, normal approximation), and the mean verdict. A random
    sample fails one of them with a probability of about 0.2 %.
    """
    first = dict(zip(reversed(clusters), reversed(range(len(clusters))), strict=True))
    chosen = {clusters[at] for at, labeled in enumerate(is_labeled) if labeled}
    num, num_chosen = len(first), len(chosen)
    if num_chosen in (0, num) or num < 2:
        return []
    of_subsets: dict[str, list[str]] = defaultdict(list)
    for cluster, at in first.items():
        of_subsets[subsets[at]].append(cluster)
    limit = NormalDist().inv_cdf(1 - _SURPRISE / 2 / len(of_subsets))
    found = []
    for subset, members in sorted(of_subsets.items()):
        share = len(members) / num
        expected, have = num_chosen * share, len(chosen.intersection(members))
        spread = math.sqrt(expected * (1 - share) * (num - num_chosen) / (num - 1))
        if abs(have - expected) > limit * spread + 0.5:
            found.append(f"subset {subset!r}: {have} of {num_chosen} labeled prompts, {expected:.0f} expected")
    sums: dict[str, list[float]] = defaultdict(list)
    for cluster, verdict in zip(clusters, verdicts, strict=True):
        sums[cluster].append(verdict)
    means = {cluster: float(np.mean(of_it)) for cluster, of_it in sums.items()}
    values = np.array(list(means.values()))
    labeled = float(np.mean([means[cluster] for cluster in chosen]))
    spread = float(values.std(ddof=1)) * math.sqrt((1 - num_chosen / num) / num_chosen)
    if abs(labeled - values.mean()) > NormalDist().inv_cdf(1 - _SURPRISE / 2) * spread > 0:
        found.append(f"mean verdict of the judge: {labeled:.3g} on labeled prompts, {values.mean():.3g} on all prompts")
    return found


def _tuning(of_labels: Array, of_verdicts: Array, *, has_rest: bool) -> float:
    """Return the factor with the smallest variance (PPI++, section 6), which is least squares over clusters."""
    norm = float((of_verdicts**2).sum())
    return float(of_labels @ of_verdicts) / norm if has_rest and norm > 0 else 0.0


def _share_interval(value: float, *, alone: float, gain: float, num_given: int, num_labeled: int) -> Interval | None:
    """Return the interval of a share, with `gain` times the effective number of the labels alone.

    The labels alone have at most as many effective labels as there are: labels between 0 and 1, such as ties, vary less than
    right and wrong ones, and the interval of the labels alone does not use that either.
    """
    inside = min(1.0, max(0.0, value))
    spread = inside * (1 - inside)
    num = min(num_given, spread / alone) * gain if spread > 0 and alone > 0 else num_labeled
    return effective_interval(inside, num=num * (Z_95 / t_quantile(num_labeled - 2)) ** 2)


def _correlation(labels: Array, verdicts: Array) -> float | None:
    if np.ptp(labels) == 0 or np.ptp(verdicts) == 0:
        return None
    return number(float(np.corrcoef(labels, verdicts)[0, 1]))
