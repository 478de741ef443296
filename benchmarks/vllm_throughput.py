"""How much of vLLM's speed the loop keeps, and what a synchronous batch a turn would have cost.

    python -m benchmarks.vllm_throughput --items 96 --rounds 3 --out benchmarks/results/vllm_throughput.json

Three ways through the same pairwise items, so many rollouts side by side, in turns within one run:

- `loop`: the judge, with its sandbox.
- `bare`: vLLM alone. Each rollout's requests one after the other, with the ids that the loop had sent and as many tokens as
  it had got (`min_tokens` and `max_tokens`, `ignore_eos`), nothing in between, nothing asked for besides the text.
- `batch`: the judge, held back as a synchronous loop would be. So many rollouts begin together; each turn begins when all of
  them have come to it, and ends for all when the last one has ended.

Every pass has a cache salt of its own, so none finds what another had computed. Tokens are those that vLLM generated.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from tests.vllm.judging import Asked, Recorded, judge_all
from tests.vllm.server import VLLMServer, bundled_judge_server
from tirjudge.engines.vllm import VLLMEngine
from tirjudge.loop import Engine, Tokenizer
from tirjudge.model import bundled_checkpoint, fingerprint
from tirjudge.origin import cache_salt, coming_from
from tirjudge.types import Completion, JudgeRequest, Mode, Sampling
from tirjudge_sandbox import SandboxPool
from tirjudge_training.synthetic.examples import Mixture
from tirjudge_training.synthetic.items import generate_items


@dataclass(kw_only=True)
class Together:
    """An engine that answers when all of a batch have asked, and all have been answered."""

    engine: Engine
    num_active: int
    waiting: list[asyncio.Future[None]] = field(default_factory=list)
    num_running: int = 0
    ended: list[asyncio.Future[None]] = field(default_factory=list)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.engine.tokenizer

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return self.engine.eos_token_ids

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        begins: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(begins)
        self._begin()
        await begins
        completion = await self.engine.generate(token_ids, sampling=sampling, session=session)
        ends: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended.append(ends)
        self._end()
        await ends
        return completion

    def leave(self) -> None:
        """One rollout asks no more."""
        self.num_active -= 1
        self._begin()

    def _begin(self) -> None:
        if self.num_running == 0 and self.waiting and len(self.waiting) == self.num_active:
            self.num_running = len(self.waiting)
            self._release(self.waiting)

    def _end(self) -> None:
        if len(self.ended) == self.num_running:
            self.num_running = 0
            self._release(self.ended)

    @staticmethod
    def _release(held: list[asyncio.Future[None]]) -> None:
        for future in held:
            future.set_result(None)
        held.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One way through all items."""

    tokens: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


async def loop_pass(
    requests: list[JudgeRequest], *, engine: VLLMEngine, pool: SandboxPool, concurrency: int, salt: str
) -> tuple[Pass, Recorded]:
    recorded = Recorded(engine=engine)
    started = time.perf_counter()
    with coming_from(salt):
        await judge_all(requests, engine=recorded, sandbox=pool, concurrency=concurrency)
    seconds = time.perf_counter() - started
    return Pass(tokens=tokens_of(recorded.asked), seconds=seconds), recorded


async def batch_pass(
    requests: list[JudgeRequest], *, engine: VLLMEngine, pool: SandboxPool, concurrency: int, salt: str
) -> Pass:
    recorded = Recorded(engine=engine)
    started = time.perf_counter()
    with coming_from(salt):
        for start in range(0, len(requests), concurrency):
            batch = requests[start : start + concurrency]
            together = Together(engine=recorded, num_active=len(batch))

            async def one(request: JudgeRequest, engine: Together = together) -> None:
                await judge_all([request], engine=engine, sandbox=pool, concurrency=1)
                engine.leave()

            await asyncio.gather(*map(one, batch))
    return Pass(tokens=tokens_of(recorded.asked), seconds=time.perf_counter() - started)


