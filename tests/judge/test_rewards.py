"""The judging options of reward and rerank requests."""

from __future__ import annotations

import pytest

from tirjudge.http.rewards import JudgingOptions
from tirjudge.types import JudgeRequest


@pytest.mark.parametrize("name", JudgingOptions.model_fields)
def test_judging_options_equal_the_fields_of_a_judge_request(name: str) -> None:
    option, field = JudgingOptions.model_fields[name], JudgeRequest.model_fields[name]
    assert (option.annotation, option.default, option.metadata) == (field.annotation, field.default, field.metadata)


def test_only_given_options_are_passed_on() -> None:
    assert JudgingOptions(tools="off", votes=3).judging == {"tools": "off", "votes": 3}
