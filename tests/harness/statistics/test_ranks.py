"""Rank agreement, with values worked out by hand and by comparing all pairs."""

from __future__ import annotations

import math
import random
import tracemalloc
from bisect import bisect
from itertools import combinations

import pytest

from tirjudge_harness.statistics.ranks import ranks_of


def test_equal_orders_agree_and_opposite_orders_disagree() -> None:
    same, opposite = ranks_of([1, 5, 9], [0.1, 0.2, 0.3]), ranks_of([9, 5, 1], [1, 2, 3])
    assert (same.num_pairs, same.pair_accuracy, same.spearman, same.kendall) == (3, 1.0, 1.0, 1.0)
    assert (opposite.pair_accuracy, opposite.spearman, opposite.kendall) == (0.0, -1.0, -1.0)


def test_equal_scores_count_as_one_half_and_equal_ratings_do_not_count() -> None:
    """Pairs with different ratings: (0, 2), (0, 3), (1, 2), (1, 3). Right: 0-2 and 0-3. Equal scores: 1-2. Wrong: 1-3."""
    found = ranks_of([1, 7, 7, 5], [1, 1, 2, 2])
    assert (found.num_pairs, found.right) == (4, 2.5)
    # Concordant 2, discordant 1; pairs with different scores 5, with different ratings 4.
    assert found.kendall == pytest.approx((2 - 1) / math.sqrt(5 * 4))
    # Ranks of the scores: 1, 3.5, 3.5, 2; of the ratings: 1.5, 1.5, 3.5, 3.5.
    assert found.spearman == pytest.approx(1.0 / math.sqrt(4.5 * 4.0))


def test_values_equal_those_of_all_pairs() -> None:
    rng = random.Random(3)
    scores, ratings = [rng.randint(1, 10) for _ in range(60)], [rng.choice([0.5, 1.0, 2.5]) for _ in range(60)]
    pairs = [(scores[i] - scores[j], ratings[i] - ratings[j]) for i, j in combinations(range(60), 2)]
    found = ranks_of(scores, ratings)
    assert found.num_pairs == sum(rating != 0 for _, rating in pairs)
    assert found.right == sum(0.5 if score == 0 else float(score * rating > 0) for score, rating in pairs if rating)
    lead = sum((score * rating > 0) - (score * rating < 0) for score, rating in pairs)
    num_scores = sum(score != 0 for score, _ in pairs)
    assert found.kendall == pytest.approx(lead / math.sqrt(num_scores * found.num_pairs))


def test_memory_does_not_grow_with_the_product_of_distinct_values() -> None:
    """A table of 4,000 x 4,000 counts takes 128 MB. Rating i is score i x 1999 modulo 4000, so the orders are unrelated."""
    ratings = [i * 1999 % 4000 for i in range(4000)]
    tracemalloc.start()
    try:
        found = ranks_of(range(4000), ratings)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000
    smaller: list[int] = []
    concordant = 0
    for rating in ratings:
        place = bisect(smaller, rating)
        concordant += place
        smaller.insert(place, rating)
    assert found.right == concordant


def test_equal_values_have_no_correlation() -> None:
    assert (ranks_of([3, 3], [1, 2]).spearman, ranks_of([3, 3], [1, 2]).pair_accuracy) == (None, 0.5)
    assert (ranks_of([1, 2], [4, 4]).kendall, ranks_of([1, 2], [4, 4]).pair_accuracy) == (None, None)
    assert ranks_of([], []).pair_accuracy is None
    with pytest.raises(ValueError, match="expected one of each per item, got 1 and 0"):
        ranks_of([1.0], [])
