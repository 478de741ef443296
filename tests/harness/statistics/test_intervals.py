"""Figures of metric trees and their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tirjudge.statistics import wilson_interval
from tirjudge.types import Mode
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import ExampleMetadata
from tirjudge_harness.metric_tree import ComparisonScore, FormulaMetric, FormulaOfMeans, Mean, MeanMetric, cells_by
from tirjudge_harness.statistics.intervals import draws, figures_of, share_of, value_of

ALL = MeanMetric(name="all", holds=lambda mark: True)


def judged_of(id: str, cluster: str, score: float) -> JudgedExample:
    outline = ExampleMetadata(
        id=id, subset="ties", num_responses=2, correct=(0,), cluster=cluster, facts={"score": score}
    )
    return JudgedExample(outline=outline, mode=Mode.POINTWISE, decisions=())


def mean_score(judged: Sequence[JudgedExample]) -> float:
    return sum(one.outline.facts["score"] for one in judged) / len(judged)


def test_a_mean_of_one_comparison_per_prompt_has_wilsons_interval(mark) -> None:
    marks = [mark(str(n), 1.0 if n < 8 else 0.0) for n in range(10)]
    (figure,) = figures_of([ALL], marks, [])
    assert (figure.value, figure.num_marks) == (0.8, 10)
    assert figure.interval == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))


def test_each_figure_precedes_its_parts(mark) -> None:
    sheet = (Mean(name="mean", parts=cells_by("subset", ["a", "b"])), ALL)
    marks = [mark("1", 1.0, subset="a"), mark("2", 0.0, subset="a"), mark("3", 1.0, subset="b")]
    figures = figures_of(sheet, marks, [])
    assert [(f.name, f.depth, f.value, f.num_marks) for f in figures] == [
        ("mean", 0, 0.75, 3),
        ("a", 1, 0.5, 2),
        ("b", 1, 1.0, 1),
        ("all", 0, pytest.approx(2 / 3), 3),
    ]


def test_a_part_without_comparisons_is_left_out_of_a_weighted_mean(mark) -> None:
    parts = cells_by("subset", ["a", "b", "none"])
    node = Mean(name="mean", parts=parts, weights=(1.0, 3.0, 100.0))
    marks = [mark("1", 0.0, subset="a"), mark("2", 1.0, subset="b")]
    assert value_of(node, marks, []) == 0.75
    figures = figures_of([node], marks, [])
    assert (figures[3].value, figures[3].interval, figures[3].num_marks) == (None, None, 0)


def test_figures_without_comparisons_have_no_value(mark) -> None:
    formula = FormulaMetric(name="f", compute=lambda judged: None)
    sheet = (Mean(name="mean", parts=(ALL, formula)), Mean(name="of nothing", parts=()))
    assert [(f.value, f.interval) for f in figures_of(sheet, [], [])] == [(None, None)] * 4


def test_comparisons_of_one_prompt_count_as_one_where_they_are_equal(mark) -> None:
    """Ten prompts with 50 equal comparisons each, half of them right. The variance is 1/4 / 9, less the pooled variance that
    counts as an eleventh prompt: (10/4 + 10/4/9) / 10 / 10 = 1/36. So 9 prompts count, times (1.96 / t(9))²."""
    marks = [mark(f"{c}/{n}", float(c % 2), cluster=str(c)) for c in range(10) for n in range(50)]
    (figure,) = figures_of([ALL], marks, [])
    num = 9 * (1.959964 / 2.262157) ** 2
    assert figure.value == 0.5
    assert figure.interval == pytest.approx(wilson_interval(num / 2, num_trials=num), abs=1e-5)


def test_the_interval_of_a_mean_of_means_matches_a_manual_computation(mark) -> None:
    """3 of 4 and 2 of 2, each with weight 1/2: the mean is 7/8. Squared deviations: 3/4 in the first part, 0 in the second;
    around 7/8, 3/64 + 49/64 over four and 2/64 over two prompts, so that the pooled variance is 54/64 / 5."""
    marks = [mark(str(n), float(n != 0), subset="a" if n < 4 else "b") for n in range(6)]
    figure, *_ = figures_of([Mean(name="mean", parts=cells_by("subset", ["a", "b"]))], marks, [])
    pooled = 54 / 64 / 5
    variance = (3 / 4 + pooled) / 4 / 16 + pooled / 2 / 8
    num = 7 / 8 * 1 / 8 / variance
    assert figure.value == 7 / 8
    assert figure.interval == pytest.approx(wilson_interval(num * 7 / 8, num_trials=num))


def test_bootstrap_percentiles_match_those_of_all_possible_resamples() -> None:
    """Three prompts have 27 possible resamples."""
    scores = {"a": [1.0, 1.0, 0.0], "b": [0.0, 1.0], "c": [0.5]}
    judged = [judged_of(f"{c}{n}", c, score) for c, found in scores.items() for n, score in enumerate(found)]
    means = [
        np.mean([score for cluster in resample for score in scores[cluster]]) for resample in product("abc", repeat=3)
    ]
    drawn = figures_of([FormulaMetric(name="f", compute=mean_score)], [], judged)[0].interval
    assert drawn == pytest.approx(tuple(np.percentile(means, [2.5, 97.5], method="inverted_cdf")))


def test_a_perfect_accuracy_has_wilsons_interval_over_prompts(mark) -> None:
    """Four prompts have two comparisons each. Wilson's interval of 4 of 4 begins at 4 / (4 + 1.96²)."""
    marks = [mark(f"{n}", 1.0, cluster=str(n // 2)) for n in range(8)]
    (figure,) = figures_of([ALL], marks, [])
    assert figure.interval == (pytest.approx(4 / (4 + 1.959964**2), abs=1e-6), 1.0)


def test_one_prompt_has_no_interval(mark) -> None:
    marks = [mark("1", 1.0, cluster="c"), mark("2", 0.0, cluster="c")]
    assert figures_of([ALL], marks, [])[0].interval is None


def test_a_formula_gets_only_its_examples(mark) -> None:
    about = FormulaMetric(name="f", compute=mean_score, holds=lambda judged: judged.outline.subset == "ties")
    other = judged_of("x", "x", 9.0)
    other = JudgedExample(outline=mark("x", 1.0).outline, mode=other.mode, decisions=())
    (figure,) = figures_of([about], [], [judged_of("1", "a", 0.25), judged_of("2", "b", 0.75), other])
    assert (figure.value, figure.num_marks) == (0.5, 2)
    assert figure.interval == (0.25, 0.75)


def test_a_prompt_drawn_twice_counts_twice_in_a_formula() -> None:
    seen: set[tuple[str, str]] = set()

    def compute(judged: Sequence[JudgedExample]) -> float:
        seen.update((one.outline.cluster, one.outline.id) for one in judged)
        names = [(one.outline.cluster, one.outline.id) for one in judged]
        assert len(set(names)) == len(names) == 4
        return mean_score(judged)

    judged = [judged_of(f"{c}{n}", c, n) for c in "ab" for n in (0.0, 1.0)]
    assert figures_of([FormulaMetric(name="f", compute=compute)], [], judged)[0].value == 0.5
    assert ("a#1", "a0.0#1") in seen


def test_a_formula_and_a_mean_in_one_tree_share_resamples(mark) -> None:
    """For each prompt, the accuracy and the formula add up to 1, so the mean of both is 1/2 in every resample."""
    marks = [mark(str(n), float(n % 2), cluster=str(n)) for n in range(20)]
    judged = [judged_of(str(n), str(n), 1.0 - n % 2) for n in range(20)]
    both = Mean(name="mean", parts=(ALL, FormulaMetric(name="f", compute=mean_score)))
    figure = figures_of([both], marks, judged)[0]
    assert figure.value == 0.5
    assert figure.interval is None  # resamples that differ have an interval
    assert figure.num_marks == 40


def test_a_formula_of_means_has_the_values_and_the_interval_of_the_same_formula_over_examples() -> None:
    """Examples with a score of 0 do not count. 20 clusters have two or three examples."""
    judged = [judged_of(f"{n}", f"c{n % 20}", float(n * n % 7)) for n in range(45)]

    def each(one: JudgedExample) -> tuple[float, ...] | None:
        score = one.outline.facts["score"]
        return (score, 1 / score, 9.0)[: 2 + int(one.outline.id == "1")] if score else None

    def over_examples(judged: Sequence[JudgedExample]) -> float | None:
        found = [numbers for one in judged if (numbers := each(one)) is not None]
        return max(sum(column) / len(found) for column in zip(*found, strict=False)) if found else None

    fast = FormulaMetric(name="f", compute=FormulaOfMeans(each=each, value=max), bounded=False)
    slow = FormulaMetric(name="f", compute=over_examples, bounded=False)
    (found,), (expected,) = figures_of([fast], [], judged), figures_of([slow], [], judged)
    assert found.value == pytest.approx(expected.value)
    assert found.interval == pytest.approx(expected.interval)
    assert fast.compute(judged) == pytest.approx(expected.value)
    assert fast.compute([judged_of("1", "c", 0.0)]) is None


def test_figures_do_not_depend_on_the_order_of_comparisons(mark) -> None:
    marks = [mark(str(n), n % 3 / 2, cluster=str(n // 3)) for n in range(30)]
    assert figures_of([ALL], marks, []) == figures_of([ALL], marks[::-1], [])


def test_the_first_resamples_do_not_depend_on_their_number() -> None:
    few = np.vstack(list(draws(700, num_resamples=200, seed=3)))
    many = np.vstack(list(draws(700, num_resamples=1000, seed=3)))
    assert (many[:201] == few).all()
    assert (many.sum(axis=1) == 700).all()
    assert (many[0] == 1).all()


def test_names_of_clusters_may_be_any_text(mark) -> None:
    marks = [mark(str(n), float(n % 2), cluster=name) for n, name in enumerate(["a", "a\0", "\ud800", "a"])]
    assert figures_of([ALL], marks, [])[0].interval is not None


credits = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.sampled_from("abcdef")), min_size=1, max_size=40
)


@settings(deadline=None)
@given(credits)
def test_an_interval_contains_its_value(found: list[tuple[float, str]]) -> None:
    share = share_of([credit for credit, _ in found], clusters=[name for _, name in found])
    assert share.value == pytest.approx(sum(credit for credit, _ in found) / len(found))
    if share.interval is None:
        assert len({name for _, name in found}) == 1
    else:
        low, high = share.interval
        assert share.value is not None
        assert 0 <= low <= share.value <= high <= 1


def test_a_share_without_numbers_is_none() -> None:
    assert (share_of([], clusters=[]).value, share_of([], clusters=[]).interval) == (None, None)


def test_comparisons_are_read_once() -> None:
    """A benchmark such as PPE has 12,775 comparisons."""
    sets = ["mmlu", "math", "gpqa", "mbpp", "ifeval"]
    num_read = 0

    def holds(mark: ComparisonScore) -> bool:
        nonlocal num_read
        num_read += 1
        return mark.outline.subset in sets

    marks = [
        ComparisonScore(
            outline=ExampleMetadata(
                id=str(n), subset=sets[n % 5], num_responses=2, correct=(0,), cluster=f"{n % 5}/{n // 25}"
            ),
            compared=(0, 1),
            credit=float(n % 3 == 0),
            result="right" if n % 3 == 0 else "wrong",
        )
        for n in range(12_775)
    ]
    (figure,) = figures_of([MeanMetric(name="all", holds=holds)], marks, [])
    assert figure.interval is not None
    assert num_read == len(marks)
