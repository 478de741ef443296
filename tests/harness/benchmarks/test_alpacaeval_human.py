from __future__ import annotations

import pytest
from rich.console import Console

from tirjudge_harness.bench_run import load as load_rows
from tirjudge_harness.benchmarks.alpacaeval_human import BENCHMARK
from tirjudge_harness.benchmarks.human_votes import agreement_with_majority


def votes(number: int, *preferences: object) -> list[dict[str, object]]:
    return [
        {
            "instruction": f"Do {number}.",
            "output_1": f"first {number}",
            "output_2": f"second {number}",
            "preference": preference,
            "annotator_index": place,
        }
        for place, preference in enumerate(preferences)
    ]


def test_votes_on_one_pair_are_joined_in_order(load) -> None:
    first, second = load(BENCHMARK, [*votes(1, 1, 2, 2, 1.5), *votes(2, 0, 1)])
    assert (first.outline.facts, first.outline.correct) == ({"votes": [0, 1, 1, -1]}, (1,))
    assert (second.outline.facts, second.outline.correct) == ({"votes": [-1, 0]}, (0,))


@pytest.mark.parametrize(
    ("choice", "given", "agreement"),
    [
        (0, [0, 0, 0, 1], 1.0),
        (1, [0, 0, 0, 1], 0.0),
        (0, [0, 0, 1, 1], 0.5),
        (-1, [0, 0, 0, 1], 0.5),
        (-1, [-1, -1, 0, 1], 1.0),
        (0, [-1, -1, 0, 0], 0.75),
        (None, [0, 0, 0, 0], 0.0),
    ],
)
def test_agreement_with_the_majority(choice: int | None, given: list[int], agreement: float) -> None:
    assert agreement_with_majority(choice, given) == agreement


def test_only_pairs_with_four_votes_count_and_the_ceiling_leaves_one_vote_out(load, named, figures) -> None:
    rows = [*votes(1, 1, 1, 1, 2), *votes(2, 2, 2, 1, 1), *votes(3, 1, 1, 1), *votes(4, 2, 2, 2, 2, 1)]
    judged = [named(one, choice) for one, choice in zip(load(BENCHMARK, rows), [0, 0, 1, 0], strict=True)]
    values = figures(BENCHMARK, judged)
    assert values["human agreement"] == pytest.approx((1 + 0.5 + 0) / 3)
    # Pair 1: three of four votes agree with the majority of the rest. Pair 2: none does. Pair 4: all of the first four do.
    assert values["agreement of humans"] == pytest.approx((3 + 0 + 4) / 12)


@pytest.mark.parametrize("preference", [3, None, "1", True])
def test_another_preference_is_an_invalid_row(load, bad, preference: object) -> None:
    assert len(load(BENCHMARK, [*votes(1, 1), *votes(2, preference)])) == 1
    assert bad[0].problem.startswith("preference: expected 1, 2, or 0 or 1.5 for a tie, got ")


def test_the_share_of_invalid_rows_is_one_of_rows_and_not_of_pairs(write_lines) -> None:
    rows = [*(vote for n in range(5) for vote in votes(n, 1, 2, 1, 2)), *votes(9, "both")]
    found = load_rows(BENCHMARK, data=write_lines(rows, name="crossannotations.jsonl"), console=Console(quiet=True))
    assert (len(found.examples), found.num_bad_rows) == (5, 1)
