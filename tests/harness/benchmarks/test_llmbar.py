from __future__ import annotations

import json
from pathlib import Path

import pytest

from tirjudge_harness.benchmarks.llmbar import BENCHMARK, FILES
from tirjudge_harness.sources import load_examples


def row(number: int, *, label: object = 1) -> dict[str, object]:
    return {"input": f"Say {number}.", "output_1": f"{number}", "output_2": f"not {number}", "label": label}


@pytest.fixture
def examples(tmp_path: Path):
    """Load two pairs per set."""
    for place, part in enumerate(FILES):
        rows = [row(10 * place + n, label=1 + n) for n in range(2)]
        (tmp_path / f"{part}.json").write_text(json.dumps(rows))
    return load_examples(BENCHMARK, data=tmp_path, on_bad=lambda row: pytest.fail(str(row)))


def test_each_set_is_a_file_and_labels_start_at_one(examples) -> None:
    assert [example.outline.subset for example in examples] == [part for part in FILES for _ in range(2)]
    assert [example.outline.correct for example in examples[:2]] == [(0,), (1,)]
    assert len({example.outline.id for example in examples}) == 10


def test_the_id_depends_on_the_texts_only(load) -> None:
    (alone,) = load(BENCHMARK, [row(7)], part="manual")
    assert alone.outline.id == load(BENCHMARK, [row(6), row(7)], part="manual")[1].outline.id


def test_adversarial_is_the_mean_of_four_sets(examples, named, figures) -> None:
    # All verdicts are right except three: one natural pair is wrong in both orders, one `neighbor` pair is wrong in one
    # order, and one `manual` pair is a tie in one order.
    judged = []
    for place, example in enumerate(examples):
        right = example.outline.correct[0]
        choices = {0: (1 - right, 1 - right), 2: (right, 1 - right), 8: ("tie", right)}.get(place, (right, right))
        judged.append(named(example, *choices))
    values = figures(BENCHMARK, judged)
    assert values["natural"] == 0.5
    assert values["neighbor"] == values["manual"] == 0.75
    assert values["adversarial"] == pytest.approx((0.75 + 1 + 1 + 0.75) / 4)
    assert values["average"] == pytest.approx((0.5 + 0.75 + 1 + 1 + 0.75) / 5)


@pytest.mark.parametrize("label", [0, 3, None, True])
def test_a_label_out_of_range_is_an_invalid_row(load, bad, label: object) -> None:
    load(BENCHMARK, [row(0), row(1, label=label)], part="natural")
    assert [report.number for report in bad] == [2]
    assert bad[0].problem.startswith("label: ")
