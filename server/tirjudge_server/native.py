"""`POST /v1/judge`: judges one request. The response is the judgment or a stream of events."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from tirjudge.http.protocol import JUDGE_PATH
from tirjudge.types import JudgeRequest, Judgment
from tirjudge_server.call import call_of
from tirjudge_server.service import JudgeService
from tirjudge_server.streaming import EventStream, judgment_events
from tirjudge_web.body import read_request
from tirjudge_web.connection import while_connected


def router(service: JudgeService, *, max_body_bytes: int) -> APIRouter:
    """The native endpoint.

    Args:
        service: judges the requests.
        max_body_bytes: maximum size of a request body.
    """
    routes = APIRouter()

    @routes.post(JUDGE_PATH, response_model=Judgment)
    async def judge(request: Request) -> Response:
        """Judge responses to a prompt."""
        asked = await read_request(request, JudgeRequest, draining=service.draining, max_bytes=max_body_bytes)
        call = call_of(request, dialect="judge")
        if asked.stream:
            events = judgment_events(service, asked, call=call)
            return EventStream(await anext(events), events)
        judgment = await while_connected(request.receive, service.answer(asked, call=call))
        headers = {"x-judgment-id": judgment.id}
        return Response(judgment.model_dump_json(), headers=headers, media_type="application/json")

    return routes