async def bare_pass(recorded: Recorded, *, server: VLLMServer, concurrency: int, salt: str) -> Pass:
    places = asyncio.Semaphore(concurrency)
    limits = httpx2.Limits(max_connections=None)

    async def one(client: httpx2.AsyncClient, requests: list[Asked]) -> int:
        generated = 0
        async with places:
            for asked in requests:
                generated += await bare_request(client, asked, salt=salt)
        return generated

    async with httpx2.AsyncClient(base_url=server.url, timeout=600, limits=limits) as client:
        started = time.perf_counter()
        generated = await asyncio.gather(*(one(client, requests) for requests in recorded.rollouts().values()))
        seconds = time.perf_counter() - started
    return Pass(tokens=sum(generated), seconds=seconds)


async def bare_request(client: httpx2.AsyncClient, asked: Asked, *, salt: str) -> int:
    """Tokens generated."""
    num_tokens = len(asked.completion.token_ids) - asked.completion.num_appended
    body = {
        "model": "judge",
        "prompt": list(asked.prompt_ids),
        "min_tokens": num_tokens,
        "max_tokens": num_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "cache_salt": cache_salt(salt),
    }
    answer = await client.post("/v1/completions", json=body)
    return answer.raise_for_status().json()["usage"]["completion_tokens"]


def tokens_of(asked: Sequence[Asked]) -> int:
    return sum(len(one.completion.token_ids) - one.completion.num_appended for one in asked)


async def measure(server: VLLMServer, *, num_items: int, rounds: int, concurrency: int) -> dict[str, Any]:
    items = generate_items(Mode.PAIRWISE, count=num_items, seed=5, mixture=Mixture(), held_out=True)
    requests = [item.request(seed=5, temperature=0.0) for item in items]
    engine = VLLMEngine(server.url)
    passes: dict[str, list[Pass]] = {"loop": [], "bare": [], "batch": []}
    async with SandboxPool(slots=2) as pool:
        await loop_pass(requests[:16], engine=engine, pool=pool, concurrency=16, salt="warm")
        for number in range(rounds):
            common: dict[str, Any] = {"engine": engine, "pool": pool, "concurrency": concurrency}
            done, recorded = await loop_pass(requests, salt=f"loop {number}", **common)
            passes["loop"].append(done)
            bare = await bare_pass(recorded, server=server, concurrency=concurrency, salt=f"bare {number}")
            passes["bare"].append(bare)
            passes["batch"].append(await batch_pass(requests, salt=f"batch {number}", **common))
    await engine.aclose()
    ratios = [a.rate / b.rate for a, b in zip(passes["loop"], passes["bare"], strict=True)]
    faster = [a.rate / b.rate for a, b in zip(passes["loop"], passes["batch"], strict=True)]
    return {
        "tokens_per_s": {name: [round(one.rate) for one in done] for name, done in passes.items()},
        "tokens": {name: [one.tokens for one in done] for name, done in passes.items()},
        "loop_to_bare": [round(ratio, 3) for ratio in ratios],
        "loop_to_bare_median": round(statistics.median(ratios), 3),
        "loop_to_batch": [round(ratio, 3) for ratio in faster],
        "loop_to_batch_median": round(statistics.median(faster), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--items", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=16, help="rollouts side by side")
    parser.add_argument(
        "--url", help="of a vLLM server that serves the bundled judge to nobody else; else one is started"
    )
    parser.add_argument("--out", type=Path, required=True, help="file for the figures")
    given = parser.parse_args()
    with bundled_judge_server(given.url) as server:
        measured = measure(server, num_items=given.items, rounds=given.rounds, concurrency=given.concurrency)
        report = asyncio.run(measured)
    options = f"--items {given.items} --rounds {given.rounds} --concurrency {given.concurrency}"
    report["command"] = f"python -m benchmarks.vllm_throughput {options}"
    report["judge"] = fingerprint(bundled_checkpoint())
    report["machine"] = {"cpus": os.cpu_count(), "architecture": platform.machine(), "load": os.getloadavg()}
    given.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
