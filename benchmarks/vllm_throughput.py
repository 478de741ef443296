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

import asyncio
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import httpx2
import psutil
import typer
from rich.console import Console
from rich.progress import track

from benchmarks.reporting import Out, report
from tests.vllm.judging import Asked, Recorded, judge_all
from tests.vllm.server import VLLMServer, bundled_judge_server
from tirjudge.concurrency import map_concurrently
from tirjudge.engines.base import BaseEngine, Engine, Tokenizer
from tirjudge.engines.vllm import VLLMEngine
from tirjudge.model import bundled_checkpoint, fingerprint
from tirjudge.request_context import cache_salt, coming_from
from tirjudge.types import Completion, JudgeRequest, Mode, Sampling
from tirjudge_sandbox import SandboxPool
from tirjudge_training.synthetic.examples import Mixture
from tirjudge_training.synthetic.items import generate_items

WAYS = ("loop", "bare", "logprobs", "batch")


@dataclass(kw_only=True)
class SynchronousEngine(BaseEngine):
    """An engine that begins when all rollouts of a batch have asked, and answers when the last one has ended."""

    engine: Engine
    num_active: int
    waiting: list[asyncio.Future[None]] = field(default_factory=list)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.engine.tokenizer

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return self.engine.eos_token_ids

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        await self._wait_for_all()
        completion = await self.engine.generate(token_ids, sampling=sampling, session=session)
        await self._wait_for_all()
        return completion

    def leave(self) -> None:
        """One rollout asks no more."""
        self.num_active -= 1
        self._release()

    async def _wait_for_all(self) -> None:
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(arrived)
        self._release()
        await arrived

    def _release(self) -> None:
        if len(self.waiting) == self.num_active:
            for arrived in self.waiting:
                arrived.set_result(None)
            self.waiting.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One way through all items."""

    tokens: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """The ways, each a method that makes one pass."""

    requests: list[JudgeRequest]
    server: VLLMServer
    engine: VLLMEngine
    pool: SandboxPool
    concurrency: int

    async def loop(self, salt: str) -> tuple[Pass, Recorded]:
        recorded, began = Recorded(engine=self.engine), time.perf_counter()
        with coming_from(salt):
            await judge_all(self.requests, engine=recorded, sandbox=self.pool, concurrency=self.concurrency)
        return Pass(tokens=sum(map(num_tokens, recorded.asked)), seconds=time.perf_counter() - began), recorded

    async def batch(self, salt: str) -> Pass:
        recorded, began = Recorded(engine=self.engine), time.perf_counter()
        with coming_from(salt):
            for start in range(0, len(self.requests), self.concurrency):
                batch = self.requests[start : start + self.concurrency]
                engine = SynchronousEngine(engine=recorded, num_active=len(batch))
                await asyncio.gather(*(self._judge_one(request, engine=engine) for request in batch))
        return Pass(tokens=sum(map(num_tokens, recorded.asked)), seconds=time.perf_counter() - began)

    async def _judge_one(self, request: JudgeRequest, *, engine: SynchronousEngine) -> None:
        await judge_all([request], engine=engine, sandbox=self.pool, concurrency=1)
        engine.leave()

    async def bare(self, recorded: Recorded, salt: str, *, logprobs: bool) -> Pass:
        common = {"model": "judge", "ignore_eos": True, "temperature": 0, "cache_salt": cache_salt(salt)}
        common |= {"logprobs": 0} if logprobs else {}

        async def one(rollout: list[Asked]) -> int:
            generated = 0
            for asked in rollout:
                num = num_tokens(asked)
                body = {**common, "prompt": list(asked.prompt_ids), "min_tokens": num, "max_tokens": num}
                answer = await client.post("/v1/completions", json=body)
                generated += answer.raise_for_status().json()["usage"]["completion_tokens"]
            return generated

        limits = httpx2.Limits(max_connections=None)
        async with httpx2.AsyncClient(base_url=self.server.url, timeout=600, limits=limits) as client:
            began = time.perf_counter()
            rollouts = map(one, recorded.rollouts().values())
            generated = await map_concurrently(rollouts, num_at_once=self.concurrency)
            return Pass(tokens=sum(generated), seconds=time.perf_counter() - began)


def num_tokens(asked: Asked) -> int:
    """That vLLM generated."""
    return len(asked.completion.token_ids) - asked.completion.num_appended


async def measure(server: VLLMServer, *, num_items: int, rounds: int, concurrency: int) -> dict[str, Any]:
    items = generate_items(Mode.PAIRWISE, count=num_items, seed=5, mixture=Mixture(), held_out=True)
    requests = [item.request(seed=5, temperature=0.0) for item in items]
    engine = VLLMEngine(server.url)
    done: list[dict[str, Pass]] = []
    async with SandboxPool(slots=2) as pool:
        ways = Ways(requests=requests, server=server, engine=engine, pool=pool, concurrency=concurrency)
        _, recorded = await ways.loop("warm")

        async def one_pass(way: str, *, salt: str) -> Pass:
            if way == "loop":
                return (await ways.loop(salt))[0]
            if way == "batch":
                return await ways.batch(salt)
            return await ways.bare(recorded, salt, logprobs=way == "logprobs")

        for number in track(range(rounds), description="Rounds", console=Console(stderr=True)):
            done.append({way: await one_pass(way, salt=f"{way} {number}") for way in in_turn(WAYS, number)})
    await engine.aclose()
    ratios = (("loop", "bare"), ("logprobs", "bare"), ("loop", "batch"))
    return {
        "tokens_a_pass": {way: sorted({one[way].tokens for one in done}) for way in WAYS},
        "tokens_per_s": {way: spread([one[way].rate for one in done], digits=0) for way in WAYS},
        **{f"{a}_to_{b}": spread([one[a].rate / one[b].rate for one in done], digits=3) for a, b in ratios},
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


def main(
    items: int = 48,
    rounds: int = 24,
    concurrency: Annotated[int, typer.Option(help="Rollouts side by side.")] = 16,
    apart: Annotated[bool, typer.Option("--apart", help="The engine on a core that nothing else runs on.")] = False,
    url: Annotated[
        str | None, typer.Option(help="Of a vLLM server that serves the bundled judge to nobody else.")
    ] = None,
    out: Out = None,
) -> None:
    """Measure, and print the result as JSON. Without --url a vLLM server is started."""
    with bundled_judge_server(url) as server:
        if apart:
            keep_apart(server)
        measured = asyncio.run(measure(server, num_items=items, rounds=rounds, concurrency=concurrency))
    report({"judge": fingerprint(bundled_checkpoint()), **measured}, out)


if __name__ == "__main__":
    typer.run(main)
