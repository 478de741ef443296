from __future__ import annotations

import pytest

from tirjudge.types import ChatMessage
from tirjudge_harness.benchmarks.rewardbench import BENCHMARK, SECTIONS
from tirjudge_harness.sources import load_examples


def row(number: int, *, subset: str = "math-prm", prompt: object = None) -> dict[str, object]:
    return {
        "id": number,
        "prompt": prompt or f"Question {number} of {subset}",
        "chosen": f"right {number}",
        "chosen_model": "human",
        "rejected": f"wrong {number}",
        "rejected_model": "model",
        "subset": subset,
    }


def test_section_weights_are_the_official_ones() -> None:
    sizes = {section: sum(weights.values()) for section, weights in SECTIONS.items()}
    assert sizes == {"Chat": 358, "Chat Hard": 456, "Safety": 740, "Reasoning": 984 + 6 * 164}
    # There are 2985 pairs. The 447 pairs of math-prm count as 984.
    assert sum(sizes.values()) == 2985 - 447 + 984


def test_reasoning_weights_math_as_much_as_all_code(load, named, figures) -> None:
    subsets = ["math-prm"] * 4 + ["hep-go", "hep-python"]
    examples = load(BENCHMARK, [row(n, subset=subset) for n, subset in enumerate(subsets)])
    judged = [named(example, choice) for example, choice in zip(examples, (0, 1, 1, 1, 0, 1), strict=True)]
    # math-prm has accuracy 1/4 and weight 984. hep-go has accuracy 1, hep-python 0, and both have weight 164. The other
    # four subsets of code have no verdicts and are left out together with their weights.
    values = figures(BENCHMARK, judged)
    assert values["math-prm"] == 0.25
    assert values["Reasoning"] == pytest.approx((0.25 * 984 + 164) / (984 + 2 * 164))


def test_average_weights_sections_equally(load, named, figures) -> None:
    subsets = ["alpacaeval-easy", "alpacaeval-easy", "mt-bench-med", "llmbar-natural", "donotanswer", "hep-js"]
    examples = load(BENCHMARK, [row(n, subset=subset) for n, subset in enumerate(subsets)])
    judged = [named(example, choice) for example, choice in zip(examples, (0, 1, 1, 0, "tie", None), strict=True)]
    # Chat has accuracy 1/2 with weight 100 and accuracy 0 with weight 40. A tie or a missing verdict counts as 0.5.
    values = figures(BENCHMARK, judged)
    assert values["Chat"] == pytest.approx(0.5 * 100 / 140)
    assert (values["Chat Hard"], values["Safety"], values["Reasoning"]) == (1.0, 0.5, 0.5)
    assert values["average"] == pytest.approx((50 / 140 + 1 + 0.5 + 0.5) / 4)


def test_prior_sets_have_half_the_weight_of_a_section(tmp_path, load, named, figures) -> None:
    current = load(BENCHMARK, [row(1, subset=subset) for subset in ("mt-bench-med", "llmbar-natural", "donotanswer")])
    current += load(BENCHMARK, [row(1, subset="hep-js")])
    conversation = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    older = {"prompt": [*conversation, {"role": "user", "content": "?"}], "chosen": "right", "rejected": "wrong"}
    prior = [example for part in ("shp", "summarize") for example in load(BENCHMARK, [older], part=part)]
    assert prior[0].prompt == tuple(map(ChatMessage.model_validate, older["prompt"]))
    judged = [named(example, 0) for example in (*current, prior[0])] + [named(prior[1], 1)]
    values = figures(BENCHMARK, judged)
    # All four sections have accuracy 1. The prior sets have accuracies 1 and 0: (2 + 2 + 2 + 2 + 0.5) / 9.
    assert (values["average"], values["Prior Sets"]) == (1.0, 0.5)
    assert values["leaderboard"] == pytest.approx(8.5 / 9)


def test_leaderboard_is_none_without_prior_sets(load, named, figures) -> None:
    (example,) = load(BENCHMARK, [row(1)])
    values = figures(BENCHMARK, [named(example, 0)])
    assert (values["average"], values["Prior Sets"], values["leaderboard"]) == (1.0, None, None)


def test_ids_are_unique_across_subsets(load) -> None:
    examples = load(BENCHMARK, [row(1, subset="hep-go"), row(1, subset="hep-cpp")])
    assert [example.outline.id for example in examples] == ["hep-go/1", "hep-cpp/1"]


def test_pairs_with_one_prompt_are_one_cluster(load) -> None:
    rows = [row(n, subset="alpacaeval-easy", prompt="same" if n < 2 else "other") for n in range(3)]
    clusters = [example.outline.cluster for example in load(BENCHMARK, rows)]
    assert clusters == ["alpacaeval-easy/0", "alpacaeval-easy/0", "alpacaeval-easy/2"]


def test_a_subset_without_a_metric_is_reported(load, bad) -> None:
    load(BENCHMARK, [row(1), row(2, subset="hep-cobol")])
    assert [report.problem for report in bad] == ["subset: no metric of rewardbench includes the subset 'hep-cobol'"]


def test_prior_sets_are_only_loaded_on_request(tmp_path, load) -> None:
    load(BENCHMARK, [row(1)], part="filtered")
    load(BENCHMARK, [row(1)], part="shp")
    examples = load_examples(BENCHMARK, data=tmp_path, on_bad=lambda row: pytest.fail(str(row)))
    assert [example.outline.subset for example in examples] == ["math-prm"]
