"""How much of vLLM's speed the loop keeps, and what a synchronous batch a turn would have cost.

    python -m benchmarks.vllm_throughput --out benchmarks/results/vllm_throughput.json
    python -m benchmarks.vllm_throughput --apart --out benchmarks/results/vllm_throughput_apart.json

Four ways through the same pairwise items, so many rollouts side by side, in short passes that take turns:

- `loop`: the judge, with its sandbox.
- `bare`: vLLM alone. Each rollout's requests one after the other, with the ids that the loop had sent and as many tokens as
  it had got (`min_tokens` and `max_tokens`, `ignore_eos`), nothing in between, nothing asked for besides the text.
- `logprobs`: the same, asked for the log-probability of each token too, as training does.
- `batch`: the judge, held back as a synchronous loop would be. So many rollouts begin together; each turn begins when all of
  them have come to it, and ends for all when the last one has ended.

Every pass has a cache salt of its own, so none finds what another had computed. Tokens are those that vLLM generated.

With `--apart` the engine has a core to itself, as it would have a GPU. Without, it shares the cores with its own API's
process, the judge and the judge's programs, and what the loop costs is mostly that they take turns.
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
import psutil
from rich.console import Console
from rich.progress import track

from tests.vllm.judging import Asked, Recorded, judge_all
from tests.vllm.server import VLLMServer, bundled_judge_server
from tirjudge.engines.base import Engine, Tokenizer
from tirjudge.engines.vllm import VLLMEngine
from tirjudge.model import bundled_checkpoint, fingerprint
from tirjudge.request_context import cache_salt, coming_from
from tirjudge.types import Completion, JudgeRequest, Mode, Sampling
from tirjudge_sandbox import SandboxPool
from tirjudge_training.synthetic.examples import Mixture
from tirjudge_training.synthetic.items import generate_items

WAYS = ("loop", "bare", "logprobs", "batch")


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


async def bare_pass(
    recorded: Recorded, *, server: VLLMServer, concurrency: int, salt: str, logprobs: bool = False
) -> Pass:
    places = asyncio.Semaphore(concurrency)
    limits = httpx2.Limits(max_connections=None)

    async def one(client: httpx2.AsyncClient, requests: list[Asked]) -> int:
        generated = 0
        async with places:
            for asked in requests:
                generated += await bare_request(client, asked, salt=salt, logprobs=logprobs)
        return generated

    async with httpx2.AsyncClient(base_url=server.url, timeout=600, limits=limits) as client:
        started = time.perf_counter()
        generated = await asyncio.gather(*(one(client, requests) for requests in recorded.rollouts().values()))
        seconds = time.perf_counter() - started
    return Pass(tokens=sum(generated), seconds=seconds)


async def bare_request(client: httpx2.AsyncClient, asked: Asked, *, salt: str, logprobs: bool) -> int:
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
        **({"logprobs": 0} if logprobs else {}),
    }
    answer = await client.post("/v1/completions", json=body)
    return answer.raise_for_status().json()["usage"]["completion_tokens"]


def tokens_of(asked: Sequence[Asked]) -> int:
    return sum(len(one.completion.token_ids) - one.completion.num_appended for one in asked)


async def measure(server: VLLMServer, *, num_items: int, rounds: int, concurrency: int) -> dict[str, Any]:
    items = generate_items(Mode.PAIRWISE, count=num_items, seed=5, mixture=Mixture(), held_out=True)
    requests = [item.request(seed=5, temperature=0.0) for item in items]
    engine = VLLMEngine(server.url)
    done: list[dict[str, Pass]] = []
    async with SandboxPool(slots=2) as pool:
        common: dict[str, Any] = {"engine": engine, "pool": pool, "concurrency": concurrency}
        _, recorded = await loop_pass(requests, salt="warm", **common)

        async def one_pass(way: str, *, salt: str) -> Pass:
            if way in ("bare", "logprobs"):
                alone: dict[str, Any] = {"server": server, "concurrency": concurrency, "logprobs": way == "logprobs"}
                return await bare_pass(recorded, salt=salt, **alone)
            if way == "batch":
                return await batch_pass(requests, salt=salt, **common)
            return (await loop_pass(requests, salt=salt, **common))[0]

        for number in track(range(rounds), description="Rounds", console=Console(stderr=True)):
            done.append({way: await one_pass(way, salt=f"{way} {number}") for way in in_turn(WAYS, number)})
    await engine.aclose()
    return {
        "tokens_a_pass": {way: sorted({one[way].tokens for one in done}) for way in WAYS},
        "tokens_per_s": {way: spread([one[way].rate for one in done], digits=0) for way in WAYS},
        "loop_to_bare": spread([one["loop"].rate / one["bare"].rate for one in done], digits=3),
        "logprobs_to_bare": spread([one["logprobs"].rate / one["bare"].rate for one in done], digits=3),
        "loop_to_batch": spread([one["loop"].rate / one["batch"].rate for one in done], digits=3),
    }


def in_turn(ways: Sequence[str], number: int) -> list[str]:
    """Each way comes as often first as last: a machine that others slow down slows all of them alike."""
    start = number // 2 % len(ways)
    turned = [*ways[start:], *ways[:start]]
    return turned if number % 2 == 0 else turned[::-1]


def spread(values: Sequence[float], *, digits: int) -> dict[str, float]:
    """Quartiles over the rounds; of the ratios, whose two passes ran within seconds of each other."""
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": round(median, digits), "quartiles": [round(low, digits), round(high, digits)]}


def keep_apart(server: VLLMServer) -> None:
    """The engine gets a core of its own; the API's process, and this one with its programs, the others.

    Raises:
        SystemExit: there is one core, the server is somebody else's, or its engine is not a process.
    """
    first, *others = sorted(os.sched_getaffinity(0))
    if not others or server.pid is None:
        raise SystemExit("--apart takes two cores, and a server of this benchmark's own")
    api = psutil.Process(server.pid)
    engines = [child for child in api.children() if "EngineCore" in child.name() + " ".join(child.cmdline())]
    if not engines:
        raise SystemExit("vLLM has no process of its own for its engine; --apart has nothing to keep apart")
    for process, cores in [(api, others), *((engine, [first]) for engine in engines)]:
        for thread in process.threads():
            os.sched_setaffinity(thread.id, cores)
    os.sched_setaffinity(0, others)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--items", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--concurrency", type=int, default=16, help="rollouts side by side")
    parser.add_argument("--apart", action="store_true", help="the engine on a core that nothing else runs on")
    parser.add_argument(
        "--url", help="of a vLLM server that serves the bundled judge to nobody else; else one is started"
    )
    parser.add_argument("--out", type=Path, required=True, help="file for the figures")
    given = parser.parse_args()
    with bundled_judge_server(given.url) as server:
        if given.apart:
            keep_apart(server)
        load = os.getloadavg()
        measured = measure(server, num_items=given.items, rounds=given.rounds, concurrency=given.concurrency)
        report = asyncio.run(measured)
    options = f"--items {given.items} --rounds {given.rounds} --concurrency {given.concurrency}"
    report["command"] = f"python -m benchmarks.vllm_throughput {options}{' --apart' if given.apart else ''}"
    report["judge"] = fingerprint(bundled_checkpoint())
    report["machine"] = {"cpus": os.cpu_count(), "architecture": platform.machine(), "load_before": load}
    given.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
