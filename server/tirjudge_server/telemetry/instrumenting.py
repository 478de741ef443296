"""Instrument an application and a judge: report every request, judgment, turn and program to metrics, logs and traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fastapi import FastAPI
from starlette.types import Scope

from tirjudge.engines.base import BaseEngine, Engine, Tokenizer
from tirjudge.errors import TirjudgeError
from tirjudge.http.workers import Worker
from tirjudge.judge import Judge
from tirjudge.tools.base import Bindings
from tirjudge.tools.functions import Offer
from tirjudge.tools.python import PythonTool, Sandbox
from tirjudge.types import Completion, ExecResult, Sampling
from tirjudge_server.service import JudgeService
from tirjudge_server.telemetry import logs
from tirjudge_server.telemetry.metrics import ServerMetrics, router
from tirjudge_server.telemetry.requests import Requests

if TYPE_CHECKING:  # needs OpenTelemetry
    from tirjudge_server.telemetry.tracing import Tracing


class TracingUnavailable(TirjudgeError, ValueError):
    """Traces are configured, but OpenTelemetry is not installed."""


def instrument_app(app: FastAPI, *, service: JudgeService, metrics: ServerMetrics, tracing: Tracing | None) -> None:
    """Report every request and judgment to logs, metrics and traces. Call it before adding `CallerIdentity`.

    Args:
        app: The application. `GET /metrics` is added to it.
        service: The service that makes the judgments.
        metrics: Counts requests and judgments.
        tracing: Records their spans. None: no traces.
    """
    around: list[Callable[[Scope], AbstractContextManager[object]]] = [logs.around_request]
    on_request = [metrics.on_request, logs.on_request]
    service.around.append(logs.around_judgment)
    service.on_end += [metrics.on_end, logs.on_end]
    if tracing is not None:
        around.append(tracing.around_request)
        on_request.append(tracing.on_request)
        service.around.append(tracing.around_judgment)
        service.on_end.append(tracing.on_end)
    app.add_middleware(Requests, around=around, on_request=on_request)
    app.include_router(router(metrics))


class Probe(Protocol):
    """Observer of engine and sandbox calls.

    Each method returns a context manager that is open during the call. It yields a function, which is called with the result
    if the call succeeds.
    """

    def generating(
        self, token_ids: Sequence[int], *, sampling: Sampling, session: str
    ) -> AbstractContextManager[Callable[[Completion], None]]:
        """Observe a completion of the engine."""
        ...

    def running(self, code: str) -> AbstractContextManager[Callable[[ExecResult], None]]:
        """Observe a program in the sandbox, its wait for a slot included."""
        ...


def instrument(judge: Judge, probe: Probe) -> Judge:
    """Return a judge that behaves the same and reports its engine and sandbox calls to a probe."""
    tools = [
        replace(tool, sandbox=_InstrumentedSandbox(tool.sandbox, probe)) if isinstance(tool, PythonTool) else tool
        for tool in judge.tools
    ]
    return replace(judge, engine=_InstrumentedEngine(judge.engine, probe), tools=tools)


class _InstrumentedEngine(BaseEngine):
    def __init__(self, engine: Engine, probe: Probe) -> None:
        self._engine = engine
        self._probe = probe
        self.facts = engine.facts

    @property
    def tokenizer(self) -> Tokenizer:
        return self._engine.tokenizer

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return self._engine.eos_token_ids

    @property
    def ended(self) -> str | None:
        return self._engine.ended

    @property
    def workers(self) -> Sequence[Worker]:
        return self._engine.workers

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        with self._probe.generating(token_ids, sampling=sampling, session=session) as report:
            completion = await self._engine.generate(token_ids, sampling=sampling, session=session)
            report(completion)
            return completion

    async def read_labels(
        self,
        prefix: Sequence[int],
        *,
        labels: Sequence[str],
        opening: str = "",
        closing: str = "",
        session: str,
        turn: int = 0,
    ) -> dict[str, float] | None:
        # The default implementation reads through `generate` of this engine, so that each read is reported as a turn.
        overridden = type(self._engine).read_labels is not BaseEngine.read_labels
        read = self._engine.read_labels if overridden else super().read_labels
        return await read(prefix, labels=labels, opening=opening, closing=closing, session=session, turn=turn)

    async def ask_verdict(
        self, token_ids: Sequence[int], *, question: str, stop: Sequence[str], session: str
    ) -> Completion:
        sampling = Sampling(max_tokens=0, stop=tuple(stop))
        with self._probe.generating(token_ids, sampling=sampling, session=session) as report:
            completion = await self._engine.ask_verdict(token_ids, question=question, stop=stop, session=session)
            report(completion)
            return completion

    async def check(self, *, wait_s: float = 0.0) -> None:
        await self._engine.check(wait_s=wait_s)

    async def reload(self, checkpoint: Path, *, version: str) -> None:
        await self._engine.reload(checkpoint, version=version)


class _InstrumentedSandbox:
    def __init__(self, sandbox: Sandbox, probe: Probe) -> None:
        self._sandbox = sandbox
        self._probe = probe

    async def run(self, code: str, *, bindings: Bindings, offer: Offer | None = None) -> ExecResult:
        with self._probe.running(code) as report:
            result = await self._sandbox.run(code, bindings=bindings, offer=offer)
            report(result)
            return result
