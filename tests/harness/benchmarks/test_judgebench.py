from __future__ import annotations

import pytest

from tirjudge_harness.benchmarks.judgebench import BENCHMARK
from tirjudge_harness.protocols import PAPER


def row(number: int, *, source: str = "mmlu-pro-law", label: str = "A>B") -> dict[str, object]:
    return {
        "pair_id": f"p{number}",
        "original_id": number,
        "source": source,
        "question": f"Which of these {number} statements holds?",
        "response_model": "some-model",
        "response_A": f"the first of {number}",
        "response_B": f"the second of {number}",
        "label": label,
    }


def test_the_label_determines_the_right_response_and_the_source_the_subset(load) -> None:
    sources = ["mmlu-pro-law", "livebench-reasoning", "livebench-math", "livecodebench"]
    examples = load(BENCHMARK, [row(n, source=source, label="B>A") for n, source in enumerate(sources)])
    assert [example.outline.subset for example in examples] == ["knowledge", "reasoning", "math", "coding"]
    assert {example.outline.correct for example in examples} == {(1,)}
    first = examples[0]
    assert (first.outline.id, first.prompt) == ("p0", "Which of these 0 statements holds?")
    assert first.responses == ("the first of 0", "the second of 0")
    assert first.outline.tags == {"source": "mmlu-pro-law", "split": "gpt"}


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ({"label": "A=B"}, "label: expected A>B or B>A, got 'A=B'"),
        ({"source": "quiz"}, "source: 'quiz' does not start with one of mmlu-pro, livebench-reasoning"),
        ({"response_B": None}, "response_B: expected a string, got null"),
    ],
)
def test_an_invalid_row_is_reported_and_skipped(load, bad, broken: dict[str, object], problem: str) -> None:
    assert len(load(BENCHMARK, [row(0), {**row(1), **broken}, row(2)])) == 2
    assert [(report.number, report.problem.startswith(problem)) for report in bad] == [(2, True)]


def test_official_rule_takes_the_majority_of_both_orders(load, named, figures) -> None:
    examples = load(BENCHMARK, [row(n) for n in range(5)])
    choices = [(0, 0), (0, "tie"), (0, 1), ("tie", "tie"), (1, None)]
    judged = [named(example, *both) for example, both in zip(examples, choices, strict=True)]
    # The outcomes are, in order: right, right (one order right, one tie), split, split, wrong. So 2 of 5 pairs are right.
    assert figures(BENCHMARK, judged) == {
        "overall": 0.4,
        "knowledge": 0.4,
        "reasoning": None,
        "math": None,
        "coding": None,
    }
    # In the first order alone, three pairs are right, one is a tie that counts as 0.5, and one is wrong.
    assert figures(BENCHMARK, judged, protocol=PAPER)["overall"] == pytest.approx(3.5 / 5)


def test_overall_is_the_mean_over_pairs_not_categories(load, named, figures) -> None:
    rows = [row(n, source="livebench-math" if n < 3 else "livecodebench") for n in range(4)]
    judged = [
        named(example, *choices)
        for example, choices in zip(load(BENCHMARK, rows), [(0, 0)] * 3 + [(1, 1)], strict=True)
    ]
    values = figures(BENCHMARK, judged)
    assert (values["overall"], values["math"], values["coding"]) == (0.75, 1.0, 0.0)


def test_equal_scores_are_wrong_by_the_official_rule_and_get_half_credit_by_the_paper_protocol(
    load, rated, figures
) -> None:
    first, second = load(BENCHMARK, [row(0), row(1)])
    judged = [rated(first, 7, 7), rated(second, 8, 3)]
    assert figures(BENCHMARK, judged)["overall"] == 0.5
    assert figures(BENCHMARK, judged, protocol=PAPER)["overall"] == 0.75


def test_the_split_is_taken_from_the_file_name(load) -> None:
    (example,) = load(BENCHMARK, [row(0)], part="claude")
    assert example.outline.tags["split"] == "claude"
