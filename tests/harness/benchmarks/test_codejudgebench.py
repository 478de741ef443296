from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tirjudge_harness.benchmarks.codejudgebench import ADVERSARIAL, BENCHMARK
from tirjudge_harness.sources import load_examples


def row(question: str, *, difficulty: str = "easy", **more: Any) -> dict[str, Any]:
    return {
        "question_id": question,
        "question_content": f"Add the numbers of {question}.",
        "difficulty": difficulty,
        "pos_response": "print(sum(x))",
        "neg_response": "print(x)",
        **more,
    }


def repair(code: int, **meta: Any) -> dict[str, Any]:
    return row("q", wrong_code="print({x})", wrong_meta={"error_code": code, **meta})


def test_each_file_of_a_task_is_a_split(tmp_path: Path) -> None:
    for task, split in (("codegen", "claude_3.7"), ("codegen", "gemini"), ("testgen", "gemini")):
        (tmp_path / task).mkdir(exist_ok=True)
        (tmp_path / task / f"{split}.jsonl").write_text(json.dumps(row("q1", pos_input="1", neg_input="2")))
    examples = load_examples(
        BENCHMARK, data=tmp_path, parts=["codegen", "testgen"], on_bad=lambda row: pytest.fail(str(row))
    )
    ids = ["codegen/claude_3.7/q1", "codegen/gemini/q1", "testgen/gemini/q1"]
    assert [example.outline.id for example in examples] == ids
    assert [example.outline.subset for example in examples] == ["codegen", "codegen", "testgen"]
    assert {example.outline.cluster for example in examples} == {"q1"}


def test_codegen_prompt_is_the_problem(load) -> None:
    (example,) = load(BENCHMARK, [row("q")], part="codegen")
    assert (example.prompt, example.responses) == ("Add the numbers of q.", ("print(sum(x))", "print(x)"))


def test_testgen_prompt_asks_for_a_test_and_responses_have_inputs(load) -> None:
    (example,) = load(BENCHMARK, [row("q", pos_input="1 2", neg_input=[3, 4])], part="testgen")
    assert isinstance(example.prompt, str)
    assert "unit test" in example.prompt
    assert "Add the numbers of q." in example.prompt
    assert example.responses == (
        "### Input\n```\n1 2\n```\n\n### Output\n```\nprint(sum(x))\n```",
        "### Input\n```\n[3, 4]\n```\n\n### Output\n```\nprint(x)\n```",
    )


@pytest.mark.parametrize(
    ("wrong", "shown"),
    [
        (repair(-1, error="SyntaxError: {"), ["It does not compile.", "Error:\n```\nSyntaxError: {\n```"]),
        (
            repair(-2, inputs="1 2", output="12", expected="3"),
            ["wrong answer", "Input:\n```\n1 2\n```", "Its output:\n```\n12\n```", "Expected:\n```\n3\n```"],
        ),
        (repair(-3, error="Time limit", inputs=[1], expected=1), ["too long", "Time limit", "```\n[1]\n```"]),
        (repair(-4, error_message="IndexError"), ["stops with an error.\nIndexError"]),
    ],
)
def test_coderepair_shows_the_program_and_how_it_failed(load, wrong: dict[str, Any], shown: list[str]) -> None:
    (example,) = load(BENCHMARK, [wrong], part="coderepair")
    for piece in ("Add the numbers of q.", "```python\nprint({x})\n```", *shown):
        assert piece in example.prompt


def test_error_details_may_be_json_text(load) -> None:
    (as_object,) = load(BENCHMARK, [repair(-2, inputs="1")], part="coderepair")
    written = repair(-2, inputs="1")
    written["wrong_meta"] = json.dumps(written["wrong_meta"])
    (as_text,) = load(BENCHMARK, [written], part="coderepair")
    assert as_object == as_text


def test_official_rule_averages_both_orders(load, named, figures) -> None:
    easy, hard = load(BENCHMARK, [row("q1"), row("q2", difficulty="hard")], part="codegen")
    (repaired,) = load(BENCHMARK, [repair(-1)], part="coderepair")
    judged = [named(easy, 0, 1), named(hard, 0, 0), named(repaired, 1, "tie")]
    # The three pairs are right in one order, in both orders, and in neither. A tie counts as wrong by this rule.
    values = figures(BENCHMARK, judged)
    assert values["all pairs"] == pytest.approx((0.5 + 1 + 0) / 3)
    assert (values["codegen"], values["coderepair"], values["testgen"]) == (0.75, 0.0, None)
    assert values["mean of tasks"] == pytest.approx((0.75 + 0) / 2)
    assert (values["easy"], values["hard"], values["medium"]) == (0.25, 1.0, None)


def test_a_single_file_must_name_its_task(load) -> None:
    with pytest.raises(ValueError, match=r"choose one with --part, or give a folder .* codegen, coderepair, testgen"):
        load(BENCHMARK, [row("q")])


def test_the_adversarial_pairs_are_averaged_over_splits_and_need_no_question_id(tmp_path: Path, named, figures) -> None:
    for split, num in (("gemini_2.5_pro", 1), ("claude_3.7_sonnet", 3)):
        rows = [{key: value for key, value in row(f"{split} {n}").items() if key != "question_id"} for n in range(num)]
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    examples = load_examples(ADVERSARIAL, data=tmp_path, on_bad=lambda row: pytest.fail(str(row)))
    assert len({example.outline.id for example in examples}) == 4
    judged = [
        named(example, *((0, 0) if example.outline.tags["split"] == "gemini_2.5_pro" else (0, 1)))
        for example in examples
    ]
    values = figures(ADVERSARIAL, judged)
    assert values["all pairs"] == pytest.approx((1 + 3 * 0.5) / 4)
    assert (values["gemini_2.5_pro"], values["claude_3.7_sonnet"]) == (1.0, 0.5)
    assert values["mean of splits"] == 0.75
