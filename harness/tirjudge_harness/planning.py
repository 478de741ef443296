"""What a run asks: each example of a benchmark becomes questions to the judge, each with the key of its answer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from tirjudge.http.protocol import problem_of
from tirjudge.types import JudgeRequest, Mode
from tirjudge_harness.benchmark import Benchmark
from tirjudge_harness.examples import Example
from tirjudge_harness.items import InputError
from tirjudge_harness.judges import OpenJudge
from tirjudge_harness.protocols import PAPER, Protocol
from tirjudge_harness.row_sampling import Shard, sample
from tirjudge_harness.run import AskedComparison, DataManifest, JudgeManifest, PlannedExample, RunManifest, sha256_of
from tirjudge_harness.runner import key_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How a benchmark is judged."""

    mode: Mode | None = None
    """None: the benchmark's first."""
    protocol: Protocol = PAPER
    tools: Literal["auto", "on", "off"] = "auto"
    max_tool_calls: int = 3
    seed: int = 0
    parts: tuple[str, ...] = ()
    """Empty: those that the benchmark counts by default."""
    data: Path | None = None
    """None: the hub."""
    limit: int | None = None
    """Size of the sample; None: all."""
    shard: Shard | None = None
    attack: str | None = None
    """What was done to the responses beforehand; None: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """All that the judge is asked in a run."""

    manifest: RunManifest
    planned: list[PlannedExample]
    requests: dict[str, JudgeRequest]
    """By key; questions that are the same have one."""


def plan_run(
    benchmark: Benchmark,
    examples: Sequence[Example],
    *,
    opened: OpenJudge,
    settings: RunSettings,
    num_bad_rows: int = 0,
) -> RunPlan:
    """What to ask about some examples.

    Raises:
        InputError: the benchmark has no such mode, two examples have one id, or one is no question to a judge.
    """
    mode = settings.mode or benchmark.modes[0]
    if mode not in benchmark.modes:
        raise InputError(f"--mode: {mode.value} given; {benchmark.name} has {', '.join(benchmark.modes)}")
    orders, _ = benchmark.rule(settings.protocol, mode=mode)
    (twin, num), *_ = Counter(example.outline.id for example in examples).most_common(1) or [("", 0)]
    if num > 1:
        raise InputError(f"{benchmark.name}: two examples have the same id, {twin!r}")
    chosen = list(examples)
    if settings.limit is not None:
        chosen = sample(examples, size=settings.limit, seed=settings.seed)
    planned: list[PlannedExample] = []
    requests: dict[str, JudgeRequest] = {}
    for place, example in enumerate(chosen):
        if settings.shard is None or settings.shard.holds(example.outline):
            asked: list[AskedComparison] = []
            for responses in benchmark.asked(example.outline, mode=mode):
                request = _request(example, responses, mode=mode, orders=orders, settings=settings)
                key = key_of(request, identity=opened.identity)
                requests[key] = request
                asked.append(AskedComparison(responses=responses, key=key))
            planned.append(PlannedExample(place=place, outline=example.outline, asked=tuple(asked)))
    manifest = RunManifest(
        benchmark=benchmark.name,
        parts=settings.parts,
        mode=mode,
        protocol=settings.protocol.name,
        orders=orders,
        votes=settings.protocol.votes,
        tools=settings.tools,
        max_tool_calls=settings.max_tool_calls,
        seed=settings.seed,
        judge=JudgeManifest(kind=opened.kind, url=opened.url, model=opened.model, fingerprint=opened.fingerprint),
        data=_data(benchmark, chosen, settings=settings, num_bad_rows=num_bad_rows),
        shard=None if settings.shard is None else str(settings.shard),
        attack=settings.attack,
        version=version("tirjudge"),
        created=int(time.time()),
    )
    return RunPlan(manifest=manifest, planned=planned, requests=requests)


def _data(benchmark: Benchmark, chosen: Sequence[Example], *, settings: RunSettings, num_bad_rows: int) -> DataManifest:
    """Where the examples are from."""
    names = () if settings.data is not None else settings.parts or benchmark.default_parts
    return DataManifest(
        path=None if settings.data is None else str(settings.data),
        sources={name: f"{benchmark.sources[name].id}@{benchmark.sources[name].revision}" for name in names},
        limit=settings.limit,
        sha256=sha256_of(chosen),
        num_examples=len(chosen),
        num_bad_rows=num_bad_rows,
    )


def _request(
    example: Example,
    responses: tuple[int, ...],
    *,
    mode: Mode,
    orders: Literal["single", "both"],
    settings: RunSettings,
) -> JudgeRequest:
    try:
        return JudgeRequest(
            mode=mode,
            prompt=example.prompt if isinstance(example.prompt, str) else list(example.prompt),
            responses=[example.responses[index] for index in responses],
            reference=example.reference,
            tools=settings.tools,
            # A response that is scored alone has no order; the key is to be the same under every protocol.
            orders="single" if mode is Mode.POINTWISE else orders,
            votes=settings.protocol.votes,
            max_tool_calls=settings.max_tool_calls,
            seed=settings.seed,
        )
    except ValidationError as error:
        raise InputError(f"{example.outline.id}: {problem_of(error).message}") from error
