"""`POST /v1/judge/batch`: many judge requests in one HTTP request. Each gets a judgment or an error, in order."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from tirjudge.http.protocol import invalid, problem_of
from tirjudge.http.rewards import BATCH_PATH, JudgmentBatchAnswer, JudgmentBatchItem, JudgmentBatchRequest
from tirjudge.types import JudgeRequest, Judgment
from tirjudge_server.call import Priority, call_of
from tirjudge_server.cost import Cost
from tirjudge_server.failure import FAILED_HEADER, missing_from, missing_in
from tirjudge_server.request_batch import RequestBatch
from tirjudge_server.service import JudgeService
from tirjudge_web.body import read_request
from tirjudge_web.connection import while_connected
from tirjudge_web.errors import Refused, problem_from

MAX_BODY_BYTES = 16 * 1024 * 1024

REQUESTS = {BATCH_PATH: JudgmentBatchRequest}
"""Path -> model of its request body."""


def router(service: JudgeService, *, max_body_bytes: int = MAX_BODY_BYTES) -> APIRouter:
    """The batch endpoint.

    Args:
        service: judges the requests.
        max_body_bytes: maximum size of a request body.
    """
    routes = APIRouter()

    @routes.post(BATCH_PATH, response_model=JudgmentBatchAnswer)
    async def judge_batch(request: Request) -> Response:
        """Judge many requests."""
        asked = await read_request(request, JudgmentBatchRequest, draining=service.draining, max_bytes=max_body_bytes)
        call = call_of(request, dialect="batch", priority=Priority.BATCH, deadline_s=asked.deadline_s)
        return await while_connected(request.receive, _answer(asked, batch=RequestBatch(service, call=call)))

    return routes


async def _answer(asked: JudgmentBatchRequest, *, batch: RequestBatch) -> Response:
    """The response with every request's judgment or error.

    Raises:
        Refused: 413, the total cost exceeds the cost limits.
        QueueFull, EngineUnavailable, ...: every request is valid and every one failed because of the server. The first
            failure is raised.
    """
    requests: list[JudgeRequest | Refused] = []
    for fields in asked.requests:
        requests.append(_parsed(fields))
        await asyncio.sleep(0)
    good = [request for request in requests if isinstance(request, JudgeRequest)]
    service = batch.service
    service.cost_limits.check(sum(map(service.cost_of, good), Cost()), param="requests")
    answered = iter(await batch.ask_all([lambda request=request: request for request in good]))
    answers = [next(answered) if isinstance(request, JudgeRequest) else request for request in requests]
    errors = [answer for answer in answers if isinstance(answer, Exception)]
    if len(errors) == len(answers) and all(
        not isinstance(error, Refused) and missing_from(error).is_ours for error in errors
    ):
        raise errors[0]
    items = [
        JudgmentBatchItem(index=index, judgment=answer, error=None)
        if isinstance(answer, Judgment)
        else JudgmentBatchItem(index=index, judgment=None, error=problem_from(answer)[1])
        for index, answer in enumerate(answers)
    ]
    num_absent = len(errors) + sum(isinstance(a, Judgment) and missing_in(a.verdict) is not None for a in answers)
    headers = {FAILED_HEADER: str(num_absent)} if num_absent else {}
    body = JudgmentBatchAnswer(data=items).model_dump_json()
    return Response(body, headers=headers, media_type="application/json")


def _parsed(fields: dict[str, Any]) -> JudgeRequest | Refused:
    try:
        request = JudgeRequest.model_validate(fields)
    except ValidationError as error:
        return Refused(problem_of(error))
    if request.stream:
        return Refused(
            invalid("stream: true given; requests of a batch cannot stream", param="stream", code="no_stream")
        )
    return request
