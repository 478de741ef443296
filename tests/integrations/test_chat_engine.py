"""The chat engine in front of a server of ours, whose chat endpoint is another implementation than the one of its tests."""

from __future__ import annotations

import logging

import pytest

from tests.integrations.conftest import Serve
from tirjudge.judge import Judge
from tirjudge.opening import open_model
from tirjudge.types import JudgeRequest, Mode

ONE = JudgeRequest(mode=Mode.POINTWISE, prompt="What is 2 + 2?", responses=["4"], tools="off")


async def test_a_model_behind_our_own_chat_endpoint_judges(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="tirjudge"), serve("Right. <score>9</score>") as served:
        async with open_model(f"chat:{served.url}#judge") as model:
            judgment = await Judge(engine=model.engine, tools=(), profile=model.profile).judge(ONE)
    assert (judgment.verdict.scores, judgment.verdict.probabilities) == ([9.0], None)
    assert judgment.rollouts[0].turns[0].text == "Right. <score>9</score>"
    assert judgment.usage.output_tokens == len("Right. <score>9</score>")
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["judge does not support logprobs"]
