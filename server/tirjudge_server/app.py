"""The HTTP interface: `POST /v1/judge`, and what tells callers and load balancers about it."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from tirjudge.protocol import JUDGE_PATH, MODELS_PATH
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
    async def models() -> dict[str, Any]:
        """The judge that answers here, in OpenAI's shape."""
        return {"object": "list", "data": [_model_card(service, created=created)]}

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Whether the process is alive; says nothing about the engine."""
        admission = service.admission
        return {
            "status": "ok",
            "sandbox": service.isolation,
            "running": admission.num_running,
            "waiting": admission.num_waiting,
        }

    @app.get("/ready")
    async def ready() -> Response:
        """Whether a judgment can be made: 200, or 503 with the reason."""
        problem = service.readiness.problem
        status = 200 if problem is None else 503
        return JSONResponse({"ready": problem is None, "problem": problem}, status_code=status)

    return app


def _model_card(service: Service, *, created: int) -> dict[str, Any]:
    profile = service.judge.profile
    return {
        "id": profile.name,
        "object": "model",
        "created": created,
        "owned_by": "tirjudge",
        "modes": list(Mode),
        "context_tokens": profile.context_tokens,
        "rollout_tokens": profile.rollout_tokens,
        "group_size": profile.group_size,
        "fingerprint": service.fingerprint,
    }
