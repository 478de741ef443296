"""The HTTP interface: `POST /v1/judge`, and what tells callers and load balancers about it."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from tirjudge.protocol import JUDGE_PATH, MODELS_PATH, ModelCard, ModelList
from tirjudge.types import Judgment, Mode
from tirjudge_server.body import parse_request, read_body
from tirjudge_server.connection import while_connected
from tirjudge_server.errors import answer_errors
from tirjudge_server.identity import Identity
from tirjudge_server.openapi import describe_request
from tirjudge_server.service import Service
from tirjudge_server.streaming import EventStream, judgment_events

MAX_BODY_BYTES = 16 * 1024 * 1024
"""The largest request that is read."""


def create_app(service: Service, *, max_body_bytes: int = MAX_BODY_BYTES) -> FastAPI:
    """The application around a judge that is open; closing it is left to whoever opened it."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(service.readiness.watch(service.judge))
        yield
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    app = FastAPI(title="tirjudge", version=version("tirjudge"), lifespan=lifespan)
    app.add_middleware(Identity)
    answer_errors(app)
    describe_request(app)
    created = int(time.time())

    @app.post(JUDGE_PATH, response_model=Judgment)
    async def judge(request: Request) -> Response:
        """Judge responses to a prompt."""
        async with service.until_shutdown():
            body = await read_body(request, max_bytes=max_body_bytes)
        asked = parse_request(body)
        service.check(asked)
        judgment_id = f"jdg_{uuid.uuid4().hex}"
        headers = {"x-judgment-id": judgment_id}
        if asked.stream:
            events = judgment_events(service, asked, judgment_id=judgment_id)
            return EventStream(await anext(events), events, headers=headers)
        with service.admission.enter() as place:
            work = service.judgment(asked, judgment_id=judgment_id, place=place)
            judgment = await while_connected(request.receive, work)
        return Response(judgment.model_dump_json(), headers=headers, media_type="application/json")

    @app.get(MODELS_PATH)
    async def models() -> ModelList:
        """The judge that answers here, in OpenAI's shape."""
        return ModelList(data=[_model_card(service, created=created)])

    @app.get("/health")
    @app.head("/health", include_in_schema=False)
    async def health() -> Response:
        """Whether the process is worth keeping: 200, or 503 if its engine has ended for good."""
        ended = service.engine_ended()
        body = {
            "status": "ok" if ended is None else ended,
            "sandbox": service.isolation,
            "running": service.admission.num_running,
            "waiting": service.admission.num_waiting,
        }
        return JSONResponse(body, status_code=200 if ended is None else 503)

    @app.get("/ready")
    @app.head("/ready", include_in_schema=False)
    async def ready() -> Response:
        """Whether a judgment can be made: 200, or 503 with the reason."""
        problem = service.readiness.problem
        status = 200 if problem is None else 503
        return JSONResponse({"ready": problem is None, "problem": problem}, status_code=status)

    return app


def _model_card(service: Service, *, created: int) -> ModelCard:
    profile = service.judge.profile
    return ModelCard(
        id=profile.name,
        created=created,
        owned_by="tirjudge",
        modes=list(Mode),
        context_tokens=profile.context_tokens,
        rollout_tokens=profile.rollout_tokens,
        group_size=profile.group_size,
        fingerprint=service.fingerprint,
    )
