"""The judge requests of one HTTP request, judged concurrently. Each gets a judgment or an exception.

If the client of a protocol does not retry, the server waits while its queue is full or its engine is down. The same HTTP
request always produces the same judge requests, so an automatic retry joins the judgments of the first attempt.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

from tirjudge.concurrency import map_concurrently
from tirjudge.errors import DeadlineExceeded, EngineBusy, SandboxBusy
from tirjudge.http.exchange import EngineRefused
from tirjudge.token_counts import total_of
from tirjudge.types import JudgeRequest, Judgment
from tirjudge_server.call import Call
from tirjudge_server.service import JudgeService
from tirjudge_web.errors import FAILURES, UNAVAILABLE, UNAVAILABLE_RETRY_S, QueueFull
from tirjudge_web.tracebacks import frames_of

logger = logging.getLogger(__name__)

MAX_SIDE_BY_SIDE = 64
"""Maximum concurrent questions of one HTTP request, so that a large request does not fill the queue."""

Question = Callable[[], JudgeRequest]
"""Builds a judge request when it can start, so that a large batch does not hold all its requests in memory."""

Answer = Judgment | Exception
"""A judgment, or the exception that was raised instead."""


class RequestBatch:
    """The questions of one HTTP request.

    Args:
        service: judges the questions.
        call: the call of the HTTP request; each question gets a separate judgment id.
        patience_s: maximum seconds of retries while the queue is full or the engine is down.

    Attributes:
        judgment_ids: ids of the judgments so far.
        input_tokens: input tokens of these judgments. None: not reported by the endpoint.
        output_tokens: output tokens of these judgments. None: not reported by the endpoint.
        cost_usd: price of these judgments in US dollars. None: not known.
    """

    def __init__(self, service: JudgeService, *, call: Call, patience_s: float = 0.0) -> None:
        self.service = service
        self.call = call
        self.judgment_ids: list[str] = []
        self.input_tokens: int | None = 0
        self.output_tokens: int | None = 0
        self.cost_usd: float | None = None
        self._slots = asyncio.Semaphore(MAX_SIDE_BY_SIDE)
        self._starting = asyncio.Lock()
        self._num_asked = 0  # questions that the service is answering
        now = asyncio.get_running_loop().time()
        self._patient_until = now + patience_s
        self._ends_at = None if call.deadline_s is None else now + call.deadline_s

    async def ask(self, question: Question) -> Answer:
        """Judge one question. A failure is returned, so that it does not stop the other questions."""
        async with self._slots:
            # Building and hashing a request takes CPU time: yield to the event loop between two requests.
            async with self._starting:
                await asyncio.sleep(0)
            try:
                judgment = await self._judge_with_retries(question())
            except Exception as error:
                if not isinstance(error, FAILURES):
                    logger.error("%s: a question of this request failed\n%s", self.call.request_id, frames_of(error))
                return error
        self.judgment_ids.append(judgment.id)
        usage = judgment.usage
        self.input_tokens = total_of((self.input_tokens, usage.input_tokens))
        self.output_tokens = total_of((self.output_tokens, usage.output_tokens))
        if usage.cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + usage.cost_usd
        return judgment

    async def ask_all(self, questions: Sequence[Question]) -> list[Answer]:
        """Judge all questions; return their answers in order."""
        return await map_concurrently(map(self.ask, questions), num_at_once=min(len(questions), MAX_SIDE_BY_SIDE))

    async def _judge_with_retries(self, request: JudgeRequest) -> Judgment:
        while True:
            self._num_asked += 1
            try:
                return await self.service.answer(request, call=self._call_for(request))
            except (QueueFull, *UNAVAILABLE) as error:
                is_busy = isinstance(error, QueueFull | SandboxBusy | EngineBusy)
                pause_s = error.retry_after_s if is_busy else UNAVAILABLE_RETRY_S
                if not self._should_retry(error, pause_s=pause_s):
                    raise
            finally:
                self._num_asked -= 1
            await asyncio.sleep(pause_s)

    def _should_retry(self, error: Exception, *, pause_s: float) -> bool:
        """Whether to retry a question. If this request's other questions fill the queue, they will make room."""
        if isinstance(error, EngineRefused):
            return False
        if isinstance(error, QueueFull) and (self.judgment_ids or self._num_asked > 1):
            return True
        return asyncio.get_running_loop().time() + pause_s <= self._patient_until

    def _call_for(self, request: JudgeRequest) -> Call:
        """The call of one question, with the remaining time and with an idempotency key if the HTTP request has one.

        Raises:
            DeadlineExceeded: the deadline has passed.
        """
        key, deadline_s = self.call.idempotency_key, None
        if self._ends_at is not None:
            deadline_s = self._ends_at - asyncio.get_running_loop().time()
            if deadline_s <= 0:
                raise DeadlineExceeded("the deadline of the request passed before this question was judged")
        if key is not None:
            content = hashlib.sha256(f"{key}\0{request.model_dump_json()}".encode()).hexdigest()
            key = f"{key[:200]}/{content[:32]}"
        judgment_id = f"jdg_{uuid.uuid4().hex}"
        return replace(self.call, judgment_id=judgment_id, idempotency_key=key, deadline_s=deadline_s)
