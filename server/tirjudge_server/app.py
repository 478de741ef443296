"""The HTTP application: its endpoints with their scopes, and the health endpoints for load balancers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Depends, FastAPI, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from tirjudge.concurrency import background
from tirjudge.model import Model
from tirjudge_server import batch, dialects, native, reloading, reranking, rewards
from tirjudge_server.access import Access, needs
from tirjudge_server.chat_models import NO_MODELS, ChatModels
from tirjudge_server.dialects import DIALECTS, DialectSettings
from tirjudge_server.evals.store import EvalStore
from tirjudge_server.examples import EXAMPLES
from tirjudge_server.health import Health, ReadyState
from tirjudge_server.openai import routes as openai
from tirjudge_server.openai.filestore import FileQuota
from tirjudge_server.openapi import Tag, describe
from tirjudge_server.records import endpoints
from tirjudge_server.records.store import Records
from tirjudge_server.service import JudgeService
from tirjudge_server.telemetry.instrumenting import instrument_app
from tirjudge_server.telemetry.metrics import ServerMetrics
from tirjudge_server.ui import PageSite, entrance, is_page, judgments, playground
from tirjudge_server.ui import evals as eval_pages
from tirjudge_server.ui import runs as run_pages
from tirjudge_web.body_budget import NUM_LARGEST, BodyBudget
from tirjudge_web.browser_check import AllowedHosts, BrowserCheck
from tirjudge_web.errors import answer_errors
from tirjudge_web.identity import CallerIdentity
from tirjudge_web.openapi import BARE
from tirjudge_web.reference import add_reference

if TYPE_CHECKING:  # needs OpenTelemetry
    from tirjudge_server.telemetry.tracing import Tracing

MAX_BODY_BYTES = 16 * 1024 * 1024
"""Default maximum size of a request body."""


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
    chat_models: ChatModels = NO_MODELS,
    model: Model | None = None,
    metrics: ServerMetrics | None = None,
    tracing: Tracing | None = None,
    hosts: AllowedHosts | None = None,
    runs: Path | None = None,
    public_url: str | None = None,
) -> FastAPI:
    """Create the application around an open judge. The caller closes the judge and the records.

    Args:
        service: judges the requests.
        max_body_bytes: maximum size of a request body.
        names: names of the dialects to serve.
        settings: settings of the dialects; None: the defaults.
        access: API keys and their limits; None: callers need no key.
        records: stored judgments, for the endpoints that read them; None: these endpoints do not exist.
        files: folder of files, batches and evals; None: their endpoints do not exist.
        quota: maximum files, batches and runs of evals of one caller.
        chat_models: models besides the judge, for evals and graders.
        model: the model of `service`, for the reload endpoint, which also needs `access`; None: no such endpoint.
        metrics: metrics of `service`; None: metrics of requests and judgments only, without engine and sandbox.
        tracing: traces requests and judgments; None: no traces.
        hosts: host names by which callers may reach the server; None: any.
        runs: folder of benchmark runs to show on pages; None: no such pages.
        public_url: URL at which clients reach the server, without a slash at the end; None: that of each request.

    Raises:
        ValueError: a dialect does not exist.
    """
    settings = replace(settings or DialectSettings(), max_body_bytes=max_body_bytes)
    metrics = metrics or ServerMetrics(service, fallbacks=settings.fallbacks)
    app = FastAPI(title="tirjudge", version=version("tirjudge"), lifespan=_watching(service), **BARE)
    app.add_middleware(BodyBudget, max_bytes=NUM_LARGEST * max_body_bytes)
    app.add_middleware(
        BrowserCheck, hosts=hosts, has_keys=lambda: access is not None and access.is_guarded, is_page=is_page
    )
    instrument_app(app, service=service, metrics=metrics, tracing=tracing)
    app.add_middleware(CallerIdentity)
    answer_errors(app)
    app.state.access = access
    if access is not None:
        service.on_end.append(access.on_end)
    eval_store = None if files is None else openai.open_eval_store(files, quota=quota, records=records)
    judging = partial(_judging, service, max_body_bytes=max_body_bytes, models=chat_models, records=records)
    groups = [*judging(files=files, quota=quota, eval_store=eval_store)]
    groups += _rewarding(service, names=names, settings=settings)
    if records is not None:
        groups.append(("read", Tag.RECORDS, endpoints.router(service, records=records), {}))
    if access is not None and model is not None:
        routes = reloading.router(service, model=model, records=records)
        groups.append(("admin", Tag.ADMIN, routes, reloading.REQUESTS))
    for scope, tag, routes, _ in groups:
        app.include_router(routes, dependencies=[Depends(needs(scope))], tags=[tag])
    app.include_router(_state(service, records=records))
    site = PageSite(access=access, public_url=public_url)
    _add_pages(app, site, service, records=records, runs=runs, max_body_bytes=max_body_bytes)
    if files is not None and eval_store is not None:
        path = None if records is None else judgments.PATH
        app.include_router(eval_pages.router(site, store=eval_store, folder=files / "evals", judgments_path=path))
    requests = {path: model for *_, posted in groups for path, model in posted.items()}
    _describe(app, service, requests, names=names)
    return app


def _describe(
    app: FastAPI, service: JudgeService, requests: Mapping[Any, type[BaseModel]], *, names: Collection[str]
) -> None:
    """Add the OpenAPI description and its page. `requests`: path -> model of its request body. `names`: dialects."""
    functions = [function.name for function in service.judge.functions]
    describe(
        app,
        requests,
        examples=_examples(names),
        streams=openai.STREAMS,
        functions=functions,
        has_checks=service.judge.checks is not None,
        takes_evidence=service.judge.takes_evidence,
    )
    add_reference(app)


def _add_pages(
    app: FastAPI,
    site: PageSite,
    service: JudgeService,
    *,
    records: Records | None,
    runs: Path | None,
    max_body_bytes: int,
) -> None:
    """Add the pages for people, except those of evals."""
    records_path = None if records is None else judgments.PATH
    app.include_router(
        playground.router(site, service=service, max_body_bytes=max_body_bytes, records_path=records_path)
    )
    if records is not None:
        app.include_router(judgments.router(site, service=service, records=records))
    app.include_router(entrance.router(site))
    if runs is not None:
        app.include_router(run_pages.router(site, folder=runs))


def _examples(names: Collection[str]) -> dict[str, dict[str, Any]]:
    """Path -> title of an example -> body. A dialect may share the path of a native endpoint."""
    foreign = dialects.examples_of(names)
    return {path: {**EXAMPLES.get(path, {}), **foreign.get(path, {})} for path in (*EXAMPLES, *foreign)}


Endpoints = tuple[str, Tag, APIRouter, Mapping[Any, type[BaseModel]]]
"""The scope that a key needs for a group of endpoints, their tag, their routes, and path -> model of the request body."""


def _judging(
    service: JudgeService,
    *,
    max_body_bytes: int,
    files: Path | None,
    quota: FileQuota,
    models: ChatModels,
    records: Records | None,
    eval_store: EvalStore | None,
) -> Iterator[Endpoints]:
    yield "judge", Tag.JUDGE, native.router(service, max_body_bytes=max_body_bytes), {}
    yield "judge", Tag.JUDGE, batch.router(service, max_body_bytes=max_body_bytes), batch.REQUESTS
    routes = openai.router(service, max_body_bytes=max_body_bytes, models=models)
    yield "judge", Tag.OPENAI, routes, openai.REQUESTS
    if files is not None:
        routes = openai.batch_router(
            service,
            folder=files,
            max_body_bytes=max_body_bytes,
            quota=quota,
            models=models,
            records=records,
            eval_store=eval_store,
        )
        yield "judge", Tag.FILES, routes, openai.BATCH_REQUESTS


def _rewarding(service: JudgeService, *, names: Collection[str], settings: DialectSettings) -> Iterator[Endpoints]:
    """The reward endpoints and the dialects.

    Raises:
        ValueError: a dialect does not exist.
    """
    routes = rewards.router(service, max_body_bytes=settings.max_body_bytes, fallbacks=settings.fallbacks)
    yield "reward", Tag.REWARDS, routes, {**rewards.REQUESTS, **reranking.REQUESTS, **dialects.requests_of(names)}
    reranking_routes, *others = dialects.routers(service, names=names, settings=settings)
    yield "reward", Tag.REWARDS, reranking_routes, {}
    for routes in others:
        yield "reward", Tag.DIALECTS, routes, {}


def _watching(service: JudgeService):
    """The lifespan of the application: make trial judgments while the application runs."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with background(service.readiness.watch(service.judge)):
            yield

    return lifespan


def _state(service: JudgeService, *, records: Records | None) -> APIRouter:
    """The health endpoints, which need no key."""
    routes = APIRouter()

    @routes.get(
        "/health",
        responses={200: {"model": Health}, 503: {"description": "The engine has ended; restart the process."}},
    )
    @routes.head("/health", include_in_schema=False)
    async def health() -> Response:
        """Liveness: 200, or 503 if the engine has ended and the process must be restarted."""
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

    @routes.get(
        "/ready",
        responses={
            200: {"model": ReadyState},
            503: {"description": "The server cannot judge now; `problem` says why.", "model": ReadyState},
        },
    )
    @routes.head("/ready", include_in_schema=False)
    async def ready() -> Response:
        """Readiness: 200 if the server can judge now, or 503 with the reason."""
        problem = "the server is shutting down" if service.draining.has_begun else service.readiness.problem
        if problem is None and records is not None:
            problem = await records.problem()
        status = 200 if problem is None else 503
        return JSONResponse({"ready": problem is None, "problem": problem}, status_code=status)

    return routes
