"""The adapter in AReaL's own wrapper, which calls the function in another process with a timeout."""

from __future__ import annotations

import asyncio
import logging
import pickle
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.clients.wheels import Wheel
from tests.integrations.conftest import Serve
from tirjudge.client import RequestRefused
from tirjudge.integrations.areal import DEADLINE_S, ArealJudgeReward
from tirjudge.integrations.scoring import NoVerdict

AREAL = "areal==1.0.4"

PROMPT = "<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n<|im_start|>assistant\n"
MESSAGES = [{"role": "user", "content": "What is 2 + 2?"}]


@pytest.fixture(scope="session")
def reward_api(wheel: Wheel) -> Any:
    """AReaL's module. It needs only the logging module of the rest of AReaL."""
    import importlib.util

    path: Path = wheel(AREAL) / "areal/api/reward_api.py"
    spec = importlib.util.spec_from_file_location("areal_reward_api", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    utils = ModuleType("areal.utils")
    utils.logging = logging  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "areal", ModuleType("areal"))
        patch.setitem(sys.modules, "areal.utils", utils)
        spec.loader.exec_module(module)
    yield module
    module.AsyncRewardWrapper._atexit_shutdown_all()


async def rewarded(reward_api: Any, function: ArealJudgeReward, **columns: Any) -> float:
    """Return the reward, called in the same way as by `RLVRWorkflow`."""
    wrapped = reward_api.AsyncRewardWrapper(function, max_workers=1)
    assert wrapped.timeout_seconds > DEADLINE_S
    return await wrapped(PROMPT, "It is 4.<|im_end|>", [1, 2], [3], **columns)


async def test_a_reward_is_returned_from_the_other_process(reward_api: Any, serve: Serve) -> None:
    with serve("<score>9</score>") as served:
        function = ArealJudgeReward(served.url, tools="off", reference_column="answer")
        assert await rewarded(reward_api, function, messages=MESSAGES, answer="four") == pytest.approx(8 / 9)
        assert "What is 2 + 2?" in served.prompts[0]
        assert "It is 4." in served.prompts[0]
        assert "four" in served.prompts[0]
        assert "<|im_end|>" not in served.prompts[0]


async def test_a_rendered_prompt_is_used_if_there_are_no_messages(reward_api: Any, serve: Serve) -> None:
    with serve("<score>9</score>") as served:
        assert await rewarded(reward_api, ArealJudgeReward(served.url, tools="off")) == pytest.approx(8 / 9)
        assert "What is 2 + 2?" in served.prompts[0]
        assert "<|im_" not in served.prompts[0]


async def test_a_missing_verdict_is_an_error(reward_api: Any, nowhere: str) -> None:
    with pytest.raises(NoVerdict, match="cannot be reached"):
        await rewarded(reward_api, ArealJudgeReward(nowhere, deadline_s=0.2))


async def test_a_fallback_replaces_a_missing_verdict(nowhere: str, caplog: pytest.LogCaptureFixture) -> None:
    function = ArealJudgeReward(nowhere, deadline_s=0.2, fallback=0.25)
    assert await asyncio.to_thread(function, PROMPT, "4", [], []) == 0.25
    assert "no verdict, the reward is 0.25" in caplog.text


def test_a_configuration_error_can_be_pickled(serve: Serve) -> None:
    with serve("<score>9</score>") as served, pytest.raises(RequestRefused) as refused:
        ArealJudgeReward(served.url, tools="off", model="no-such-model")(PROMPT, "4", [], [])
    again = pickle.loads(pickle.dumps(refused.value))
    assert again.problem == refused.value.problem


def test_the_function_can_be_pickled() -> None:
    assert isinstance(pickle.loads(pickle.dumps(ArealJudgeReward("http://judge"))), ArealJudgeReward)
