"""Paired differences of two runs, and McNemar's test; expected values computed manually."""

from __future__ import annotations

import pytest

from tirjudge.right import Decision
from tirjudge.types import Mode
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import ExampleMetadata
from tirjudge_harness.metric_tree import FormulaMetric, Mean, cells_by
from tirjudge_harness.statistics.binomial import binomial_test
from tirjudge_harness.statistics.paired import (
    EVERYTHING,
    NO_COMPARISONS,
    Common,
    common_of,
    differences_of,
    mcnemar,
)


def test_the_difference_is_over_the_common_comparisons(mark) -> None:
    first = [mark("1", 1.0), mark("2", 0.0), mark("3", 0.0), mark("only", 1.0)]
    second = [mark("3", 1.0), mark("2", 1.0), mark("1", 1.0)]
    common = common_of(first, second)
    assert (len(common.first), common.only_first, common.only_second) == (3, 1, 0)
    (found,) = differences_of([EVERYTHING], common)
    assert (found.first, found.second) == (pytest.approx(1 / 3), 1.0)
    assert found.difference == pytest.approx(2 / 3)
    assert (found.num_common, found.num_better, found.num_worse, found.p_value) == (3, 2, 0, 0.5)
    assert found.interval is not None
    assert found.interval[0] <= 2 / 3 <= found.interval[1]


def test_runs_without_common_comparisons_are_refused(mark) -> None:
    with pytest.raises(ValueError, match="no common comparisons among 1 and 2;"):
        common_of([mark("1", 1.0)], [mark("2", 1.0), mark("3", 1.0)])


def test_two_different_scores_for_one_comparison_are_refused(mark) -> None:
    with pytest.raises(ValueError, match="'1' has two different marks"):
        common_of([mark("1", 1.0), mark("1", 0.0)], [mark("1", 1.0)])


def test_a_repeated_comparison_counts_each_time(mark) -> None:
    """PPE's sampled pairs may repeat within a prompt. Here, two of three comparisons are the same pair."""
    first = [mark("1", 1.0), mark("1", 1.0), mark("2", 0.0)]
    second = [mark("2", 0.0), mark("1", 0.0), mark("1", 0.0)]
    (found,) = differences_of([EVERYTHING], common_of(first, second))
    assert (found.num_common, found.num_better, found.num_worse) == (3, 0, 2)
    assert (found.first, found.second) == (pytest.approx(2 / 3), 0.0)


def test_differences_are_paired(mark) -> None:
    """The second run is better by 1/2 on every prompt, so the differences have no variance. One prompt with difference 1 and
    one with -1 are added: the center is 1/2 x 20/22, and the variance 2/22²."""
    first = [mark(str(n), n % 2 / 2) for n in range(20)]
    second = [mark(str(n), n % 2 / 2 + 0.5) for n in range(20)]
    (found,) = differences_of([EVERYTHING], common_of(first, second))
    half = 1.959964 * 2**0.5 / 22
    assert (found.difference, found.interval) == (0.5, (pytest.approx(10 / 22 - half), pytest.approx(10 / 22 + half)))
    assert found.p_value == 2 / 2**20


def test_differences_are_paired_if_the_names_of_clusters_differ(mark) -> None:
    """A cluster has the name of the first loaded example of its prompt, and the other run may not have loaded it."""
    first = [mark(str(n), n % 2 / 2, cluster=f"{n:02}") for n in range(20)]
    second = [mark(str(n), n % 2 / 2 + 0.5, cluster=f"{19 - n:02}") for n in range(20)]
    (found,) = differences_of([EVERYTHING], common_of(first, second))
    half = 1.959964 * 2**0.5 / 22
    assert found.interval == (pytest.approx(10 / 22 - half), pytest.approx(10 / 22 + half))


def test_equal_runs_do_not_prove_that_judges_are_equal(mark) -> None:
    marks = [mark(str(n), float(n % 3 > 0)) for n in range(98)]
    (found,) = differences_of([EVERYTHING], common_of(marks, marks))
    assert found.interval == (pytest.approx(-1.959964 * 2**0.5 / 100), pytest.approx(1.959964 * 2**0.5 / 100))


