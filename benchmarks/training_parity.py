"""Compare the rollouts of server, training collector and harness, given the same weights and seeds.

    python -m benchmarks.training_parity --rollouts 1000 --out benchmarks/results/training_parity.json
    python -m benchmarks.training_parity --rollouts 200 --calls --out benchmarks/results/training_parity_calls.json

Each path runs the bundled judge in a separate engine with a real sandbox. For the server (ASGI, without a socket) and for the
harness, ids and mask are reconstructed from the requests and completions of their engine; for the collector they are the
samples that the trainer receives. With `--calls`, each program begins with a call of `run`, whose result it prints. A last
observation that no turn follows is ignored, because no model read it. Then the log-probabilities of some rollouts are
compared with those that transformers computes in fp32 over the whole sequence.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import httpx2
import typer

from benchmarks.reporting import Out, report
from tests.vllm.judging import Asked, Recorded
from tirjudge.concurrency import map_concurrently
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.judge import Judge, content_order
from tirjudge.model import bundled_checkpoint
from tirjudge.profile import load_profile
from tirjudge.tools.base import Bindings
from tirjudge.tools.functions import Offer, ToolFunction
from tirjudge.tools.python import PythonTool, Sandbox
from tirjudge.types import ExecResult, JudgeRequest, Mode
from tirjudge_harness.pacing import Pace
from tirjudge_harness.run_store import JudgmentStore
from tirjudge_harness.runner import Runner, run_all
from tirjudge_sandbox import SandboxPool
from tirjudge_sandbox.candidates import FUNCTIONS
from tirjudge_server.app import create_app
from tirjudge_server.service import JudgeService
from tirjudge_training.collector import Collector, request_seed
from tirjudge_training.difficulty import EpochOrder
from tirjudge_training.items import TrainingItem
from tirjudge_training.policies import EmbeddedPolicy
from tirjudge_training.synthetic.examples import Mixture
from tirjudge_training.synthetic.items import generate_items
from tirjudge_training.training_samples import TrainingSample

GROUP_SIZE = 2

_CALL = "print(run('print(len(' + repr(prompt) + '))').stdout, end='')\n"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Seen:
    """Token ids and loss mask of one rollout."""

    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    """Token ids after the prompt, up to the last sampled one."""
    mask: tuple[int, ...]
    """1 for each sampled token in `ids`, 0 for other tokens."""


def seen_of(turns: Sequence[Asked]) -> Seen:
    """Reconstruct a rollout from the requests and completions of its engine."""
    prompt_ids, last = turns[0].prompt_ids, turns[-1]
    whole = last.prompt_ids + last.completion.token_ids
    mask = [0] * (len(whole) - len(prompt_ids))
    for turn in turns:
        start, token_ids = len(turn.prompt_ids), turn.completion.token_ids
        num = len(token_ids) - turn.completion.num_appended
        while num and whole[start + num - 1] != token_ids[num - 1]:
            num -= 1  # the loop drops the end-of-turn token if another turn follows
        mask[start - len(prompt_ids) : start - len(prompt_ids) + num] = [1] * num
    return Seen(prompt_ids=prompt_ids, ids=whole[len(prompt_ids) :], mask=tuple(mask))


def seen_by_trainer(trajectory: TrainingSample) -> Seen:
    """Return a training sample without the tokens after the last sampled one."""
    end = len(trajectory.ids)
    while end and not trajectory.mask[end - 1]:
        end -= 1
    return Seen(prompt_ids=trajectory.prompt_ids, ids=trajectory.ids[:end], mask=trajectory.mask[:end])


def draw_items(num_rollouts: int, *, seed: int) -> list[TrainingItem]:
    """Generate items for this number of rollouts, two per prompt, with equal shares of the three modes."""
    num = num_rollouts // GROUP_SIZE // 3
    sizes = {Mode.PAIRWISE: num, Mode.LISTWISE: num, Mode.POINTWISE: (num_rollouts // GROUP_SIZE - 2 * num) // 2}
    mixture = Mixture(list_size=4)
    return [
        item for mode, count in sizes.items() for item in generate_items(mode, count=count, seed=seed, mixture=mixture)
    ]


def same_order(item: TrainingItem, *, seed: int, temperature: float) -> tuple[TrainingItem, JudgeRequest]:
    """Return the item with its responses in the order shown in a judgment, and the request with one vote per rollout."""
    request = item.request(seed=seed, temperature=temperature)
    ordered = item if item.mode is Mode.POINTWISE else replace(item, order=content_order(request))
    return ordered, request.model_copy(update={"votes": GROUP_SIZE})


@dataclass
class CallingSandbox:
    """A sandbox that lets each program begin with a call of `run`, and print its result."""

    pool: SandboxPool
    num_calls: int = 0
    """Number of calls so far. A program with a syntax error makes none."""

    async def run(self, code: str, *, bindings: Bindings, offer: Offer | None = None) -> ExecResult:
        result = await self.pool.run(_CALL + code, bindings=bindings, offer=offer)
        self.num_calls += len(result.calls)
        return result


async def through_collector(
    items: Sequence[TrainingItem],
    *,
    seed: int,
    temperature: float,
    sandbox: Sandbox,
    functions: Sequence[ToolFunction],
) -> tuple[list[TrainingSample], float]:
    """Collect trajectories, and return them with the elapsed time in seconds."""
    num_groups = sum(item.num_groups for item in items)
    async with EmbeddedPolicy(bundled_checkpoint(), sandbox=sandbox, functions=functions) as policy:
        order = EpochOrder(items, seed=seed)
        collector = Collector(
            policy, items, group_size=GROUP_SIZE, seed=seed, temperature=temperature, max_draws=1, order=order
        )
        collected = await collector.collect(step=0, num_groups=num_groups)
    trajectories = [t for group in collected.groups for t in group.trajectories]
    return trajectories, collected.stats["perf/collect_s"]


async def through_server(judge: Judge, requests: Sequence[JudgeRequest]) -> None:
    """Judge all requests over HTTP, without a socket."""
    transport = httpx2.ASGITransport(app=create_app(JudgeService(judge)))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test", timeout=None) as client:
        posts = (client.post("/v1/judge", json=request.model_dump(mode="json")) for request in requests)
        for answer in await map_concurrently(posts, num_at_once=8):
            answer.raise_for_status()


async def through_harness(judge: Judge, requests: Sequence[JudgeRequest]) -> None:
    """Judge all requests with the runner of the harness."""
    failures: list[Exception] = []

    def done(number: int, answer: Any) -> None:
        if isinstance(answer, Exception):
            failures.append(answer)

    with tempfile.TemporaryDirectory() as folder:
        async with JudgmentStore(Path(folder, "run")) as answers:
            runner = Runner(judge.judge, identity={"model": "bundled"}, store=answers, pace=Pace(most=6))
            await run_all(list(enumerate(requests)), runner=runner, on_done=done)
    if failures:
        raise failures[0]


async def seen_through(path: Any, requests: Sequence[JudgeRequest], *, tool: PythonTool) -> list[Seen]:
    """Run one path with a recorded engine, and return its rollouts."""
    profile = load_profile(bundled_checkpoint())
    engine = EmbeddedEngine.load(bundled_checkpoint(), context_tokens=profile.context_tokens)
    recorded = Recorded(engine=engine)
    try:
        await path(Judge(engine=recorded, tools=[tool], profile=profile), requests)
    finally:
        engine.close()
    rollouts = ([asked for asked in rollout if asked.is_turn] for rollout in recorded.rollouts().values())
    return [seen_of(turns) for turns in rollouts if turns]


def num_mismatches(some: Sequence[Seen], others: Sequence[Seen]) -> int:
    """Return the number of rollouts of one path without a counterpart (equal ids and mask) in the other path.

    If `others` is longer, its surplus rollouts are counted too.
    """
    return sum((Counter(some) - Counter(others)).values()) + max(0, len(others) - len(some))


def largest_logprob_difference(trajectories: Sequence[TrainingSample]) -> tuple[float, int]:
    """Compare the engine's log-probabilities with transformers, fp32, one forward pass over the whole sequence.

    Returns:
        The largest absolute difference over sampled tokens, and the number of these tokens.
    """
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(str(bundled_checkpoint()), dtype=torch.float32)
    largest, num_tokens = 0.0, 0
    with torch.inference_mode():
        for trajectory in trajectories:
            whole = torch.tensor([trajectory.prompt_ids + trajectory.ids])
            logprobs = model(whole).logits[0, len(trajectory.prompt_ids) - 1 : -1].log_softmax(-1)
            chosen = logprobs.gather(1, torch.tensor(trajectory.ids)[:, None])[:, 0]
            sampled = torch.tensor(trajectory.mask, dtype=torch.bool)
            difference = (chosen - torch.tensor(trajectory.logprobs))[sampled].abs()
            largest, num_tokens = max(largest, float(difference.max())), num_tokens + int(sampled.sum())
    return largest, num_tokens


async def measure(
    num_rollouts: int, *, seed: int, temperature: float, num_compared: int, calls: bool = False
) -> dict[str, Any]:
    """Run the three paths, one after the other, and compare them."""
    items, requests = [], []
    drawn = draw_items(num_rollouts, seed=seed)
    for item in drawn:
        ordered, request = same_order(item, seed=request_seed(seed, 0, item.id), temperature=temperature)
        items.append(ordered)
        requests.append(request)
    async with SandboxPool() as pool:
        tool = PythonTool(CallingSandbox(pool), FUNCTIONS) if calls else PythonTool(pool)
        trajectories, collect_s = await through_collector(
            items, seed=seed, temperature=temperature, sandbox=tool.sandbox, functions=tool.functions
        )
        print(f"collector: {len(trajectories)} rollouts in {collect_s:.0f} s", file=sys.stderr)
        served = await seen_through(through_server, requests, tool=tool)
        print("server done", file=sys.stderr)
        judged = await seen_through(through_harness, requests, tool=tool)
    trained = [seen_by_trainer(trajectory) for trajectory in trajectories]
    largest, num_tokens = largest_logprob_difference(trajectories[:: max(1, len(trajectories) // num_compared)])
    return {
        "rollouts": len(trained),
        "function_calls": tool.sandbox.num_calls if isinstance(tool.sandbox, CallingSandbox) else 0,
        "temperature": temperature,
        "distinct_rollouts": len(set(trained)),
        "rollouts_with_programs": sum(trajectory.num_calls > 0 for trajectory in trajectories),
        "mismatches_server": num_mismatches(trained, served),
        "mismatches_harness": num_mismatches(trained, judged),
        "largest_logprob_difference": largest,
        "compared_tokens": num_tokens,
        "collector_rollouts_per_s": round(len(trained) / collect_s, 2),
    }


def main(
    rollouts: Annotated[int, typer.Option(help="Rollouts per path.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the items and of the sampling.")] = 1,
    temperature: Annotated[float, typer.Option(help="Sampling temperature.")] = 1.0,
    compared: Annotated[
        int, typer.Option(help="Rollouts whose log-probabilities are compared with transformers.")
    ] = 50,
    calls: Annotated[bool, typer.Option("--calls", help="Let each program call a function.")] = False,
    out: Out = None,
) -> None:
    """Compare, and print the result as JSON."""
    started = time.perf_counter()
    found = asyncio.run(measure(rollouts, seed=seed, temperature=temperature, num_compared=compared, calls=calls))
    report({**found, "elapsed_s": round(time.perf_counter() - started, 1)}, out)


if __name__ == "__main__":
    typer.run(main)
