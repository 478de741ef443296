"""Position bias and length bias; expected values computed manually."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tirjudge_harness.examples import ExampleMetadata
from tirjudge_harness.metric_tree import ComparisonScore
from tirjudge_harness.statistics.bias import flips_of, length_of, positions_of

AB, BA = (0, 1), (1, 0)


def test_choosing_the_same_position_in_both_orders_is_a_flip(chosen) -> None:
    judged = [
        chosen("first", (AB, 0), (BA, 1)),
        chosen("second", (AB, 1), (BA, 0)),
        chosen("steady", (AB, 0), (BA, 0)),
        chosen("steadily wrong", (BA, 1), (AB, 1)),
        chosen("half silent", (AB, 0), (BA, None)),
        chosen("one order", (AB, 0)),
    ]
    flips = flips_of(judged)
    assert (flips.rate.value, flips.rate.num) == (0.5, 4)
    assert (flips.num_first, flips.num_second, flips.num_undecided) == (1, 1, 1)


def test_votes_on_one_order_count_as_their_majority(chosen) -> None:
    judged = [
        chosen("1", (AB, 0), (AB, 0), (AB, 1), (BA, 1), (BA, 1), (BA, 0)),
        chosen("split", (AB, 0), (AB, 1), (BA, 0), (BA, 0)),
    ]
    flips = flips_of(judged)
    assert (flips.rate.value, flips.rate.num, flips.num_first, flips.num_undecided) == (1.0, 1, 1, 1)


def test_position_bias_is_measured_on_single_orders(chosen) -> None:
    """Eight of ten decisions choose the response shown first. Response 0 is right. Six orders show it first, and it is
    chosen in five of these."""
    judged = [chosen(f"a{n}", (AB, 0 if n < 5 else 1)) for n in range(6)]
    judged += [chosen(f"b{n}", (BA, 1 if n < 3 else 0)) for n in range(4)]
    (found,) = positions_of(judged)
    assert found.num_shown == 2
    assert [share.value for share in found.named] == [0.8, 0.2]
    assert [(share.value, share.num) for share in found.accuracy] == [(pytest.approx(5 / 6), 6), (0.25, 4)]
    assert found.p_value == 112 / 1024


def test_two_orders_of_a_comparison_are_one_trial(chosen) -> None:
    """Three pairs that choose the first position twice are trials; seven consistent pairs are not."""
    judged = [chosen(f"f{n}", (AB, 0), (BA, 1)) for n in range(3)]
    judged += [chosen(f"s{n}", (AB, 0), (BA, 0)) for n in range(7)]
    (found,) = positions_of(judged)
    assert found.named[0].value == 13 / 20
    assert found.p_value == 0.25


def test_position_bias_is_measured_on_lists(chosen) -> None:
    judged = [
        chosen("1", ((2, 0, 1), 2), num_responses=3),
        chosen("2", ((2, 1, 0), 2), num_responses=3),
        chosen("3", ((0, 1, 2), 0), num_responses=3),
    ]
    (found,) = positions_of(judged)
    assert [share.value for share in found.named] == [1.0, 0.0, 0.0]
    assert [share.value for share in found.accuracy] == [1.0, 0.0, 0.0]
    assert found.p_value == pytest.approx(1 / 27)


def test_undecided_comparisons_have_no_position(chosen) -> None:
    assert positions_of([chosen("1", (AB, None))]) == []


def test_length_bias_counts_decided_comparisons_of_unequal_lengths(mark) -> None:
    """The longer response is chosen in three of four comparisons, and right in two."""
    marks = [
        mark("1", 1.0, lengths=(20, 10)),
        mark("2", 0.0, lengths=(20, 10)),
        mark("3", 0.0, lengths=(10, 20)),
        mark("4", 0.0, lengths=(10, 20)),
        mark("equal", 1.0, lengths=(10, 10)),
        mark("tie", 0.5, lengths=(10, 20)),
        mark("unknown", 1.0),
    ]
    found = length_of(marks)
    assert (found.longer_named.value, found.longer_named.num) == (0.75, 4)
    assert found.longer_right.value == 0.5


def test_the_slope_of_a_saturated_model_matches_a_manual_computation(mark) -> None:
    """With two length ratios, skill and slope fit both shares exactly. The log ratio is log(1+5) - log(1+1) = log 3.
    The right response is chosen in 3 of 4 comparisons if it is longer, and in 1 of 4 if it is shorter. The log-odds are
    log 3 and -log 3, so the slope is 1."""
    marks = [mark(f"long{n}", float(n % 4 > 0), lengths=(5, 1)) for n in range(40)]
    marks += [mark(f"short{n}", float(n % 4 == 0), lengths=(1, 5)) for n in range(40)]
    slope = length_of(marks).slope
    assert slope is not None
    assert slope.value == pytest.approx(1.0)
    # Both log-odds have variance 1 / (40 * 3/16), and the slope is half their distance over log 3.
    error = math.sqrt(2 / (40 * 3 / 16)) / (2 * math.log(3)) * 1.959964 * math.sqrt(80 / 79)
    assert slope.interval == (pytest.approx(1 - error), pytest.approx(1 + error))


def test_the_slope_is_zero_for_a_fair_judge_if_longer_responses_are_often_right(mark) -> None:
    marks = [mark(f"long{n}", float(n % 4 > 0), lengths=(5, 1)) for n in range(60)]
    marks += [mark(f"short{n}", float(n % 4 > 0), lengths=(1, 5)) for n in range(20)]
    found = length_of(marks)
    assert found.longer_right.value == 0.75
    assert found.slope is not None
    assert found.slope.value == pytest.approx(0.0, abs=1e-9)


def test_the_interval_of_the_slope_is_clustered_by_prompt(mark) -> None:
    def marks(prompts: int) -> list:
        return [
            mark(f"{n}", float(n % 4 > 0) if n % 8 < 4 else float(n % 4 == 0), cluster=str(n // 8 % prompts),
                 lengths=(5, 1) if n % 8 < 4 else (1, 5))
            for n in range(80)
        ]  # fmt: skip

    alone = length_of([mark(f"{m.outline.id}", m.credit, lengths=m.outline.lengths) for m in marks(10)]).slope
    together = length_of(marks(10)).slope
    assert alone is not None
    assert together is not None
    assert together.value == pytest.approx(alone.value)
    # Each prompt has the same shares, so its scores cancel and the variance between prompts is 0.
    assert together.interval[1] - together.interval[0] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    "credits",
    [
        pytest.param([1.0, 1.0, 1.0, 1.0], id="all right"),
        pytest.param([1.0, 1.0, 0.0, 0.0], id="length predicts every verdict"),
    ],
)
def test_an_unbounded_slope_is_none(mark, credits) -> None:
    lengths = [(5, 1), (9, 1), (1, 5), (1, 9)]
    marks = [mark(str(n), c, lengths=l) for n, (c, l) in enumerate(zip(credits, lengths, strict=True))]  # noqa: E741
    assert length_of(marks).slope is None


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 100_000), st.integers(0, 100_000), st.sampled_from("abcd")),
        max_size=30,
    )
)
def test_a_slope_is_none_or_lies_in_a_finite_interval(found: list[tuple[bool, int, int, str]]) -> None:
    marks = [
        ComparisonScore(
            outline=ExampleMetadata(
                id=str(n), subset="s", num_responses=2, correct=(0,), cluster=cluster, lengths=(right, wrong)
            ),
            compared=(0, 1),
            credit=float(is_right),
            result="right" if is_right else "wrong",
        )
        for n, (is_right, right, wrong, cluster) in enumerate(found)
    ]
    slope = length_of(marks).slope
    if slope is not None:
        assert slope.interval[0] <= slope.value <= slope.interval[1]
        assert math.isfinite(slope.interval[0])


def test_length_bias_without_comparisons_is_none() -> None:
    found = length_of([])
    assert (found.longer_named.value, found.slope) == (None, None)