def test_comparisons_of_one_prompt_are_one_trial(mark) -> None:
    """Three prompts with three comparisons each. The second run is better on two prompts and worse on one, so p is 1."""
    gains = [1, 1, 1, -1, 0, 0, 1, 1, -1]
    first = [mark(str(n), float(gain < 0), cluster=str(n // 3)) for n, gain in enumerate(gains)]
    second = [mark(str(n), float(gain > 0), cluster=str(n // 3)) for n, gain in enumerate(gains)]
    (found,) = differences_of([EVERYTHING], common_of(first, second))
    assert (found.num_better, found.num_worse, found.p_value) == (5, 2, 1.0)


def test_every_figure_of_a_metric_tree_is_compared(mark) -> None:
    sheet = (Mean(name="mean", parts=cells_by("subset", ["a", "b"])),)
    first = [mark("1", 0.0, subset="a"), mark("2", 1.0, subset="b"), mark("3", 1.0, subset="b")]
    second = [mark("1", 1.0, subset="a"), mark("2", 1.0, subset="b"), mark("3", 0.0, subset="b")]
    found = differences_of(sheet, common_of(first, second))
    assert [(d.name, d.depth, d.difference, d.num_better, d.num_worse) for d in found] == [
        ("mean", 0, 0.25, 1, 1),
        ("a", 1, 1.0, 1, 0),
        ("b", 1, -0.5, 0, 1),
    ]


def test_a_figure_without_a_value_is_not_tested(mark) -> None:
    """A mean that needs all of its parts: subset b was not judged."""
    whole = Mean(name="mean", parts=cells_by("subset", ["a", "b"]), whole=True)
    found, part, _ = differences_of([whole], common_of([mark("1", 0.0, subset="a")], [mark("1", 1.0, subset="a")]))
    assert (found.difference, found.num_better, found.num_worse, found.p_value) == (None, None, None, None)
    assert (part.difference, part.num_better, part.num_worse, part.p_value) == (1.0, 1, 0, 1.0)


def test_formulas_are_compared_over_examples_of_both_runs(mark) -> None:
    def judged(id: str, score: float) -> JudgedExample:
        about = ExampleMetadata(id=id, subset="s", num_responses=2, correct=(0,), cluster=id, facts={"score": score})
        return JudgedExample(outline=about, mode=Mode.POINTWISE, decisions=())

    formula = FormulaMetric(
        name="f", compute=lambda found: sum(one.outline.facts["score"] for one in found) / len(found)
    )
    (found,) = differences_of(
        [formula],
        common_of([mark("1", 1.0)], [mark("1", 1.0)]),
        judged=([judged("1", 0.5), judged("2", 0.0), judged("3", 9.0)], [judged("2", 1.0), judged("1", 0.5)]),
    )
    assert (found.first, found.second, found.difference, found.num_common) == (0.25, 0.75, 0.5, 2)
    assert (found.p_value, found.interval) == (None, (0.0, 1.0))


def test_a_formula_is_compared_over_examples_that_it_takes_from_both_runs() -> None:
    """The formula takes scored examples: 1 and 2 of the first run, 2 and 3 of the second."""

    def judged(id: str, score: float | None) -> JudgedExample:
        about = ExampleMetadata(id=id, subset="s", num_responses=1, correct=(), cluster=id)
        return JudgedExample(outline=about, mode=Mode.POINTWISE, decisions=(Decision(shown=(0,), score=score),))

    formula = FormulaMetric(
        name="f",
        compute=lambda found: sum(one.decisions[0].score or 0 for one in found) / len(found),
        holds=lambda one: one.has_verdict,
    )
    first = [judged("1", 9.0), judged("2", 4.0), judged("3", None)]
    second = [judged("1", None), judged("2", 6.0), judged("3", 1.0)]
    (found,) = differences_of([formula], NO_COMPARISONS, judged=(first, second))
    assert (found.first, found.second, found.difference, found.num_common) == (4.0, 6.0, 2.0, 1)


def test_a_mean_of_formulas_alone_has_no_p_value() -> None:
    """Formulas have no comparisons to test. A p-value of 1 would wrongly suggest that the runs are equal."""
    about = ExampleMetadata(id="1", subset="s", num_responses=2, correct=(0,), cluster="1")
    judged = [JudgedExample(outline=about, mode=Mode.POINTWISE, decisions=())]
    mean = Mean(name="mean", parts=(FormulaMetric(name="f", compute=lambda found: 0.5),))
    found, _ = differences_of([mean], Common(first=[], second=[], only_first=0, only_second=0), judged=(judged, judged))
    assert (found.num_common, found.difference, found.p_value) == (1, 0.0, None)


def test_mcnemars_test_of_ten_changes_matches_a_manual_computation() -> None:
    """Two of ten changes are improvements: p = 2 (1 + 10 + 45) / 1024."""
    assert mcnemar(num_better=2, num_worse=8) == 112 / 1024
    assert mcnemar(num_better=8, num_worse=2) == 112 / 1024
    assert mcnemar(num_better=5, num_worse=5) == 1.0
    assert mcnemar(num_better=0, num_worse=0) == 1.0


def test_mcnemars_test_of_thousands_of_changes_matches_a_manual_computation() -> None:
    """P(at most 5,900 or at least 6,100 of 12,000 fair coins) is 0.07: z = 199 / sqrt(12,000) = 1.817."""
    assert mcnemar(num_better=5900, num_worse=6100) == pytest.approx(0.0693, abs=2e-4)
    assert mcnemar(num_better=0, num_worse=12_000) == 0.0


def test_a_binomial_test_against_one_third_counts_all_outcomes_that_are_at_most_as_likely() -> None:
    """Three of three at 1/3 has probability 1/27, the least likely outcome. Zero of three has 8/27."""
    assert binomial_test(3, num_trials=3, share=1 / 3) == pytest.approx(1 / 27)
    assert binomial_test(0, num_trials=3, share=1 / 3) == pytest.approx(8 / 27 + 6 / 27 + 1 / 27)
    assert binomial_test(1, num_trials=3, share=1 / 3) == pytest.approx(1.0)
