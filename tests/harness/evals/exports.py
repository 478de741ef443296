"""Exports for tests: objects in the shape in which OpenAI's API returns them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

CHECKS: list[dict[str, Any]] = [
    {
        "type": "string_check",
        "name": "Exact match",
        "input": "{{sample.output_text}}",
        "reference": "{{item.answer}}",
        "operation": "eq",
    },
    {
        "type": "string_check",
        "name": "Mentions it",
        "input": "{{sample.output_text}}",
        "reference": "{{item.answer}}",
        "operation": "ilike",
    },
    {
        "type": "text_similarity",
        "name": "Similar",
        "input": "{{sample.output_text}}",
        "reference": "{{item.answer}}",
        "evaluation_metric": "fuzzy_match",
        "pass_threshold": 0.9,
    },
]
PROGRAM = {
    "type": "python",
    "name": "Short",
    "source": "def grade(sample, item):\n    return 1.0 if len(sample['output_text']) < 12 else 0.0",
    "image_tag": None,
    "pass_threshold": 0.5,
}


def exported_eval(criteria: Sequence[dict[str, Any]]) -> dict[str, Any]:
    item = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    sample = {"type": "object", "properties": {"output_text": {"type": "string"}}, "required": ["output_text"]}
    schema = {"type": "object", "properties": {"item": item, "sample": sample}, "required": ["item", "sample"]}
    return {
        "object": "eval",
        "id": "eval_67abd54d9b0081909a86353f6fb9317a",
        "data_source_config": {"type": "custom", "schema": schema},
        "testing_criteria": list(criteria),
        "name": "My evaluation",
        "created_at": 1739314509,
        "metadata": {},
    }


def exported_run(eval_id: str) -> dict[str, Any]:
    return {
        "object": "eval.run",
        "id": "evalrun_67abd54d60ec8190832b46859da808f7",
        "eval_id": eval_id,
        "report_url": "https://example.org",
        "status": "completed",
        "model": "gpt-4o-mini",
        "name": "gpt-4o-mini",
        "created_at": 1739314510,
        "result_counts": {"total": 1, "errored": 0, "failed": 0, "passed": 1},
        "per_model_usage": None,
        "per_testing_criteria_results": [],
        "data_source": {"type": "completions", "source": {"type": "file_id", "id": "file-gone"}},
        "error": None,
        "metadata": {},
    }


def exported_item(run: dict[str, Any], number: int, *, answer: str, output: str, passed: Sequence[bool]) -> Any:
    criteria = [*CHECKS, PROGRAM]
    return {
        "object": "eval.run.output_item",
        "id": f"outputitem_{number:04}",
        "created_at": 1739314511,
        "run_id": run["id"],
        "eval_id": run["eval_id"],
        "status": "pass" if all(passed) else "fail",
        "datasource_item_id": number,
        "datasource_item": {"answer": answer},
        "results": [
            {"name": f"{criterion['name']}-7d1c", "sample": None, "passed": each, "score": float(each)}
            for criterion, each in zip(criteria, passed, strict=False)
        ],
        "sample": {
            "input": [{"role": "user", "content": "?"}],
            "output": [{"role": "assistant", "content": output, "tool_calls": None}],
            "finish_reason": "stop",
            "model": "gpt-4o-mini-2024-07-18",
            "usage": {"total_tokens": 1, "completion_tokens": 1, "prompt_tokens": 0, "cached_tokens": 0},
            "error": None,
            "temperature": 1.0,
            "max_completion_tokens": 2048,
            "top_p": 1.0,
            "seed": 42,
        },
    }


def items(run: dict[str, Any], *, num: int, has_program: bool) -> list[Any]:
    """Return output items whose results are worked out here, from the three kinds of outputs."""
    found = []
    for number in range(num):
        answer = f"answer {number:04}"
        output, passed = [
            (answer, [True, True, True, True]),
            # 11 of the 12 characters of the longer text, and all of the shorter: 2 * 11 / (11 + 12) = 0.957.
            (f"{answer}.", [False, True, True, False]),
            (f"I think it is {answer.upper()}, but am not sure.", [False, True, False, False]),
        ][number % 3]
        found.append(exported_item(run, number, answer=answer, output=output, passed=passed[: 4 if has_program else 3]))
    return found
