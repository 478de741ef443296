"""The adapter in verl's own calling code, which loads the function, calls it and stacks the results."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.clients.wheels import Wheel, definitions
from tests.integrations.conftest import Serve
from tirjudge.integrations import verl

VERL = "verl==0.9.1"

EXTRA = {"raw_prompt": [{"role": "user", "content": "What is 2 + 2?"}]}
KEYS = {"score", "judge_failed", "tool_calls"}


@pytest.fixture(scope="session")
def source(wheel: Wheel) -> Path:
    return wheel(VERL) / "verl"


@pytest.fixture
def loading(source: Path) -> SimpleNamespace:
    """verl's functions that load a reward function from a configuration."""
    names = ("load_module", "load_extern_object", "PKG_PATH_PREFIX", "FILE_PATH_PREFIX")
    imports = definitions(source / "utils/import_utils.py", *names, given={"importlib": importlib})
    given = {"inspect": inspect, "partial": partial, "Optional": None, "RawRewardFn": None, "DictConfig": None}
    functions = ("_call_with_kwargs", "_call_with_kwargs_async", "get_custom_reward_fn")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "verl", ModuleType("verl"))
        patch.setitem(sys.modules, "verl.utils", ModuleType("verl.utils"))
        patch.setitem(sys.modules, "verl.utils.import_utils", _module("verl.utils.import_utils", vars(imports)))
        yield definitions(source / "trainer/ppo/reward.py", *functions, given=given)


def _module(name: str, contents: dict[str, Any]) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(contents)
    return module


def configured(**reward_kwargs: Any) -> SimpleNamespace:
    """Return the configuration from the docstring of the adapter."""
    path = "pkg://tirjudge.integrations.verl"
    reward = {"custom_reward_function": {"path": path, "name": "compute_score", "reward_kwargs": reward_kwargs}}
    return SimpleNamespace(reward=reward)


async def test_verl_finds_the_function_and_gets_a_reward(loading: SimpleNamespace, serve: Serve) -> None:
    with serve("<score>9</score>") as served:
        compute_score = loading.get_custom_reward_fn(configured(url=served.url, tools="off", fallback=0.0))
        assert inspect.iscoroutinefunction(compute_score)
        result = await compute_score(data_source="d", solution_str="4", ground_truth="four", extra_info=EXTRA)
    assert result == {"score": pytest.approx(8 / 9), "judge_failed": 0.0, "tool_calls": 0.0}
    assert "What is 2 + 2?" in served.prompts[0]
    assert "four" in served.prompts[0]


async def test_a_result_without_a_verdict_has_the_same_keys(loading: SimpleNamespace, nowhere: str) -> None:
    compute_score = loading.get_custom_reward_fn(configured(url=nowhere, fallback=0.25, deadline_s=0.2))
    result = await compute_score(data_source="d", solution_str="4", ground_truth=None, extra_info=EXTRA)
    assert result == {"score": 0.25, "judge_failed": 1.0, "tool_calls": 0.0}


async def test_a_missing_prompt_is_an_error(loading: SimpleNamespace) -> None:
    compute_score = loading.get_custom_reward_fn(configured(url="http://judge"))
    with pytest.raises(ValueError, match=r"extra_info: .*raw_prompt, prompt.* question"):
        await compute_score(data_source="d", solution_str="4", ground_truth="4", extra_info={})


class Item:
    """One row of verl's `DataProto` and also a batch of this row, with the fields that reward managers use."""

    def __init__(self, *, extra_info: dict[str, Any], response_ids: list[int]) -> None:
        ids = np.array([1, 2, *response_ids])
        self.arrays = {"responses": ids[None, 2:], "attention_mask": np.ones_like(ids)[None]}
        raw_prompt = np.empty(1, dtype=object)
        raw_prompt[0] = EXTRA["raw_prompt"]
        self.non_tensor_batch = {
            "data_source": np.array(["d"]),
            "reward_model": np.array([{"ground_truth": "four"}]),
            "extra_info": np.array([extra_info]),
            "raw_prompt": raw_prompt,
        }

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self
        rows = {name: values[index] for name, values in self.non_tensor_batch.items()}
        return SimpleNamespace(batch={k: v[index] for k, v in self.arrays.items()}, non_tensor_batch=rows)


