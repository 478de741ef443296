"""The adapter in ms-swift's own function that computes rewards."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.clients.wheels import Wheel, definitions
from tests.integrations.conftest import Serve
from tirjudge.integrations.ms_swift import judge_orm

MS_SWIFT = "ms-swift==4.6.0"


class Sample:
    """A completion in ms-swift's format: the last message of the conversation."""

    def __init__(self, answer: str) -> None:
        self.messages = [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": answer}]

    def to_reward_row(self) -> dict[str, Any]:
        return {"messages": self.messages, "solution": "four"}


@pytest.fixture
def rewards(wheel: Wheel) -> Iterator[Callable[..., Any]]:
    """Calls `compute_rewards_per_func`. The base class is installed in the module from which the adapter imports it."""
    torch = pytest.importorskip("torch")
    root: Path = wheel(MS_SWIFT) / "swift"
    typing = {name: getattr(__import__("typing"), name) for name in ("Any", "Callable", "Dict", "List", "Optional")}
    given = {"torch": torch, "nn": torch.nn, "GRPOSample": Sample, **typing}
    names = ("_is_async_reward", "compute_rewards_per_func")
    algorithm = definitions(root / "rl_core/grpo_algorithm.py", *names, given=given)
    base = definitions(root / "rewards/orm.py", "AsyncORM", given=typing | {"Union": None, "GRPOConfig": None})
    rows = SimpleNamespace(rows_to_batched=lambda rows: {key: [row[key] for row in rows] for key in rows[0]})
    with pytest.MonkeyPatch.context() as patch:
        for name, contents in {
            "swift": {},
            "swift.dataset": {"RowPreprocessor": rows},
            "swift.rewards": vars(base),
        }.items():
            module = ModuleType(name)
            vars(module).update(contents)
            patch.setitem(sys.modules, name, module)
        yield lambda function, *answers: algorithm.compute_rewards_per_func(
            [Sample(answer) for answer in answers], [function(args=None)], [None], torch.device("cpu")
        ).tolist()


def test_rewards_reach_the_trainer(rewards: Callable[..., Any], serve: Serve) -> None:
    with serve("<score>9</score>") as served:
        function = judge_orm(served.url, tools="off", reference_column="solution")
        assert rewards(function, "4", "5") == [[pytest.approx(8 / 9)]] * 2
        assert all("What is 2 + 2?" in prompt and "four" in prompt for prompt in served.prompts)


def test_an_unreachable_server_gives_the_fallback_and_a_warning(
    rewards: Callable[..., Any], nowhere: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert rewards(judge_orm(nowhere, deadline_s=0.2, fallback=0.25), "4", "5") == [[0.25]] * 2
    assert "2 of 2 have no verdict and get 0.25: server: " in caplog.text


def test_an_abstention_gives_the_fallback_and_a_warning(
    rewards: Callable[..., Any], serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    with serve("<score>9</score>", sandbox="real") as served:
        assert rewards(judge_orm(served.url, tools="on", fallback=0.5), "4") == [[0.5]]
    assert "1 of 1 have no verdict and get 0.5: abstained: no_program_ran" in caplog.text
