"""`/v1/fine_tuning/alpha/graders/run` and `/validate`: run or check a grader."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from tirjudge_server.call import call_of
from tirjudge_server.chat_models import NO_MODELS, ChatModels
from tirjudge_server.openai.bodies import GraderRun, ValidGrader
from tirjudge_server.openai.graders import RunRequest, ValidateRequest
from tirjudge_server.openai.grading import run_grader
from tirjudge_server.openai.wire import receive
from tirjudge_server.service import JudgeService
from tirjudge_web.connection import while_connected
from tirjudge_web.openapi import answers_with

GRADERS_PATH = "/v1/fine_tuning/alpha/graders"


def router(service: JudgeService, *, max_body_bytes: int, models: ChatModels = NO_MODELS) -> APIRouter:
    """Return the endpoints.

    Args:
        service: Judges and runs programs.
        models: Models besides the judge, for model graders.
        max_body_bytes: Maximum size of a request body. A larger one is refused with 413.
    """
    routes = APIRouter()

    @routes.post(GRADERS_PATH + "/run", responses=answers_with(GraderRun))
    async def run(request: Request) -> Response:
        """Grade one sample."""
        body = await receive(request, RunRequest, service=service, max_bytes=max_body_bytes)
        service.draining.check()
        call = call_of(request, dialect="openai.graders")
        work = run_grader(
            service, body.grader, sample=body.model_sample, item=body.item, call=call, models=models.fresh()
        )
        return JSONResponse(await while_connected(request.receive, work))

    @routes.post(GRADERS_PATH + "/validate", responses=answers_with(ValidGrader))
    async def validate(request: Request) -> Response:
        """Check a grader without running it."""
        body = await receive(request, ValidateRequest, service=service, max_bytes=max_body_bytes)
        return JSONResponse({"grader": body.grader.model_dump(mode="json", exclude_none=True)})

    return routes
