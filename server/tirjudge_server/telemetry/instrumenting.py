"""Who watches an application: its metrics, its logs, and, where somebody asked for it, its traces."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from fastapi import FastAPI
from starlette.types import Scope

from tirjudge.errors import TirjudgeError
from tirjudge.types import JudgeRequest, Judgment
from tirjudge_server.call import Call
from tirjudge_server.service import JudgeService
from tirjudge_server.telemetry import logs
from tirjudge_server.telemetry.metrics import ServerMetrics, router
from tirjudge_server.telemetry.probing import Probe
from tirjudge_server.telemetry.requests import AnsweredRequest, Requests


class TracingUnavailable(TirjudgeError, ValueError):
    """Traces were asked for, and what makes them is not installed."""


class TracingProbe(Probe, Protocol):
    """Implemented by `tirjudge_server.telemetry.tracing.Tracing`, which needs OpenTelemetry."""

    def around_request(self, scope: Scope) -> AbstractContextManager[object]: ...

    def on_request(self, answered: AnsweredRequest) -> None: ...

    def around_judgment(self, request: JudgeRequest, call: Call) -> AbstractContextManager[object]: ...

    def on_end(self, request: JudgeRequest, call: Call, outcome: Judgment | BaseException) -> None: ...


def instrument_app(
    app: FastAPI, *, service: JudgeService, metrics: ServerMetrics, tracing: TracingProbe | None
) -> None:
    """Let them be told of every request and every judgment. To be called before `Identity` is put around the application.

    Args:
        app: gets `GET /metrics`.
        service: what answers.
        metrics: counts.
        tracing: traces; None: nobody does.
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
