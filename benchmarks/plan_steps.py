"""What `plan_check.py` records of the embedded engine and the sandbox, and the straight line through an engine's steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter, thread_time
from typing import Any

import numpy as np

from tirjudge.engines.embedded import EmbeddedEngine, Span
from tirjudge.tools.base import Bindings
from tirjudge.tools.python import Sandbox
from tirjudge.types import Completion, ExecResult, Rollout, Sampling
from tirjudge_server.planning.steps import StepCost
from tirjudge_server.planning.workload import READ, JudgmentShape, TurnShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of an engine: what it computed, and how long it took."""

    num_sequences: int
    context_tokens: int
    prefill_tokens: int
    prefill_pairs: float
    seconds: float
    core_s: float
    """Of the engine's thread; neighbours on the machine do not count."""


class RecordingEngine(EmbeddedEngine):
    """The engine itself; beside its work it notes its steps, and how long its callers waited."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.steps: list[Step] = []
        self.calls_s: list[float] = []
        super().__init__(*args, **kwargs)

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        began = perf_counter()
        completion = await super().generate(token_ids, sampling=sampling, session=session)
        self.calls_s.append(perf_counter() - began)
        return completion

    def _schedule(self) -> Any:
        batch = super()._schedule()
        self._spans: list[Span] = [span for _, span in batch]
        return batch

    def _step(self) -> None:
        self._spans, began, core_before = [], perf_counter(), thread_time()
        super()._step()
        if self._spans:
            spent = {"seconds": perf_counter() - began, "core_s": thread_time() - core_before}
            self.steps.append(step_of(self._spans, **spent))


def step_of(spans: Sequence[Span], *, seconds: float, core_s: float) -> Step:
    decoding = [span for span in spans if len(span.token_ids) == 1]
    prompts = [(span.start, len(span.token_ids)) for span in spans if len(span.token_ids) > 1]
    return Step(
        num_sequences=len(decoding),
        context_tokens=sum(span.start for span in decoding),
        prefill_tokens=sum(num for _, num in prompts),
        prefill_pairs=sum(num * (start + num / 2) for start, num in prompts),
        seconds=seconds,
        core_s=core_s,
    )


class TimedSandbox:
    """A sandbox, and how long each program took, its wait for a slot apart."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.spans_s: list[float] = []
        self.queues_s: list[float] = []
        self.cores_s: list[float] = []

    async def run(self, code: str, *, bindings: Bindings) -> ExecResult:
        began = perf_counter()
        result = await self._sandbox.run(code, bindings=bindings)
        self.spans_s.append(perf_counter() - began - result.queue_s)
        self.queues_s.append(result.queue_s)
        self.cores_s.append(result.cpu_s)
        return result


def fitted(steps: Sequence[Step], *, seconds: Sequence[float]) -> StepCost:
    """The line of least squares through the steps; a coefficient that came out negative is left out."""
    columns = {
        "base_s": [1.0] * len(steps),
        "per_sequence_s": [step.num_sequences for step in steps],
        "per_context_token_s": [step.context_tokens for step in steps],
        "per_prefill_token_s": [step.prefill_tokens for step in steps],
        "per_prefill_pair_s": [step.prefill_pairs for step in steps],
    }
    names = list(columns)
    wanted = np.array(seconds)
    while True:
        matrix = np.array([columns[name] for name in names], dtype=float).T
        scale = matrix.max(axis=0)
        found = np.linalg.lstsq(matrix / scale, wanted, rcond=None)[0] / scale
        if (found >= 0).all():
            return replace(StepCost(base_s=0.0), **dict(zip(names, map(float, found), strict=True)))
        names.remove(names[int(found.argmin())])


def shape_of(rollout: Rollout, *, program_s: float) -> JudgmentShape:
    """The turns of a rollout, and the read of its verdict; programs all take the same."""
    turns, new_tokens = [], len(rollout.prompt_ids)
    for turn in rollout.turns:
        turns.append(
            TurnShape(
                new_tokens=new_tokens,
                output_tokens=len(turn.completion.token_ids),
                program_s=None if turn.result is None else program_s,
            )
        )
        new_tokens = len(turn.observation_ids)
    return (*turns, READ)
