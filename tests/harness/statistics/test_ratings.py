"""Ratings of models and their agreement with people; expected values computed manually, or by FastChat's code."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau, spearmanr

from tirjudge_harness.statistics.intervals import Estimate
from tirjudge_harness.statistics.ratings import (
    ArenaScore,
    Battle,
    ModelRating,
    Ratings,
    agreement_with_arena,
    ratings_of,
    rows_correlation,
)


def battles(*results: tuple[str, str, float, int]) -> list[Battle]:
    """Build battles: first model, second model, credit of the first, number of prompts."""
    return [
        Battle(first=first, second=second, credit=credit, cluster=f"{at}/{n}")
        for at, (first, second, credit, num) in enumerate(results)
        for n in range(num)
    ]


def simulated(num: int, *, num_models: int = 6) -> list[Battle]:
    rng = np.random.default_rng(4)
    found = []
    for n in range(num):
        first, second = rng.choice(num_models, 2, replace=False)
        wins = rng.random() < 1 / (1 + math.exp((second - first) / 2))
        credit = 0.5 if rng.random() < 0.1 else float(wins)
        found.append(Battle(first=f"m{first}", second=f"m{second}", credit=credit, cluster=str(n // 2)))
    return found


def rated(*scores: float, width: float = 10.0) -> Ratings:
    """Build ratings of m0, m1, ... with intervals of a width."""
    models = tuple(
        ModelRating(
            name=f"m{n}",
            rating=score,
            interval=(score - width / 2, score + width / 2),
            wins=Estimate(value=None, num=0, interval=None),
        )
        for n, score in enumerate(scores)
    )
    return Ratings(models=models, drawn=np.array([scores, scores]), num_clusters=2)


def test_two_models_differ_by_the_log_odds_of_their_wins() -> None:
    """75 wins, 20 losses and 10 ties: 80 to 25. The prior adds 0.1 ties with the average for each, which is small."""
    found = ratings_of(battles(("a", "b", 1.0, 75), ("a", "b", 0.0, 20), ("b", "a", 0.5, 10)), num_resamples=200)
    first, second = found.models
    assert (first.name, second.name) == ("a", "b")
    assert first.rating - second.rating == pytest.approx(400 * math.log10(80 / 25), abs=0.5)
    assert first.rating + second.rating == pytest.approx(2000)
    assert first.wins.value == pytest.approx(80 / 105)
    assert first.interval is not None
    assert first.interval[0] < first.rating < first.interval[1]


def test_a_chain_of_models_adds_log_odds() -> None:
    """a beats b 3 to 1, and b beats c 3 to 1: without battles of a and c, the odds are 9 to 1."""
    found = ratings_of(
        battles(("a", "b", 1.0, 300), ("a", "b", 0.0, 100), ("b", "c", 1.0, 300), ("c", "b", 1.0, 100)), num_resamples=0
    )
    assert [one.name for one in found.models] == ["a", "b", "c"]
    assert found.models[0].rating - found.models[2].rating == pytest.approx(400 * math.log10(9), abs=0.5)
    assert found.models[1].rating == pytest.approx(1000, abs=0.1)
    assert found.models[0].interval is None


def test_ratings_are_those_of_fastchat() -> None:
    """`compute_bt` of lm-sys/FastChat, rating_systems.py, on the same battles, with the mean 1000."""
    found = {one.name: one.rating for one in ratings_of(simulated(1000), num_resamples=0).models}
    assert found == pytest.approx(FASTCHAT, abs=0.15)


FASTCHAT = {"m0": 789.32, "m1": 863.05, "m2": 964.11, "m3": 1061.35, "m4": 1109.95, "m5": 1212.22}


def test_a_model_that_always_wins_has_a_finite_rating() -> None:
    found = ratings_of(battles(("a", "b", 1.0, 50)), num_resamples=20)
    assert 300 < found.models[0].rating - found.models[1].rating < 2000


@pytest.mark.parametrize(
    "results",
    [
        [("a", "b", 1.0, 2)],
        [("a", "b", 0.5, 2)],
        [("a", "b", 1.0, 12), ("b", "c", 1.0, 12)],  # b won and lost, but never against the same model
    ],
)
def test_ratings_that_only_the_added_ties_limit_have_no_interval(results: list[tuple[str, str, float, int]]) -> None:
    found = ratings_of(battles(*results), num_resamples=50)
    assert [one.interval for one in found.models] == [None] * len(found.models)
    assert found.separability is None


def test_equal_ratings_in_all_resamples_have_no_interval() -> None:
    """On each prompt, a wins once and loses once."""
    found = ratings_of([Battle(first="a", second="b", credit=n % 2, cluster=str(n // 2)) for n in range(20)])
    assert [one.interval for one in found.models] == [None, None]


def test_intervals_do_not_compare_groups_of_models() -> None:
    """a and b meet in wins and losses, and so do c and d. b always beats c, and e always loses: two pairs of ten count."""
    results = [("a", "b", 1.0, 90), ("b", "a", 1.0, 10), ("c", "d", 1.0, 5), ("d", "c", 1.0, 5), ("b", "c", 1.0, 90)]
    found = ratings_of(battles(*results, ("d", "e", 1.0, 90)), num_resamples=200)
    groups = {one.name: one.group for one in found.models}
    assert groups["a"] == groups["b"] != groups["c"] == groups["d"] != groups["e"]
    assert [one.name for one in found.models if one.interval is None] == ["e"]
    assert (len(found.compared), found.separability) == (2, 0.5)
    agreement = agreement_with_arena(found, {name: ArenaScore(score=-n) for n, name in enumerate("abcde")})
    assert agreement.with_confidence == 0.5


def test_a_tie_joins_two_groups() -> None:
    results = [("a", "b", 1.0, 9), ("a", "b", 0.5, 1)]
    assert {one.group for one in ratings_of(battles(*results), num_resamples=0).models} == {0}


def test_models_that_never_meet_are_refused() -> None:
    with pytest.raises(ValueError, match="no chain of comparisons joins 'a' and 'c'"):
        ratings_of(battles(("a", "b", 1.0, 3), ("c", "d", 0.0, 3)))


def test_a_comparison_of_a_model_with_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="'a' is compared with itself"):
        ratings_of(battles(("a", "a", 1.0, 1)))


def test_no_verdicts_are_refused() -> None:
    with pytest.raises(ValueError, match="verdicts: none given"):
        ratings_of([])


def test_verdicts_on_one_prompt_are_resampled_together() -> None:
    """Ten verdicts on each of 20 prompts, all alike, have wider intervals than 200 independent ones."""
    alike = [Battle(first="a", second="b", credit=float(n % 2), cluster=str(n)) for n in range(20) for _ in range(10)]
    apart = [Battle(first="a", second="b", credit=float(n % 2), cluster=str(n)) for n in range(200)]
    widths = []
    for given_battles in (alike, apart):
        low, high = ratings_of(given_battles, num_resamples=300).models[0].interval or (0.0, 0.0)
        widths.append(high - low)
    assert 2.2 < widths[0] / widths[1] < 4.2  # the square root of ten is 3.2


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(st.permutations(range(6)))
def test_names_and_sides_do_not_matter(order: list[int]) -> None:
    plain = {one.name: one.rating for one in ratings_of(simulated(200), num_resamples=0).models}
    renamed = [
        Battle(
            first=f"m{order[int(one.second[1:])]}",
            second=f"m{order[int(one.first[1:])]}",
            credit=1 - one.credit,
            cluster=one.cluster,
        )
        for one in simulated(200)
    ]
    found = {one.name: one.rating for one in ratings_of(renamed, num_resamples=0).models}
    assert found == pytest.approx({f"m{order[int(name[1:])]}": rating for name, rating in plain.items()})


def test_separability_counts_pairs_of_intervals_that_do_not_overlap() -> None:
    """Intervals of width 10 around 100, 95 and 50: two of three pairs are apart."""
    assert rated(100, 95, 50).separability == pytest.approx(2 / 3)


def test_agreement_matches_a_manual_computation() -> None:
    """Ranks 1, 2, 3, 4 against 1, 3, 2, 4: five of six pairs agree, tau is 4/6, and rho is 1 - 6 x 2 / (4 x 15)."""
    found = agreement_with_arena(
        rated(400, 300, 200, 100), {f"m{n}": ArenaScore(score=score) for n, score in enumerate([9, 7, 8, 1])}
    )
    assert found.spearman.value == pytest.approx(0.8)
    assert found.kendall.value == pytest.approx(2 / 3)
    assert found.pairs.value == pytest.approx(5 / 6)
    assert found.with_confidence == pytest.approx(4 / 6)
    assert found.missing == ()


def test_agreement_with_confidence_ignores_pairs_that_one_table_does_not_separate() -> None:
    """Our intervals do not separate m0 and m1, people's do not separate m1 and m2. m0 and m2 agree: 1 of 3 pairs."""
    people = {
        "m0": ArenaScore(score=9, interval=(8.5, 9.5)),
        "m1": ArenaScore(score=5, interval=(4, 6)),
        "m2": ArenaScore(score=5.5, interval=(5, 7)),
    }
    found = agreement_with_arena(rated(100, 95, 50), people)
    assert found.with_confidence == pytest.approx(1 / 3)


