"""Grade the sample of a row by one criterion, and return the result that output items show."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from tirjudge_server.chat_models import ChatModels
from tirjudge_server.evals.definitions import Criterion, threshold_of
from tirjudge_server.openai.graders import LabelModel, MultiGrader, PythonGrader, ScoreModel
from tirjudge_server.openai.grading import FLAGS, GraderScore, ModelCall, sample_of


def sample_variable(given: Mapping[str, Any] | None, *, written: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the variable `sample` of a row; empty if it has none.

    Args:
        given: The variable that the row came with. None: none.
        written: The sample that a model wrote, as output items show it. None: none.

    Raises:
        Refused: 413, the text of the sample is JSON with too many values.
    """
    if written is None:
        sample = dict(given or {})
    else:
        message, ended = written["output"][0], written["finish_reason"]
        choices = [{"index": 0, "message": message, "finish_reason": ended}]
        sample = {"output_text": message["content"], "model": written["model"], "choices": choices}
    text = sample.get("output_text")
    return sample | sample_of(text) if isinstance(text, str) else sample


def content_key(
    criterion: Criterion, values: Mapping[str, Any], *, owner: str | None, models: ChatModels
) -> bytes | None:
    """Return a hash that is equal for equal graders, rows and owners. None: the result is not worth keeping.

    The judge's own judgments are kept by the records, with the versions of everything that influenced them. Comparisons of
    texts cost less than a look-up.
    """
    parts = list(criterion.parts.values()) if isinstance(criterion, MultiGrader) else [criterion]
    asked = [part.model for part in parts if isinstance(part, ScoreModel | LabelModel)]
    if not set(asked) <= set(models.names) or not (asked or any(isinstance(part, PythonGrader) for part in parts)):
        return None
    grader = criterion.model_dump(mode="json", exclude={"name", "pass_threshold"})
    content = [version("tirjudge"), owner, grader, values["item"], values["sample"]]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()


def result_of(score: GraderScore) -> dict[str, Any]:
    """Return the parts of a result that do not depend on the name and the threshold of its criterion."""
    errors = dict(score.errors)
    flag = next((flag for flag in FLAGS if errors.get(flag)), None)
    details = next((text for text in errors.values() if isinstance(text, str)), None)
    judgment_ids = [call.judgment_id for call in score.calls if call.judgment_id is not None]
    return {
        "score": score.reward,
        "sample": _sample_of_grader(score.calls[0]) if len(score.calls) == 1 else None,
        **({"sub_scores": dict(score.parts)} if score.parts else {}),
        **({"judgment_ids": judgment_ids} if judgment_ids else {}),
        **({"error": {"code": flag, "message": details or _MEANINGS.get(flag, flag)}} if flag is not None else {}),
    }


def named_result(found: Mapping[str, Any], *, name: str, criterion: Criterion) -> dict[str, Any]:
    """Return a whole result.

    Args:
        found: As `result_of` returns it.
        name: Unique name of the criterion.
        criterion: The criterion.
    """
    passed = "error" not in found and found["score"] >= threshold_of(criterion)
    kind = f"{criterion.type.replace('_', '-')}-grader"
    return {"name": name, "type": kind, "passed": passed, **found}


def failed_result(code: str, message: str) -> dict[str, Any]:
    """Return the result of a grader that could not run, as `result_of` does."""
    return {"score": 0.0, "sample": None, "error": {"code": code, "message": message}}


def _sample_of_grader(call: ModelCall) -> dict[str, Any]:
    counts = asdict(call)
    usage = {name: counts[name] for name in ("input_tokens", "cached_tokens", "output_tokens")}
    return {"model": call.model, "output": [{"role": "assistant", "content": call.output}], "usage": usage}


_MEANINGS = {
    "invalid_variable_error": "a placeholder of the grader names a value that the row does not have",
    "model_grader_refusal_error": "the model gave no verdict",
    "formula_parse_error": "the formula has no value",
}
"""Flags without details -> what they mean."""
