"""Compare the tokens per second of three ways to run rollouts: the loop, vLLM alone, and a synchronous batch per turn.

    python -m benchmarks.vllm_throughput --out benchmarks/results/vllm_throughput.json
    python -m benchmarks.vllm_throughput --apart --out benchmarks/results/vllm_throughput_apart.json

The same pairwise items are processed in four modes with `--concurrency` rollouts in flight, in short alternating passes:

- `loop`: the judge with its sandbox.
- `bare`: only vLLM. The requests of each rollout are sent one after the other, with the token ids that the loop sent and the
  number of tokens that it received (`min_tokens`, `max_tokens`, `ignore_eos`). Only the text is requested.
- `logprobs`: like `bare`, and the log-probability of each token is requested, as in training.
- `batch`: the judge with a synchronous batch per turn. A batch of rollouts starts together; each turn starts when all of
  them are ready for it, and ends for all when the slowest ends.

Every pass has a unique cache salt, so no pass hits cached prefixes of another pass. Tokens are those that vLLM generated.

With `--apart` the engine has a core of its own, which stands for a GPU. Otherwise it shares the cores with its API process,
the judge and the programs.
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

MODES = ("loop", "bare", "logprobs", "batch")


@dataclass(kw_only=True)
class SynchronousEngine(BaseEngine):
    """Starts generating when all rollouts of a batch have sent a request, and returns when the last one has ended."""

    engine: Engine
    num_active: int
    """Rollouts of the batch that have not ended."""
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
        """Record the end of one rollout."""
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
    """One pass over all items in one mode."""

    tokens: int
    """Tokens that vLLM generated."""
    seconds: float

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Modes:
    """The four modes. Each method makes one pass over the items."""

    requests: list[JudgeRequest]
    server: VLLMServer
    engine: VLLMEngine
    pool: SandboxPool
    concurrency: int

    async def loop(self, salt: str) -> tuple[Pass, Recorded]:
        """Judge all items, and record the requests to the engine."""
        recorded, began = Recorded(engine=self.engine), time.perf_counter()
        with coming_from(salt):
            await judge_all(self.requests, engine=recorded, sandbox=self.pool, concurrency=self.concurrency)
        return Pass(tokens=sum(map(num_tokens, recorded.asked)), seconds=time.perf_counter() - began), recorded

    async def batch(self, salt: str) -> Pass:
        """Judge all items with a synchronous batch per turn."""
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
        """Send recorded requests to vLLM."""
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
    """Return how many tokens of a completion vLLM generated."""
    return len(asked.completion.token_ids) - asked.completion.num_appended


async def measure(server: VLLMServer, *, num_items: int, rounds: int, concurrency: int) -> dict[str, Any]:
    """Run all passes, and return rates and ratios."""
    items = generate_items(Mode.PAIRWISE, count=num_items, seed=5, mixture=Mixture(), held_out=True)
    requests = [item.request(seed=5, temperature=0.0) for item in items]
    engine = VLLMEngine(server.url)
    done: list[dict[str, Pass]] = []
    async with SandboxPool(slots=2) as pool:
        modes = Modes(requests=requests, server=server, engine=engine, pool=pool, concurrency=concurrency)
        _, recorded = await modes.loop("warm")

        async def one_pass(mode: str, *, salt: str) -> Pass:
            if mode == "loop":
                return (await modes.loop(salt))[0]
            if mode == "batch":
                return await modes.batch(salt)
            return await modes.bare(recorded, salt, logprobs=mode == "logprobs")

        for number in track(range(rounds), description="Rounds", console=Console(stderr=True)):
            done.append({mode: await one_pass(mode, salt=f"{mode} {number}") for mode in in_turn(MODES, number)})
    await engine.aclose()
    ratios = (("loop", "bare"), ("logprobs", "bare"), ("loop", "batch"))
    return {
        "tokens_a_pass": {mode: sorted({one[mode].tokens for one in done}) for mode in MODES},
        "tokens_per_s": {mode: spread([one[mode].rate for one in done], digits=0) for mode in MODES},
        **{f"{a}_to_{b}": spread([one[a].rate / one[b].rate for one in done], digits=3) for a, b in ratios},
    }


def in_turn(modes: Sequence[str], number: int) -> list[str]:
    """Return the order of the modes in a round, so that each mode runs early and late in a round equally often."""
    start = number // 2 % len(modes)
    turned = [*modes[start:], *modes[:start]]
    return turned if number % 2 == 0 else turned[::-1]


def spread(values: Sequence[float], *, digits: int) -> dict[str, Any]:
    """Return median and quartiles over the rounds. The two passes of a ratio belong to the same round."""
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": round(median, digits), "quartiles": [round(low, digits), round(high, digits)]}


def keep_apart(server: VLLMServer) -> None:
    """Pin the engine to one core, and the API process, this process and its programs to the other cores.

    Raises:
        SystemExit: there is only one core, the server was not started here, or its engine is not a separate process.
    """
    first, *others = sorted(os.sched_getaffinity(0))
    if not others or server.pid is None:
        raise SystemExit("--apart needs two cores, and cannot be combined with --url")
    api = psutil.Process(server.pid)
    engines = api.children()
    if not engines:
        raise SystemExit("--apart needs a vLLM whose engine is a separate process")
    for process, cores in [(api, others), *((engine, [first]) for engine in engines)]:
        for thread in process.threads():
            os.sched_setaffinity(thread.id, cores)
    os.sched_setaffinity(0, others)


def main(
    items: Annotated[int, typer.Option(help="Items per pass.")] = 48,
    rounds: Annotated[int, typer.Option(help="Passes per mode.")] = 24,
    concurrency: Annotated[int, typer.Option(help="Rollouts in flight.")] = 16,
    apart: Annotated[bool, typer.Option("--apart", help="Pin the engine to a separate core.")] = False,
    url: Annotated[
        str | None,
        typer.Option(help="URL of a vLLM server with the bundled judge and no other clients. Default: start one."),
    ] = None,
    out: Out = None,
) -> None:
    """Measure, and print the result as JSON."""
    with bundled_judge_server(url) as server:
        if apart:
            keep_apart(server)
        measured = asyncio.run(measure(server, num_items=items, rounds=rounds, concurrency=concurrency))
    report({"judge": fingerprint(bundled_checkpoint()), **measured}, out)


if __name__ == "__main__":
    typer.run(main)