def test_agreement_with_confidence_leaves_out_pairs_that_one_table_does_not_compare() -> None:
    """People's labels do not compare m2 with the others."""
    people = {f"m{n}": ArenaScore(score=-n, interval=(-n, -n), group=None if n == 2 else 0) for n in range(3)}
    assert agreement_with_arena(rated(100, 80, 50), people).with_confidence == 1
    alone = {name: ArenaScore(score=one.score, group=None) for name, one in people.items()}
    assert agreement_with_arena(rated(100, 80, 50), alone).with_confidence is None


def test_the_brier_score_matches_a_manual_computation() -> None:
    """In four resamples, m0 is above m1 in three and above m2 in all; m1 is above m2 in two, and equal to it in two."""
    drawn = np.array([[3, 2, 1], [3, 2, 1], [3, 1, 1], [3, 1, 1], [2, 3, 1]], dtype=float)
    models = tuple(
        ModelRating(name=f"m{n}", rating=score, interval=None, wins=Estimate(value=None, num=0, interval=None))
        for n, score in enumerate(drawn[0])
    )
    ratings = Ratings(models=models, drawn=drawn, num_clusters=9)
    arena = {"m0": ArenaScore(score=2), "m1": ArenaScore(score=1), "m2": ArenaScore(score=3)}
    expected = ((3 / 4 - 1) ** 2 + (1 - 0) ** 2 + (3 / 4 - 0) ** 2) / 3
    assert agreement_with_arena(ratings, arena).brier == pytest.approx(expected)
    certain = Ratings(models=models, drawn=drawn[:1], num_clusters=9)
    assert agreement_with_arena(certain, arena).brier is None


