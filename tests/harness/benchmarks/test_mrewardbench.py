from __future__ import annotations

import pytest

from tirjudge_harness.benchmarks.mrewardbench import BENCHMARK, LANGUAGES


def row(number: int, subset: str) -> dict[str, object]:
    return {
        "id": number,
        "language": "x",
        "prompt": f"Frage {number}",
        "chosen": f"gut {number}",
        "rejected": f"schlecht {number}",
        "chosen_model": "m",
        "rejected_model": "n",
        "subset": subset,
    }


def test_the_translations_of_a_pair_are_one_cluster(load) -> None:
    (german,) = load(BENCHMARK, [row(7, "donotanswer")], part="deu_Latn")
    (greek,) = load(BENCHMARK, [row(7, "donotanswer")], part="ell_Grek")
    assert german.outline.cluster == greek.outline.cluster == "donotanswer/7"
    assert (german.outline.id, german.outline.subset) == ("deu_Latn/donotanswer/7", "deu_Latn/donotanswer")
    assert german.outline.tags == {"language": "deu_Latn"}


def test_a_language_is_the_mean_of_its_sections_and_the_average_the_mean_of_languages(load, named, figures) -> None:
    german = load(BENCHMARK, [row(0, "hep-python"), row(1, "math-prm"), row(2, "donotanswer")], part="deu_Latn")
    greek = load(BENCHMARK, [row(0, "alpacaeval-easy"), row(1, "alpacaeval-easy")], part="ell_Grek")
    choices = (0, 1, 0, 0, "tie")
    judged = [named(example, choice) for example, choice in zip([*german, *greek], choices, strict=True)]
    values = figures(BENCHMARK, judged)
    # Reasoning: hep-python has weight 164 and is right, math-prm has weight 984 and is wrong.
    reasoning = 164 / (164 + 984)
    assert values["deu_Latn/Reasoning"] == pytest.approx(reasoning)
    assert values["deu_Latn"] == pytest.approx((reasoning + 1) / 2)
    assert values["ell_Grek"] == 0.75
    assert values["average"] == pytest.approx(((reasoning + 1) / 2 + 0.75) / 2)


def test_an_unknown_subset_is_an_invalid_row(load, bad) -> None:
    assert len(load(BENCHMARK, [row(0, "donotanswer"), row(1, "other")], part="fra_Latn")) == 1
    assert [report.problem for report in bad] == [
        "subset: no metric of m-rewardbench includes the subset 'fra_Latn/other'"
    ]


def test_there_are_23_languages() -> None:
    assert len(set(LANGUAGES)) == 23
