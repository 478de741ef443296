"""Behavior of a vLLM server that the judge relies on: abort on disconnect, priorities, prefix caching."""

from __future__ import annotations

import asyncio
import os
import signal

import httpx2
import pytest

from tests.judgments import without_times
from tests.processes import descendants
from tests.vllm.judging import Recorded, held_out_requests, judge_all, prefix_hits
from tests.vllm.server import VLLMServer
from tirjudge.engines import fleet
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.engines.fleet import FleetEngine
from tirjudge.engines.vllm import VLLMEngine
from tirjudge.errors import CheckpointError, EngineUnavailable
from tirjudge.model import bundled_checkpoint
from tirjudge.request_context import coming_from
from tirjudge.types import Sampling
from tirjudge_sandbox import SandboxPool

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

LETTERS = tuple(range(64, 96))
"""Token ids for random turns that end only at their token budget."""

ROUNDED = {"verdict": True, "turns": {"__all__": {"probability"}}}
"""Fields of a rollout in which two engines differ by rounding."""


def writing(num_tokens: int, *, seed: int = 0) -> Sampling:
    """Return the sampling of a turn of exactly `num_tokens` random letters."""
    return Sampling(max_tokens=num_tokens, temperature=2.0, seed=seed, allowed_token_ids=LETTERS)


async def until_metric(server: VLLMServer, name: str, *, is_value: float) -> None:
    """Wait until a metric has a value."""
    for _ in range(600):
        if await asyncio.to_thread(server.metric, name) == is_value:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"vllm:{name} is {server.metric(name)}, not {is_value}:\n{server.last_words}")


async def test_a_cancelled_turn_is_aborted(server: VLLMServer, http_engine: VLLMEngine):
    await until_metric(server, "num_requests_running", is_value=0)
    written = server.metric("generation_tokens_total")
    task = asyncio.create_task(http_engine.generate([65, 66], sampling=writing(3000), session="left"))
    await until_metric(server, "num_requests_running", is_value=1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until_metric(server, "num_requests_running", is_value=0)
    assert server.metric("generation_tokens_total") - written < 1500
    assert server.metric("kv_cache_usage_perc") == 0


async def test_turns_fail_when_the_engine_hangs_behind_a_healthy_server(
    server: VLLMServer, monkeypatch: pytest.MonkeyPatch
):
    if server.pid is None:
        pytest.skip("the server was not started by the tests, so its engine cannot be stopped")
    (core,) = descendants(server.pid)
    monkeypatch.setattr(fleet, "WATCH_S", 0.2)
    engine = FleetEngine(lambda: [server.url], connect=VLLMEngine)
    try:
        await engine.ready()
        await engine.generate([65, 66], sampling=writing(8), session="before")
        os.kill(core, signal.SIGSTOP)
        try:
            with monkeypatch.context() as impatient:  # only here: on a loaded machine a step takes seconds
                impatient.setattr(fleet, "STUCK_S", 2.0)
                with pytest.raises(EngineUnavailable, match="its engine hangs: no step in"):
                    await engine.generate([65, 66], sampling=writing(3000), session="hung")
            assert httpx2.get(f"{server.url}/health").is_success
        finally:
            os.kill(core, signal.SIGCONT)
        async with asyncio.timeout(60):
            while engine.workers[0].problem is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await engine.generate([65, 66], sampling=writing(8), session="after")
    finally:
        await engine.aclose()


async def test_urgent_turns_overtake_queued_ones(server: VLLMServer, http_engine: VLLMEngine):
    await until_metric(server, "num_requests_running", is_value=0)
    ended: list[str] = []

    async def write(name: str, *, urgency: int, turn: int = 0, num_tokens: int) -> None:
        sampling = Sampling(max_tokens=num_tokens, temperature=2.0, seed=0, allowed_token_ids=LETTERS, turn=turn)
        with coming_from(None, urgency=urgency):
            await http_engine.generate([65, 66], sampling=sampling, session=name)
        ended.append(name)

    # All 32 slots are busy for a while, and become free one after the other.
    running = [asyncio.create_task(write("running", urgency=0, num_tokens=400 + 60 * n)) for n in range(32)]
    await until_metric(server, "num_requests_running", is_value=32)
    waiting = [asyncio.create_task(write("batch", urgency=2, num_tokens=8)) for _ in range(6)]
    await until_metric(server, "num_requests_waiting", is_value=6)
    begun = asyncio.create_task(write("begun", urgency=2, turn=1, num_tokens=8))
    await until_metric(server, "num_requests_waiting", is_value=7)
    urgent = asyncio.create_task(write("urgent", urgency=0, num_tokens=8))
    await asyncio.gather(*waiting, begun, urgent)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    assert [name for name in ended if name != "running"][:3] == ["urgent", "begun", "batch"]
    await until_metric(server, "num_requests_running", is_value=0)


async def test_tied_weights_are_rejected(http_engine: VLLMEngine):
    with pytest.raises(CheckpointError, match="would keep the old output layer"):
        await http_engine.reload(bundled_checkpoint(), version="tied")


async def test_judgments_equal_those_of_the_embedded_engine_and_later_turns_are_cached(
    server: VLLMServer, http_engine: VLLMEngine, oracle: EmbeddedEngine, pool: SandboxPool
):
    requests = held_out_requests(40)
    recorded, hits = Recorded(engine=http_engine), server.metric("prefix_cache_hits_total")
    found = await judge_all(requests, engine=recorded, sandbox=pool, concurrency=16)
    hits = server.metric("prefix_cache_hits_total") - hits
    expected = await judge_all(requests, engine=oracle, sandbox=pool, concurrency=16)
    different = [
        request.prompt
        for request, one, other in zip(requests, found, expected, strict=True)
        if [without_times(record).model_dump(exclude=ROUNDED) for record in one.rollouts]
        != [without_times(record).model_dump(exclude=ROUNDED) for record in other.rollouts]
    ]
    # If two tokens are equally likely, rounding decides.
    assert len(different) <= 2, different
    assert sum(one.verdict.best != other.verdict.best for one, other in zip(found, expected, strict=True)) <= 1
    assert hits == sum(asked.completion.num_cached for asked in recorded.asked)
    later = prefix_hits(recorded)
    assert later.sent_again > 5_000
    assert later.share >= 0.9
