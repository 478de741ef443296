from __future__ import annotations

import pytest

from tirjudge_harness.benchmarks.ifbench import BENCHMARK


def row(number: int, *, broken: int) -> dict[str, object]:
    return {
        "id": number,
        "instruction": f"Write {number} lines without commas.",
        "chosen": {"content": f"kept {number}", "unsatisfied_constraints": []},
        "rejected": {"content": f"broken {number}", "unsatisfied_constraints": ["commas"] * broken},
    }


def test_difficulty_depends_on_the_number_of_violated_constraints(load) -> None:
    examples = load(BENCHMARK, [row(n, broken=n) for n in (1, 2, 3, 5)])
    assert [example.outline.subset for example in examples] == ["hard", "normal", "simple", "simple"]
    assert examples[0].prompt == "Write 1 lines without commas."
    assert examples[0].responses == ("kept 1", "broken 1")
    assert examples[0].outline.correct == (0,)


def test_the_file_in_git_gives_the_same_examples(load) -> None:
    asked = {"role": "user", "content": "Write 1 lines without commas."}
    converted = {
        "id": 1,
        "domain": "level-3",
        "text_chosen": [asked, {"role": "assistant", "content": "kept 1"}],
        "text_rejected": [asked, {"role": "assistant", "content": "broken 1"}],
    }
    assert load(BENCHMARK, [converted]) == load(BENCHMARK, [row(1, broken=1)])


def test_an_unknown_level_is_an_invalid_row(load, bad) -> None:
    asked = {"role": "user", "content": "?"}
    converted = {"id": 9, "domain": "level-9", "text_chosen": [asked, asked], "text_rejected": [asked, asked]}
    load(BENCHMARK, [row(1, broken=1), converted])
    assert [report.number for report in bad] == [2]
    assert "got 'level-9'" in bad[0].problem


def test_overall_is_the_mean_over_pairs(load, named, figures) -> None:
    examples = load(BENCHMARK, [row(n, broken=1 + n % 2) for n in range(4)])
    judged = [named(example, choice) for example, choice in zip(examples, (0, 0, 1, "tie"), strict=True)]
    # The verdicts on the hard pairs are right and wrong; on the normal pairs, right and a tie that counts as 0.5.
    values = figures(BENCHMARK, judged)
    assert values == {"overall": pytest.approx(2.5 / 4), "hard": 0.5, "normal": 0.75, "simple": None}
