"""All that one HTTP request asks of the judge, side by side: each question gets its judgment, or why there is none.

A full queue or an engine that is down is waited for, where the client would not come back by itself. Questions are put
in the same words every time, so that a client's automatic retry joins the judgments that its first try began.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

from tirjudge.concurrency import map_concurrently
from tirjudge.errors import DeadlineExceeded, SandboxBusy
from tirjudge.types import JudgeRequest, Judgment
from tirjudge_server.call import Call
from tirjudge_server.service import JudgeService
from tirjudge_web.errors import FAILURES, UNAVAILABLE, UNAVAILABLE_RETRY_S, QueueFull
from tirjudge_web.tracebacks import frames_of

logger = logging.getLogger(__name__)

MAX_SIDE_BY_SIDE = 64
"""Most questions of one request under way at a time, so that a large one does not fill the queue."""

Question = Callable[[], JudgeRequest]
"""Makes a request, once there is a place for it: a large batch never has more of them than are judged."""

Answer = Judgment | Exception
"""A judgment, or what was raised instead of one."""


class RequestBatch:
    """The questions of one request.

    Args:
        service: answers them.
        call: of the request; each question gets a judgment id of its own.
        patience_s: how long a question that met a full queue or a broken engine is put again.

    Attributes:
        judgment_ids: of what was judged so far.
        usage: input and output tokens of that.
    """

    def __init__(self, service: JudgeService, *, call: Call, patience_s: float = 0.0) -> None:
        self.service = service
        self.call = call
        self.judgment_ids: list[str] = []
        self.input_tokens = 0
        self.output_tokens = 0
        self._places = asyncio.Semaphore(MAX_SIDE_BY_SIDE)
        self._beginning = asyncio.Lock()
        self._num_asked = 0  # questions that the service has now
        now = asyncio.get_running_loop().time()
        self._patient_until = now + patience_s
        self._ends_at = None if call.deadline_s is None else now + call.deadline_s

    async def ask(self, question: Question) -> Answer:
        """The answer to one question; a failure is handed back and does not stop the others."""
        async with self._places:
            # One question at a time is made, and between two the loop goes round: making and hashing takes a while.
            async with self._beginning:
                await asyncio.sleep(0)
            try:
                judgment = await self._patiently(question())
            except Exception as error:
                if not isinstance(error, FAILURES):
                    logger.error("%s: a question of this request failed\n%s", self.call.request_id, frames_of(error))
                return error
        self.judgment_ids.append(judgment.id)
        self.input_tokens += judgment.usage.input_tokens
        self.output_tokens += judgment.usage.output_tokens
        return judgment

    async def ask_all(self, questions: Sequence[Question]) -> list[Answer]:
        """The answers, in order."""
        return await map_concurrently(map(self.ask, questions), num_at_once=min(len(questions), MAX_SIDE_BY_SIDE))

    async def _patiently(self, request: JudgeRequest) -> Judgment:
        while True:
            self._num_asked += 1
            try:
                return await self.service.answer(request, call=self._call_for(request))
            except (QueueFull, *UNAVAILABLE) as error:
                pause_s = error.retry_after_s if isinstance(error, QueueFull | SandboxBusy) else UNAVAILABLE_RETRY_S
                if not self._waits(error, pause_s=pause_s):
                    raise
            finally:
                self._num_asked -= 1
            await asyncio.sleep(pause_s)

    def _waits(self, error: Exception, *, pause_s: float) -> bool:
        """Whether a question is put again. Where the request's own questions fill the queue, they make room, too."""
        if isinstance(error, QueueFull) and (self.judgment_ids or self._num_asked > 1):
            return True
        return asyncio.get_running_loop().time() + pause_s <= self._patient_until

    def _call_for(self, request: JudgeRequest) -> Call:
        """The call of one question: what is left of the time, and a key of its own if the request came with one.

        Raises:
            DeadlineExceeded: nothing is left.
        """
        key, deadline_s = self.call.idempotency_key, None
        if self._ends_at is not None:
            deadline_s = self._ends_at - asyncio.get_running_loop().time()
            if deadline_s <= 0:
                raise DeadlineExceeded("the time of the request was up before this question could be put")
        if key is not None:
            content = hashlib.sha256(f"{key}\0{request.model_dump_json()}".encode()).hexdigest()
            key = f"{key[:200]}/{content[:32]}"
        judgment_id = f"jdg_{uuid.uuid4().hex}"
        return replace(self.call, judgment_id=judgment_id, idempotency_key=key, deadline_s=deadline_s)
