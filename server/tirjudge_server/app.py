"""The HTTP interface: which endpoints there are, who may call them, and what tells load balancers how it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from fastapi import APIRouter, Depends, FastAPI, Response
from fastapi.responses import JSONResponse

from tirjudge.model import Model
from tirjudge.types import JudgeRequest, Judgment
from tirjudge_server import batch, dialects, native, reloading, reranking, rewards
from tirjudge_server.access import Access, needs
from tirjudge_server.call import Call
from tirjudge_server.dialects import DIALECTS, DialectSettings
from tirjudge_server.openai import routes as openai
from tirjudge_server.openai.filestore import FileQuota
from tirjudge_server.openapi import describe
from tirjudge_server.records import endpoints
from tirjudge_server.records.store import Records
from tirjudge_server.service import JudgeService
from tirjudge_server.telemetry.instrumenting import TracingProbe, instrument_app
from tirjudge_server.telemetry.metrics import ServerMetrics
from tirjudge_web.body_budget import NUM_LARGEST, BodyBudget
from tirjudge_web.browser_check import AllowedHosts, BrowserCheck
from tirjudge_web.errors import answer_errors
from tirjudge_web.identity import CallerIdentity
from tirjudge_web.openapi import BARE

MAX_BODY_BYTES = 16 * 1024 * 1024
"""The largest request that is read."""


def create_app(
    service: JudgeService,
    *,
    max_body_bytes: int = MAX_BODY_BYTES,
    names: Collection[str] = tuple(DIALECTS),
    settings: DialectSettings | None = None,
    access: Access | None = None,
    records: Records | None = None,
    files: Path | None = None,
    quota: FileQuota = FileQuota(),  # noqa: B008 (it is frozen)
    model: Model | None = None,
    metrics: ServerMetrics | None = None,
    tracing: TracingProbe | None = None,
    hosts: AllowedHosts | None = None,
) -> FastAPI:
    """The application around a judge that is open; closing that, and the records, is left to whoever opened them.

    Args:
        service: answers.
        max_body_bytes: the largest request that is read.
        names: of the dialects that are spoken.
        settings: of these; None: the defaults.
        access: who may call; None: everybody.
        records: answer for judgments made before; None: there are none.
        files: folder of files and batches; None: there are none.
        quota: what one caller may keep there.
        model: what `service` judges with, so that its weights can be exchanged; None: they cannot. It takes `access`.
        metrics: of `service`; None: without those of engine and sandbox.
        tracing: traces; None: nobody does.
        hosts: names by which callers reach it; None: any.

    Raises:
        ValueError: there is no such dialect.
    """
    settings = replace(settings or DialectSettings(), max_body_bytes=max_body_bytes)
    app = FastAPI(title="tirjudge", version=version("tirjudge"), lifespan=_watched(service), **BARE)
    app.add_middleware(BodyBudget, max_bytes=NUM_LARGEST * max_body_bytes)
    app.add_middleware(BrowserCheck, hosts=hosts, has_keys=lambda: access is not None and access.is_guarded)
    metrics = metrics or ServerMetrics(service, fallbacks=settings.fallbacks)
    instrument_app(app, service=service, metrics=metrics, tracing=tracing)
    app.add_middleware(CallerIdentity)
    answer_errors(app)
    app.state.access = access
    if access is not None:
        service.on_end.append(_spending(access))

    judging = [
        native.router(service, max_body_bytes=max_body_bytes),
        batch.router(service, max_body_bytes=max_body_bytes),
        openai.router(service, max_body_bytes=max_body_bytes),
    ]
    if files is not None:
        judging.append(openai.batch_router(service, folder=files, max_body_bytes=max_body_bytes, quota=quota))
    rewarding = [
        rewards.router(service, max_body_bytes=max_body_bytes, fallbacks=settings.fallbacks),
        *dialects.routers(service, names=names, settings=settings),
    ]
    reading = [] if records is None else [endpoints.router(service, records=records)]
    managing = []
    if access is not None and model is not None:
        managing.append(reloading.router(service, model=model, records=records))
    for scope, routers in (("judge", judging), ("reward", rewarding), ("read", reading), ("admin", managing)):
        for routes in routers:
            app.include_router(routes, dependencies=[Depends(needs(scope))])
    app.include_router(_state(service, records=records))
    requests = batch.REQUESTS | rewards.REQUESTS | reranking.REQUESTS | openai.REQUESTS
    if files is not None:
        requests |= openai.BATCH_REQUESTS
    if managing:
        requests |= reloading.REQUESTS
    describe(app, requests | dialects.requests_of(names), streams=openai.STREAMS)
    return app


def _watched(service: JudgeService):
    """What goes on beside the requests."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(service.readiness.watch(service.judge))
        yield
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    return lifespan


def _spending(access: Access):
    def spend(request: JudgeRequest, call: Call, outcome: Judgment | BaseException) -> None:
        if isinstance(outcome, Judgment):
            access.spend(call.caller, num_tokens=outcome.usage.input_tokens + outcome.usage.output_tokens)

    return spend


def _state(service: JudgeService, *, records: Records | None) -> APIRouter:
    """What needs no key."""
    routes = APIRouter()

    @routes.get("/health", responses={503: {"description": "Its engine has ended for good."}})
    @routes.head("/health", include_in_schema=False)
    async def health() -> Response:
        """Whether the process is worth keeping: 200, or 503 if its engine has ended for good."""
        ended = service.engine_ended()
        body = {
            "status": "ok" if ended is None else ended,
            "sandbox": service.isolation,
            "running": service.admission.num_running,
            "waiting": service.admission.num_waiting,
            "workers": {
                part: [{"url": each.url, "running": each.num_running, "problem": each.problem} for each in workers]
                for part, workers in service.workers().items()
            },
        }
        return JSONResponse(body, status_code=200 if ended is None else 503)

    @routes.get("/ready", responses={503: {"description": "It cannot; `problem` says why."}})
    @routes.head("/ready", include_in_schema=False)
    async def ready() -> Response:
        """Whether a judgment can be made: 200, or 503 with the reason."""
        problem = "the server is shutting down" if service.draining.has_begun else service.readiness.problem
        if problem is None and records is not None:
            problem = await records.problem()
        status = 200 if problem is None else 503
        return JSONResponse({"ready": problem is None, "problem": problem}, status_code=status)

    return routes
