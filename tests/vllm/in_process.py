"""The in-process vLLM engine passes the tests of every engine. `test_in_process.py` runs this file in the vLLM environment.

The environment variable TIRJUDGE_TEST_MODEL names the folder of the model.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shlex
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import pytest_asyncio
from vllm.v1.engine.async_llm import AsyncLLM

from tests.endless import endless
from tests.vllm.conformance import *  # noqa: F403
from tests.vllm.server import BLOCK_TOKENS
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.engines.vllm_inprocess import AsyncVLLMEngine, open_in_process
from tirjudge.errors import CheckpointError
from tirjudge.judge import Judge
from tirjudge.model import EngineOptions, bundled_checkpoint, fingerprint
from tirjudge.opening import open_model
from tirjudge.types import JudgeRequest, Mode, Sampling
from tirjudge_server.opening import open_judging
from tirjudge_server.settings import ServerSettings

MODEL = Path(os.environ["TIRJUDGE_TEST_MODEL"])

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(scope="session")
def oracle() -> Iterator[EmbeddedEngine]:
    engine = EmbeddedEngine.load(bundled_checkpoint())
    yield engine
    engine.close()


@pytest.fixture(scope="session", autouse=True)
def forked_engines() -> Iterator[None]:
    """Fork the processes of engines. vLLM on a CPU spawns them, and each imports vLLM again."""
    with mock.patch("vllm.v1.engine.utils.get_mp_context", return_value=multiprocessing.get_context("fork")):
        yield


STARTED: list[AsyncLLM] = []
"""Engines of vLLM that the tests started."""


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine() -> AsyncIterator[AsyncVLLMEngine]:
    start = AsyncLLM.from_engine_args

    def recorded(*args: Any, **options: Any) -> AsyncLLM:
        STARTED.append(start(*args, **options))
        return STARTED[-1]

    options = {"dtype": "float32", "enforce_eager": True, "block_size": BLOCK_TOKENS, "max_num_seqs": 32}
    with mock.patch.object(AsyncLLM, "from_engine_args", recorded):
        async with open_in_process(MODEL, kv_cache_memory_bytes=256 * 1024**2, **options) as opened:
            yield opened
            assert opened.ended is None


async def test_the_engine_reports_its_context_length(engine: AsyncVLLMEngine):
    assert engine.served.context_tokens == CONTEXT  # noqa: F405


async def test_a_cancelled_turn_is_aborted(engine: AsyncVLLMEngine):
    task = asyncio.create_task(engine.generate([65, 66], sampling=endless(3000), session="left"))
    while not STARTED[0].output_processor.has_unfinished_requests():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not STARTED[0].output_processor.has_unfinished_requests()


async def test_weights_are_replaced(engine: AsyncVLLMEngine, oracle: EmbeddedEngine):
    ids = await oracle.tokenizer.encode_prompt(PROMPT)  # noqa: F405
    before = await engine.generate(ids, sampling=Sampling(max_tokens=20), session="before")
    await engine.reload(MODEL, version="same")
    after = await engine.generate(ids, sampling=Sampling(max_tokens=20), session="after")
    assert (after.token_ids, after.num_cached) == (before.token_ids, 0)
    with pytest.raises(CheckpointError, match="would keep the old output layer"):
        await engine.reload(bundled_checkpoint(), version="tied")


async def test_a_server_judges_with_the_in_process_engine():
    given = ("--dtype", "float32", "--enforce-eager", "--kv-cache-memory-bytes", "64M")
    arguments = (*given, "--block-size", str(BLOCK_TOKENS), "--max-num-seqs", "4")
    async with open_judging(ServerSettings(model=MODEL, in_process=True, worker_args=shlex.join(arguments))) as model:
        request = JudgeRequest(mode=Mode.PAIRWISE, prompt="Say hi.", responses=["hi", "ho"], tools="off", votes=3)
        judge = Judge(engine=model.engine, tools=(), profile=model.profile, weights=model.weights)
        judgment = await judge.judge(request)
        assert (judgment.model_version, model.ended) == (fingerprint(MODEL), None)
        assert len(judgment.rollouts) >= 2
        assert model.engine._llm.vllm_config.scheduler_config.max_num_seqs == 4
    assert model.ended is not None


async def test_error_for_an_unknown_vllm_argument_names_it():
    with pytest.raises(CheckpointError, match="--max-modle-len"):
        async with open_model(
            f"vllm-inprocess:{MODEL}", options=EngineOptions(vllm_arguments=["--max-modle-len", "5"])
        ):
            pass


async def test_a_missing_model_is_rejected():
    with pytest.raises(CheckpointError, match="rejected by vLLM"):
        async with open_in_process(MODEL / "nowhere"):
            pass
