"""The HTTP interface: run programs in tirjudge's format or in other projects' formats, and report health and
metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import TypeVar

from fastapi import APIRouter, FastAPI, Request, Response, WebSocket
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel

from tirjudge.errors import SandboxBusy, SandboxUnavailable
from tirjudge.http.protocol import invalid, shown
from tirjudge.types import ExecResult, Outcome
from tirjudge_sandbox.metrics import CONTENT_TYPE
from tirjudge_sandbox.sandbox_fusion import NOT_STARTED, PING_PATH, RUN_CODE_PATH, RunCodeRequest, failure, run_code
from tirjudge_sandbox.service import SandboxService
from tirjudge_sandbox.session import serve_session
from tirjudge_sandbox.verl_tool import GET_OBSERVATION_PATH, ObservationRequest, observe
from tirjudge_sandbox.wire import (
    BATCH_PATH,
    EXECUTE_PATH,
    SANDBOX_ERROR,
    SESSION_PATH,
    ExecuteRequest,
    ProgramBatchRequest,
    body_of,
    encode_result,
    to_json,
)
from tirjudge_web.body import parse_body, read_body
from tirjudge_web.body_budget import NUM_LARGEST, BodyBudget
from tirjudge_web.browser_check import AllowedHosts, BrowserCheck
from tirjudge_web.connection import while_connected
from tirjudge_web.errors import Refused, ShuttingDown, answer_errors, problem_from
from tirjudge_web.identity import CallerIdentity
from tirjudge_web.keys import Keys
from tirjudge_web.openapi import BARE, describe_requests
from tirjudge_web.reference import REFERENCE_PATH, add_reference

Model = TypeVar("Model", bound=BaseModel)

MAX_BODY_BYTES = 16 * 1024 * 1024
"""Default maximum size of a request body in bytes."""

OPEN_PATHS = ("/health", "/ready", "/metrics", PING_PATH, REFERENCE_PATH)
"""Paths that need no API key, because they run no program."""

REQUESTS: dict[str, type[BaseModel]] = {
    EXECUTE_PATH: ExecuteRequest,
    BATCH_PATH: ProgramBatchRequest,
    RUN_CODE_PATH: RunCodeRequest,
    GET_OBSERVATION_PATH: ObservationRequest,
}

ERROR_STATUSES = {
    "400": "The request is invalid; `param` names the field.",
    "401": "The API key is missing or invalid.",
    "413": "The request body is too large, or the response could become too large.",
    "429": "The queue is full; `retry-after` says when to retry.",
    "503": "The sandbox failed, or the service is shutting down; `started` says whether the program may have run.",
}


def create_app(
    service: SandboxService,
    *,
    keys: Collection[str] = (),
    max_body_bytes: int = MAX_BODY_BYTES,
    hosts: AllowedHosts | None = None,
) -> FastAPI:
    """Build the application around an open pool. The caller closes the pool.

    Args:
        service: runs the programs.
        keys: API keys that may run programs. Empty: no key is needed.
        max_body_bytes: maximum size of a request body.
        hosts: allowed values of the Host header. None: any.
    """

    app = FastAPI(title="tirjudge sandbox", version=version("tirjudge"), lifespan=partial(_examined, service), **BARE)
    app.add_middleware(BodyBudget, max_bytes=NUM_LARGEST * max_body_bytes)
    app.add_middleware(BrowserCheck, hosts=hosts, has_keys=lambda: bool(keys))
    app.add_middleware(Keys, keys=keys, open_paths=OPEN_PATHS)
    app.add_middleware(CallerIdentity)
    answer_errors(app)
    for kind in (SandboxBusy, SandboxUnavailable, ShuttingDown):
        app.add_exception_handler(kind, _not_run)
    describe_requests(app, REQUESTS, errors=ERROR_STATUSES)
    app.include_router(_programs(service, max_body_bytes=max_body_bytes))
    app.include_router(_status(service))
    add_reference(app)
    return app


@asynccontextmanager
async def _examined(service: SandboxService, app: FastAPI) -> AsyncIterator[None]:
    examining = asyncio.create_task(service.examine())
    yield
    examining.cancel()
    await asyncio.gather(examining, return_exceptions=True)


def _programs(service: SandboxService, *, max_body_bytes: int) -> APIRouter:
    """Routes that run programs, one per request format."""
    router = APIRouter()

    async def read(request: Request, model: type[Model]) -> Model:
        async with service.draining.limit():
            body = await read_body(request, max_bytes=max_body_bytes)
        return parse_body(body, model)

    @router.post(EXECUTE_PATH)
    async def execute(request: Request) -> Response:
        """Run a program."""
        asked = await read(request, ExecuteRequest)
        service.check_answer([asked], param="limits")
        result = await while_connected(request.receive, service.execute_request(asked))
        return _json(await encode_result(result))

    @router.websocket(SESSION_PATH)
    async def session(socket: WebSocket) -> None:
        """Run a program whose function calls the client answers."""
        await serve_session(socket, service=service, max_bytes=max_body_bytes)

    @router.post(BATCH_PATH)
    async def execute_batch(request: Request) -> Response:
        """Run several programs. Results are in the order of the programs. A failed program does not stop the others."""
        asked = await read(request, ProgramBatchRequest)
        service.check_answer(asked.programs, param="programs")
        works = [partial(_execute_item, program, service=service) for program in asked.programs]
        results = await while_connected(request.receive, service.side_by_side(works))
        # The results are streamed one by one, because joining them would hold a second copy in memory.
        return StreamingResponse(_listed(results), media_type="application/json")

    @router.post(RUN_CODE_PATH)
    async def sandbox_fusion(request: Request) -> Response:
        """Run a program given in SandboxFusion's format."""
        asked = await read(request, RunCodeRequest)
        if asked.language != "python":
            message = f'language: expected "python", got {shown(asked.language)}'
            raise Refused(invalid(message, param="language", code="invalid_value"))
        try:
            return _json(to_json(await while_connected(request.receive, run_code(asked, service=service))))
        except (SandboxUnavailable, ShuttingDown) as error:
            if isinstance(error, SandboxBusy) or (isinstance(error, ShuttingDown) and not error.started):
                return _not_run(request, error, status=NOT_STARTED)
            return _json(to_json(failure(error)))

    @router.get(PING_PATH)
    async def ping() -> str:
        """Liveness check of SandboxFusion's clients."""
        return "pong"

    @router.post(GET_OBSERVATION_PATH)
    async def get_observation(request: Request) -> Response:
        """Run the programs in model outputs, in verl-tool's format."""
        asked = await read(request, ObservationRequest)
        return _json(to_json(await while_connected(request.receive, observe(asked, service=service))))

    return router


