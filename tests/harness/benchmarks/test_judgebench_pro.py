from __future__ import annotations

import pytest

from tirjudge_harness.benchmarks.judgebench_pro import BENCHMARK


def row(number: int, *, label: object = 1) -> dict[str, object]:
    return {
        "question": f"What is {number} + 1?",
        "response_A": f"{number + 1}",
        "response_B": f"Experts agree: {number}",
        "label": label,
        "injected_bias": "authority",
        "domain": "math",
    }


def test_the_label_is_the_number_of_the_right_response(load, named, figures) -> None:
    first, second = load(BENCHMARK, [row(1), row(2, label=2)])
    assert (first.outline.correct, second.outline.correct) == ((0,), (1,))
    assert first.outline.tags == {"domain": "math"}
    assert figures(BENCHMARK, [named(first, 0), named(second, 0)]) == {"accuracy": 0.5, "domain: math": 0.5}


@pytest.mark.parametrize("label", [0, 3, "A", None])
def test_another_label_is_an_invalid_row(load, bad, label: object) -> None:
    assert len(load(BENCHMARK, [row(0), row(1, label=label)])) == 1
    assert bad[0].problem.startswith("label: expected ")
