"""The adapters in OpenRLHF's own executors, which load a file, call its function and read the result."""

from __future__ import annotations

import asyncio
import logging
import sys
from copy import deepcopy
from itertools import cycle
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.clients.wheels import Wheel, definitions
from tests.integrations.conftest import Serve

OPENRLHF = "openrlhf==0.11.2"

PROMPT = "<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n<|im_start|>assistant\n"
ANSWER = "It is 4.<|im_end|>"


class Ids(list):
    def tolist(self) -> list[int]:
        return list(self)


class Tokenizer:
    """A tokenizer with one token per character."""

    def __call__(self, text: str, **options: Any) -> dict[str, list[Ids]]:
        return {"input_ids": [Ids(map(ord, text))]}

    def decode(self, ids: list[int], *, skip_special_tokens: bool) -> str:
        return "".join(map(chr, ids))


class Policy:
    """A policy that always generates the same answer."""

    async def generate(self, token_ids: list[int], params: Any, **options: Any) -> Any:
        output = SimpleNamespace(token_ids=list(map(ord, ANSWER)), text=ANSWER, finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[output])


@pytest.fixture(scope="session")
def agents(wheel: Wheel) -> SimpleNamespace:
    path = wheel(OPENRLHF) / "openrlhf/utils/agent.py"
    names = ("AgentExecutorBase", "AgentInstanceBase", "MultiTurnAgentExecutor", "SingleTurnAgentExecutor")
    abc = __import__("abc")
    given = {"ABC": abc.ABC, "abstractmethod": abc.abstractmethod, "asyncio": asyncio, "cycle": cycle}
    return definitions(path, *names, given={**given, "deepcopy": deepcopy, "logger": logging.getLogger("openrlhf")})


async def executed(executor: Any, *, label: str = "four") -> dict[str, Any]:
    params = SimpleNamespace(max_tokens=100, logprobs=None)
    return await executor.execute(PROMPT, label, params, 500, Tokenizer(), Policy())


def reward_file(folder: Path, url: str, **options: Any) -> str:
    path = folder / "judge_reward.py"
    arguments = "".join(f", {name}={value!r}" for name, value in options.items())
    path.write_text(
        f"from tirjudge.integrations.openrlhf import RewardFunction\nreward_func = RewardFunction({url!r}{arguments})\n"
    )
    return str(path)


async def test_the_reward_file_returns_rewards(agents: SimpleNamespace, serve: Serve, tmp_path: Path) -> None:
    with serve("<score>9</score>") as served:
        executor = agents.SingleTurnAgentExecutor(reward_file(tmp_path, served.url, tools="off"))
        output = await executed(executor)
    assert output["reward"] == output["scores"] == pytest.approx(8 / 9)
    assert output["extra_logs"] == {"judge_failed": 0.0, "tool_calls": 0.0}
    assert "What is 2 + 2?" in served.prompts[0]
    assert "It is 4." in served.prompts[0]
    assert "four" in served.prompts[0]
    assert "<|im_end|>" not in served.prompts[0]


async def test_an_unreachable_server_gives_the_fallback(agents: SimpleNamespace, nowhere: str, tmp_path: Path) -> None:
    executor = agents.SingleTurnAgentExecutor(reward_file(tmp_path, nowhere, fallback=0.25, deadline_s=0.2))
    output = await executed(executor)
    assert (output["reward"], output["extra_logs"]["judge_failed"]) == (0.25, 1.0)


async def test_an_abstention_gives_the_fallback_and_a_flag(
    agents: SimpleNamespace, serve: Serve, tmp_path: Path
) -> None:
    with serve("<score>9</score>", sandbox="real") as served:
        executor = agents.SingleTurnAgentExecutor(reward_file(tmp_path, served.url, fallback=0.25, tools="on"))
        output = await executed(executor)
    assert (output["reward"], output["extra_logs"]["judge_failed"]) == (0.25, 1.0)


async def test_the_judge_can_be_the_environment_of_an_agent(
    agents: SimpleNamespace, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("openrlhf.utils.agent")
    vars(module).update(vars(agents))
    for name in ("openrlhf", "openrlhf.utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "openrlhf.utils.agent", module)
    from tirjudge.integrations.openrlhf import agent_instance

    with serve("<score>9</score>") as served:
        executor = agents.MultiTurnAgentExecutor(agent_instance(served.url, tools="off", use_label=False))
        output = await executed(executor)
    assert output["reward"] == output["scores"] == pytest.approx(8 / 9)
    assert output["extra_logs"] == {"judge_failed": 0.0, "tool_calls": 0.0}
    assert output["action_ranges"] == [(len(PROMPT), len(PROMPT) + len(ANSWER))]
    assert "It is 4." in served.prompts[0]
    assert "four" not in served.prompts[0]