@pytest.fixture
def naive(source: Path) -> Iterator[Callable[..., Any]]:
    """verl's naive reward manager, installed in the module from which the adapter imports it."""

    class Base:
        def __init__(self, config: Any, tokenizer: Any, compute_score: Any) -> None:
            self.tokenizer, self.loop = tokenizer, asyncio.get_running_loop()

    path = "verl.experimental.reward_loop.reward_manager"
    given = {"register": lambda name: lambda cls: cls, "RewardManagerBase": Base, "inspect": inspect}
    manager = definitions(
        source / "experimental/reward_loop/reward_manager/naive.py", "NaiveRewardManager", given=given
    )
    with pytest.MonkeyPatch.context() as patch:
        for name in ("verl", "verl.experimental", "verl.experimental.reward_loop", path):
            patch.setitem(sys.modules, name, ModuleType(name))
        patch.setitem(sys.modules, f"{path}.naive", _module(f"{path}.naive", vars(manager)))
        importlib.reload(verl)  # forgets the cached base class
        yield manager.NaiveRewardManager
        importlib.reload(verl)  # forgets the cached base class


class Tokenizer:
    def decode(self, ids: Any, *, skip_special_tokens: bool) -> str:
        return " ".join(map(str, ids))


async def test_the_manager_takes_the_prompt_from_the_batch(naive: Callable[..., Any], serve: Serve) -> None:
    manager_cls = verl.RewardManager
    assert issubclass(manager_cls, naive)
    with serve("<score>9</score>") as served:
        compute_score = partial(verl.compute_score, url=served.url, tools="off")
        manager = manager_cls(config=None, tokenizer=Tokenizer(), compute_score=compute_score)
        result = await manager.run_single(Item(extra_info={}, response_ids=[7, 8]))
    assert result["reward_score"] == pytest.approx(8 / 9)
    assert set(result["reward_extra_info"]) == KEYS
    assert "What is 2 + 2?" in served.prompts[0]
    assert "7 8" in served.prompts[0]


async def test_the_function_finds_the_prompt_in_the_fields_of_the_agent_loop(
    naive: Callable[..., Any], serve: Serve
) -> None:
    """verl's agent loop passes the prompt in `tool_extra_fields`."""
    item = Item(extra_info={}, response_ids=[7])
    item.non_tensor_batch["tool_extra_fields"] = np.array([EXTRA], dtype=object)
    with serve("<score>9</score>") as served:
        compute_score = partial(verl.compute_score, url=served.url, tools="off")
        manager = naive(config=None, tokenizer=Tokenizer(), compute_score=compute_score)
        result = await manager.run_single(item)
    assert result["reward_score"] == pytest.approx(8 / 9)


async def test_verl_stacks_rewards_with_and_without_a_verdict(source: Path, serve: Serve) -> None:
    """Runs the lines of verl's reward loop that make an array of each key of the first sample."""
    with serve(["<score>9</score>"]) as served:
        asked = {"data_source": "d", "ground_truth": None, "extra_info": EXTRA, "url": served.url, "tools": "off"}
        outputs = [
            {"reward_score": result["score"], "reward_extra_info": result}
            for result in [
                await verl.compute_score(solution_str=text, deadline_s=2.0, **asked) for text in ("one", "two")
            ]
        ]
    assert [output["reward_extra_info"]["judge_failed"] for output in outputs] == [0.0, 1.0]
    text = (source / "experimental/reward_loop/reward_loop.py").read_text()
    begin = text.index("reward_extra_infos = [output.get(")
    end = text.index("if self.reward_model_manager is not None:", begin)
    found: dict[str, Any] = {"outputs_flat": outputs, "np": np}
    exec(inspect.cleandoc("        " + text[begin:end]), found)  # noqa: S102
    assert set(found["non_tensor_batch"]) == KEYS
    assert all(values.dtype == float for values in found["non_tensor_batch"].values())
