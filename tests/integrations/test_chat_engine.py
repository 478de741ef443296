"""The chat engine with our own server as its endpoint."""

from __future__ import annotations

import logging

import pytest

from tests.integrations.conftest import Serve
from tests.judgments import build_request
from tirjudge.judge import Judge
from tirjudge.opening import open_model
from tirjudge.types import Mode

ONE = build_request("What is 2 + 2?", ["4"], mode=Mode.POINTWISE, tools="off")


async def test_the_chat_engine_works_with_our_chat_endpoint(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="tirjudge"), serve("Right. <score>9</score>") as served:
        async with open_model(f"chat:{served.url}#judge") as model:
            judgment = await Judge(engine=model.engine, tools=(), profile=model.profile).judge(ONE)
    assert (judgment.verdict.scores, judgment.verdict.probabilities) == ([9.0], None)
    assert judgment.rollouts[0].turns[0].text == "Right. <score>9</score>"
    assert judgment.usage.output_tokens == len("Right. <score>9</score>")
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["judge does not support logprobs"]