def test_the_row_wise_correlation_matches_a_manual_computation() -> None:
    """`a` meets b, c and d. By the judge it wins 1, 1/2 and 0 of them, and by people 1/2, 1 and 0: the correlation is 1/2.
    The others meet only `a`, or are met by one side alone."""
    judge = battles(("a", "b", 1.0, 2), ("a", "c", 1.0, 1), ("c", "a", 1.0, 1), ("d", "a", 1.0, 3), ("a", "e", 1.0, 1))
    people = battles(("a", "b", 0.5, 1), ("a", "c", 1.0, 2), ("a", "d", 0.0, 1), ("f", "b", 1.0, 1))
    found = rows_correlation(judge, people)
    assert (found.value, found.num) == (pytest.approx(0.5), 1)
    assert rows_correlation(judge, people[:2]).value is None
    assert rows_correlation(judge, []).num == 0


def test_models_without_a_score_are_named_and_too_few_are_refused() -> None:
    people = {f"m{n}": ArenaScore(score=-n) for n in range(3)}
    assert agreement_with_arena(rated(4, 3, 2, 1), people).missing == ("m3",)
    with pytest.raises(ValueError, match="2 of the 4 rated models have a score"):
        agreement_with_arena(rated(4, 3, 2, 1), {name: people[name] for name in ("m0", "m1")})


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), min_size=4, max_size=4))
def test_rank_correlations_ignore_monotone_transforms_and_are_those_of_scipy(scores: list[int]) -> None:
    if len(set(scores)) < 2:
        return
    ours = rated(400, 300, 200, 100)
    found, other = (
        agreement_with_arena(ours, {f"m{n}": ArenaScore(score=scale(score)) for n, score in enumerate(scores)})
        for scale in (float, math.exp)
    )
    assert found.spearman.value == pytest.approx(spearmanr([4, 3, 2, 1], scores)[0])
    assert found.kendall.value == pytest.approx(kendalltau([4, 3, 2, 1], scores)[0])
    assert (found.spearman.value, found.kendall.value) == pytest.approx((other.spearman.value, other.kendall.value))


@pytest.mark.slow
def test_intervals_of_ratings_have_their_coverage() -> None:
    """200 simulated runs of 400 battles of four models: the coverage of 800 intervals."""
    rng = np.random.default_rng(2)
    strengths = np.array([0.6, 0.2, -0.2, -0.6])
    held = []
    for _ in range(200):
        found = []
        for n in range(400):
            first, second = rng.choice(4, 2, replace=False)
            wins = rng.random() < 1 / (1 + math.exp(strengths[second] - strengths[first]))
            found.append(Battle(first=f"m{first}", second=f"m{second}", credit=float(wins), cluster=str(n)))
        for one in ratings_of(found, num_resamples=200).models:
            low, high = one.interval or (0.0, 0.0)
            truth = 1000 + 400 / math.log(10) * strengths[int(one.name[1:])]
            held.append(low <= truth <= high)
    assert 0.91 <= np.mean(held) <= 0.98
