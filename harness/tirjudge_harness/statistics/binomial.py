"""The exact two-sided binomial test."""

from __future__ import annotations

import math

import numpy as np

_EQUALLY_LIKELY = 1e-9
"""Maximum difference of log-probabilities at which two outcomes count as equally likely."""


def binomial_test(successes: int, *, num_trials: int, share: float = 0.5) -> float:
    """Return the probability of all outcomes that are at most as likely as `successes`.

    Args:
        successes: number of successes.
        num_trials: number of trials. With 0 trials the p-value is 1.
        share: probability of success in each trial under the null hypothesis.

    >>> binomial_test(2, num_trials=10)
    0.109375
    """
    if not num_trials:
        return 1.0
    if share == 0.5:  # exact integer arithmetic
        return _fair_coin_test(min(successes, num_trials - successes), num_trials=num_trials)
    log_factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, num_trials + 1)))])
    outcomes = np.arange(num_trials + 1)
    logs = log_factorials[-1] - log_factorials - log_factorials[::-1]
    logs += outcomes * math.log(share) + (num_trials - outcomes) * math.log1p(-share)
    return min(1.0, math.fsum(np.exp(logs[logs <= logs[successes] + _EQUALLY_LIKELY])))


def _fair_coin_test(fewer: int, *, num_trials: int) -> float:
    ways, total = 1, 0
    for count in range(fewer + 1):
        total += ways
        ways = ways * (num_trials - count) // (count + 1)
    return min(1.0, 2 * total / 2**num_trials)
