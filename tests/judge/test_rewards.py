from __future__ import annotations

import pytest

from tirjudge.http.rewards import JudgingOptions
from tirjudge.types import JudgeRequest


@pytest.mark.parametrize("name", JudgingOptions.model_fields)
def test_how_to_judge_is_said_as_in_a_request_to_judge(name: str) -> None:
    ours, its = JudgingOptions.model_fields[name], JudgeRequest.model_fields[name]
    assert (ours.annotation, ours.default, ours.metadata) == (its.annotation, its.default, its.metadata)


def test_only_what_was_given_is_handed_on() -> None:
    assert JudgingOptions(tools="off", votes=3).judging == {"tools": "off", "votes": 3}
