"""Examples of request bodies, for the OpenAPI schema. Each of them gets a 200."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tirjudge.http.protocol import JUDGE_PATH
from tirjudge.http.rewards import BATCH_PATH, RERANK_PATH, REWARD_PATH
from tirjudge_server.evals.objects import EVALS_PATH
from tirjudge_server.openai.chat import CHAT_PATH
from tirjudge_server.openai.completions import COMPLETIONS_PATH
from tirjudge_server.openai.decisions import DECISIONS_PATH
from tirjudge_server.openai.fine_tuning import GRADERS_PATH

_PAIR = {
    "mode": "pairwise",
    "prompt": "Describe the sea in at least 3 sentences. Do not use any commas.",
    "responses": ["The sea is wide. It is blue. It moves.", "The sea is wide, blue and deep. It moves."],
}
_ONE = {"mode": "pointwise", "prompt": "Write two words.", "responses": ["red fox"]}
_CHECK = {
    "type": "string_check",
    "name": "same",
    "input": "{{sample.output_text}}",
    "reference": "{{item.answer}}",
    "operation": "eq",
}
_OF_MT_BENCH = """[Question]
Write two words.

[The Start of Assistant's Answer]
red fox
[The End of Assistant's Answer]"""

EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    JUDGE_PATH: {
        "Two responses": _PAIR,
        "One response, with a score": _ONE,
        "The best of three": {
            "mode": "listwise",
            "prompt": "Write two words in lowercase.",
            "responses": ["red fox", "Red Fox", "red"],
        },
        "Both orders, and a verdict that a program checked": {**_PAIR, "orders": "both", "require": "checked"},
    },
    BATCH_PATH: {"Two requests": {"requests": [_PAIR, _ONE]}},
    REWARD_PATH: {
        "One prompt": {"prompt": "Write two words.", "responses": ["red fox", "one red fox"]},
        "Many prompts": {"items": [{"id": "a", "prompt": "Write two words.", "responses": ["red fox"]}]},
    },
    RERANK_PATH: {"Best of three": {"prompt": "Write two words.", "responses": ["red", "red fox", "one red fox"]}},
    CHAT_PATH: {
        "A judge request": {
            "model": "judge",
            "messages": [{"role": "user", "content": "Write two words."}],
            "judge": _ONE,
        },
    },
    COMPLETIONS_PATH: {"The prompt of another judge": {"model": "judge", "prompt": _OF_MT_BENCH, "max_tokens": 64}},
    DECISIONS_PATH: {
        "Is it so?": {
            "model": "judge",
            "input": "red fox",
            "questions": [{"type": "predicate", "instructions": "The text has two words."}],
        },
    },
    EVALS_PATH: {
        "Answers of rows, compared with labels": {
            "name": "Answers",
            "data_source_config": {
                "type": "custom",
                "item_schema": {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]},
                "include_sample_schema": True,
            },
            "testing_criteria": [_CHECK],
        },
    },
    f"{GRADERS_PATH}/run": {"A string check": {"grader": _CHECK, "model_sample": "42", "item": {"answer": "42"}}},
    f"{GRADERS_PATH}/validate": {"A string check": {"grader": _CHECK}},
}
"""Path -> title of the example -> body."""