def _status(service: SandboxService) -> APIRouter:
    """Routes for health, readiness and metrics."""
    router = APIRouter()

    @router.get("/health")
    @router.head("/health", include_in_schema=False)
    async def health() -> Response:
        """State of the service, and the diagnosis made at its start."""
        return JSONResponse(service.health())

    @router.get("/ready")
    @router.head("/ready", include_in_schema=False)
    async def ready() -> Response:
        """Readiness: 200 if a program can run, else 503 with the reason."""
        problem = await service.problem()
        body = {"ready": problem is None, "problem": problem, "level": service.pool.level}
        return JSONResponse(body, status_code=200 if problem is None else 503)

    @router.get("/metrics")
    async def metrics() -> Response:
        """Metrics in the Prometheus text format."""
        return Response(service.metrics.text(), headers={"content-type": CONTENT_TYPE})

    return router


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")


async def _listed(results: list[bytes]) -> AsyncIterator[bytes]:
    yield b'{"results":['
    for number, result in enumerate(results):
        yield result if number == 0 else b"," + result
    yield b"]}"


async def _execute_item(asked: ExecuteRequest, *, service: SandboxService) -> bytes:
    """Run one program of a batch and return its result as JSON.

    The result is encoded immediately, so that a batch holds one copy of each result in memory. A failure is returned in
    the form of a result, so that all items have one form."""
    try:
        return await encode_result(await service.execute_request(asked))
    except Refused as error:
        return await encode_result(ExecResult(outcome=Outcome.REFUSED, error=str(error), level=service.pool.level))
    except SandboxUnavailable as error:
        body = body_of(ExecResult(outcome=Outcome.REFUSED, error=str(error), level=service.pool.level))
        return to_json(body | {"outcome": SANDBOX_ERROR, "started": not isinstance(error, SandboxBusy)})


def _not_run(request: Request, error: Exception, *, status: int | None = None) -> Response:
    """Response for a program that was not run, or was lost, for a reason outside the program."""
    own_status, problem, headers = problem_from(error)
    started = error.started if isinstance(error, ShuttingDown) else not isinstance(error, SandboxBusy)
    body = {"error": problem.model_dump(), "outcome": SANDBOX_ERROR, "started": started}
    return Response(to_json(body), status_code=status or own_status, headers=headers, media_type="application/json")
