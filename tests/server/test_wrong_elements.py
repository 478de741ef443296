"""A list of invalid elements gets one error, not one per element, in every format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from tirjudge.types import JudgeRequest
from tirjudge_sandbox.sandbox_fusion import RunCodeRequest
from tirjudge_sandbox.verl_tool import ObservationRequest
from tirjudge_sandbox.wire import ProgramBatchRequest
from tirjudge_server.dialects import DIALECTS, requests_of
from tirjudge_server.openai.completions import CompletionRequest
from tirjudge_server.openai.decisions import ChoiceQuestion, DecisionRequest
from tirjudge_server.openai.graders import RunRequest, ScoreModel

NUM_WRONG = 5000
MAX_DESCRIBED = 50
"""Maximum number of described errors: one or two for each branch of a union."""


def bodies() -> Iterator[tuple[type[BaseModel], str]]:
    """Yield every field of every dialect's request models, and of some other models."""
    ours = [JudgeRequest, RunCodeRequest, ObservationRequest, ProgramBatchRequest]
    openai = [CompletionRequest, DecisionRequest, ChoiceQuestion, RunRequest, ScoreModel]
    posted = [model for name in DIALECTS for model in requests_of([name]).values()]
    for model in dict.fromkeys([*ours, *openai, *posted]):
        for name in model.model_fields:
            yield model, name


WRONG = {"list": [object()] * NUM_WRONG, "dict": {str(number): object() for number in range(NUM_WRONG)}}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
@pytest.mark.parametrize(("model", "field"), list(bodies()))
def test_error_for_many_wrong_elements_describes_few_of_them(model: type[BaseModel], field: str, wrong: Any) -> None:
    assert num_errors(model, {field: wrong}) < MAX_DESCRIBED


def num_errors(model: type[BaseModel], body: dict[str, Any]) -> int:
    try:
        model.model_validate(body)
    except ValidationError as error:
        return error.error_count()
    return 0
