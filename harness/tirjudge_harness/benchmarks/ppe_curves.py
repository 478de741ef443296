"""The metrics of PPE over all responses to a prompt: the area under the ROC curve, and the quality of the best of k.

The curve is exact: for each k, the mean over all subsets of k responses, where ties are broken at random. The areas equal
those of PPE's reference implementation by definition. The curves were not compared with that implementation, because its
sampling and its definition of the distance from the ideal curve are not fully documented.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from math import comb, inf
from statistics import fmean

Score = float | None
"""Score of a response. None: no verdict, which ranks below all scores."""
Scores = tuple[Score, ...]
Correct = tuple[bool, ...]
"""Whether each response is right."""


def area_under_roc(scores: Sequence[Score], correct: Sequence[bool]) -> float | None:
    """Return the probability that a right response has a higher score than a wrong response. Equal scores count as 0.5.

    None: all responses are right, or all are wrong.
    """
    ranked = _ranked(scores)
    right = [score for score, is_right in zip(ranked, correct, strict=True) if is_right]
    wrong = [score for score, is_right in zip(ranked, correct, strict=True) if not is_right]
    if not right or not wrong:
        return None
    wrong.sort()
    half_wins = sum(bisect_left(wrong, one) + bisect_right(wrong, one) for one in right)
    return half_wins / (2 * len(right) * len(wrong))


@lru_cache(maxsize=1 << 13)
def best_of_k(scores: Scores, correct: Correct) -> tuple[float, ...]:
    """Return the probability that the highest-scoring of k random responses is right, for k from 1 to their number."""
    num = len(scores)
    order = sorted(zip(_ranked(scores), correct, strict=True), key=lambda pair: -pair[0])
    curve = [0.0] * num
    num_above = 0
    for _, tied in groupby(order, key=lambda pair: pair[0]):
        group = [is_right for _, is_right in tied]
        for k in range(1, num + 1):
            # The best of k is in this group if none of the k is above the group, and not all of the k are below it.
            chance = (comb(num - num_above, k) - comb(num - num_above - len(group), k)) / comb(num, k)
            curve[k - 1] += chance * fmean(group)
        num_above += len(group)
    return tuple(curve)


def ideal_best_of_k(correct: Sequence[bool]) -> tuple[float, ...]:
    """Return the curve of a perfect judge: the probability that k random responses contain a right one."""
    return best_of_k(tuple(float(is_right) for is_right in correct), tuple(correct))


def loss(curve: Sequence[float], ideal: Sequence[float]) -> float:
    """Return the mean difference between the ideal curve and a curve."""
    return fmean(best - value for value, best in zip(curve, ideal, strict=True))


def _ranked(scores: Sequence[Score]) -> list[float]:
    return [-inf if score is None else score for score in scores]
