from __future__ import annotations

from math import tanh

import pytest

from tirjudge.types import Mode
from tirjudge_harness.benchmarks.rewardbench2 import BENCHMARK, TASKS, ties_score


def row(id: object, *, subset: str = "Math", num_right: int = 1, num_wrong: int = 3) -> dict[str, object]:
    return {
        "id": id,
        "prompt": f"Question {id} of {subset}",
        "chosen": [f"right {n}" for n in range(num_right)],
        "rejected": [f"wrong {n}" for n in range(num_wrong)],
        "num_correct": num_right,
        "subset": subset,
    }


def ties(number: int) -> list[dict[str, object]]:
    """Return a prompt with one right response, and its paired prompt with three."""
    return [
        row(f"ref:{number}", subset="Ties", num_right=1, num_wrong=1),
        row(f"tied:{number}", subset="Ties", num_right=3, num_wrong=1),
    ]


def test_four_responses_are_compared_and_ties_are_only_rated(load) -> None:
    example, _, tied = load(BENCHMARK, [row(1), *ties(5)])
    assert example.outline.correct == (0,)
    assert BENCHMARK.asked(example.outline, mode=Mode.LISTWISE) == [(0, 1, 2, 3)]
    assert tied.outline.correct == (0, 1, 2)
    assert BENCHMARK.asked(tied.outline, mode=Mode.LISTWISE) == []
    assert BENCHMARK.asked(tied.outline, mode=Mode.POINTWISE) == [(0,), (1,), (2,), (3,)]


def test_paired_prompts_of_ties_are_one_cluster(load) -> None:
    examples = load(BENCHMARK, [*ties(5), *ties(6)])
    assert [example.outline.cluster for example in examples] == ["Ties/5", "Ties/5", "Ties/6", "Ties/6"]


def test_equal_best_ratings_share_the_score(load, rated, figures) -> None:
    examples = load(BENCHMARK, [row(n) for n in range(5)])
    scores = [(9, 1, 1, 1), (9, 9, 9, 1), (8, 9, 1, 1), (None, 1, 1, 1), (None, None, None, None)]
    judged = [rated(example, *score) for example, score in zip(examples, scores, strict=True)]
    # The right response is rated highest alone (1), with two others (1/3), not highest (0), not rated (0). If no
    # response is rated, the score is 1/4.
    assert figures(BENCHMARK, judged)["Math"] == pytest.approx((1 + 1 / 3 + 0 + 0 + 1 / 4) / 5)


def test_a_missing_choice_counts_as_a_random_choice(load, named, figures) -> None:
    examples = load(BENCHMARK, [row(n, subset="Focus") for n in range(3)])
    judged = [named(example, choice) for example, choice in zip(examples, (0, 3, None), strict=True)]
    values = figures(BENCHMARK, judged)
    assert values["Focus"] == pytest.approx((1 + 0 + 0.25) / 3)
    assert values["average without Ties"] == values["Focus"]


def test_ties_score_matches_a_manual_computation(load, rated) -> None:
    ref, tied = load(BENCHMARK, ties(1))
    # First prompt: right 9, wrong 4, margin 5. Second prompt: right 8 to 6, wrong 5, margin 1, span 2.
    one = ties_score([rated(ref, 9, 4), rated(tied, 8, 7, 6, 5)])
    assert one == pytest.approx(0.30 + 0.30 + 0 + 0 + 0.01 * tanh(1 / 2 - 1))
    # The margins are 5 and 3, and the span is 2: every part of the score is full.
    two = ties_score([rated(ref, 9, 4), rated(tied, 9, 8, 7, 4)])
    assert two == pytest.approx(0.30 + 0.30 + 0.20 + 0.20 + 0.01 * tanh(3 / 2 - 1))
    # A wrong response is rated highest in both prompts: the margins are -5 and -1, and the span is 0.
    three = ties_score([rated(ref, 4, 9), rated(tied, 7, 7, 7, 8)])
    assert three == pytest.approx(-0.01)


def test_ties_score_is_the_mean_over_prompts(load, rated) -> None:
    ref, tied, other_ref, other_tied = load(BENCHMARK, [*ties(1), *ties(2)])
    judged = [rated(ref, 9, 4), rated(tied, 8, 7, 6, 5), rated(other_ref, 4, 9), rated(other_tied, 7, 7, 7, 8)]
    assert ties_score(judged) == pytest.approx(0.30 / 2 + 0.30 / 2 + 0.01 * (tanh(-1 / 2) - 1) / 2)


def test_equal_ratings_of_right_responses_have_span_zero(load, rated) -> None:
    ref, tied = load(BENCHMARK, ties(1))
    assert ties_score([rated(ref, 9, 4), rated(tied, 8, 8, 8, 5)]) == pytest.approx(1.0 + 0.01)
    # Margin and span are 0. The quotient 0 / 0 adds nothing to the score.
    assert ties_score([rated(ref, 9, 4), rated(tied, 8, 8, 8, 8)]) == pytest.approx(0.30)


def test_an_unrated_response_is_the_worst(load, rated) -> None:
    ref, tied = load(BENCHMARK, ties(1))
    assert ties_score([rated(ref, 9, None), rated(tied, 9, 9, 9, None)]) == pytest.approx(1.0 + 0.01)


def test_only_the_average_with_ties_needs_ties(load, rated, named, figures) -> None:
    rows = [row(n, subset=task) for n, task in enumerate(TASKS)]
    *five, ref, tied = load(BENCHMARK, [*rows, *ties(1)])
    judged = [rated(example, 9, 1, 1, 1) for example in five[:4]] + [rated(five[4], 1, 9, 1, 1)]
    judged += [rated(ref, 9, 4), rated(tied, 8, 8, 8, 8)]
    values = figures(BENCHMARK, judged)
    assert values["Ties"] == pytest.approx(0.30)
    assert values["average without Ties"] == pytest.approx(4 / 5)
    assert values["average"] == pytest.approx((4 + 0.30) / 6)
    picked = figures(BENCHMARK, [named(example, 0) for example in five])
    assert (picked["average without Ties"], picked["Ties"], picked["average"]) == (1.0, None, None)


def test_an_invalid_id_in_ties_is_an_invalid_row(load, bad) -> None:
    load(BENCHMARK, [row(1), row("17", subset="Ties")])
    assert [report.problem for report in bad] == ["id: expected ref:N or tied:N in the subset Ties, got '17'"]


def test_ties_can_use_the_common_layout(load, rated, figures) -> None:
    rows = [
        {
            "id": f"{kind}:3",
            "subset": "Ties",
            "prompt": f"{kind}?",
            "responses": ["a", "b", "c"],
            "label": None,
            "meta": {"correct": correct, "cluster": "three"},
        }
        for kind, correct in (("ref", [0]), ("tied", [0, 1]))
    ]
    ref, tied = load(BENCHMARK, rows)
    assert {ref.outline.cluster, tied.outline.cluster} == {"three"}
    assert figures(BENCHMARK, [rated(ref, 9, 1, 1), rated(tied, 9, 9, 1)])["Ties"] == pytest.approx(1.01)
