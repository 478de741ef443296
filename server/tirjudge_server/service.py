"""One judge, shared by all requests: who may judge when, what ends a judgment early, and whether judging works at all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tirjudge.judge import Judge, OnTurn
from tirjudge.protocol import invalid, shown
from tirjudge.types import JudgeRequest, Judgment
from tirjudge_server.admission import Admission, Place
from tirjudge_server.errors import UNAVAILABLE, Refused, ShuttingDown
from tirjudge_server.readiness import Readiness

logger = logging.getLogger(__name__)


class Service:
    """What the application answers from.

    Args:
        judge: makes the judgments.
        max_concurrency: how many it makes side by side.
        max_queue: how many requests may wait for that.
        fingerprint: a hash of the model, shown at `/v1/models`; None if it is not known.
        isolation: the level at which the sandbox runs, shown at `/health`; None if there is no sandbox.
        engine_ended: says why the engine will never work again, None while it may; asked for `/health`.
    """

    def __init__(
        self,
        judge: Judge,
        *,
        max_concurrency: int = 16,
        max_queue: int = 256,
        fingerprint: str | None = None,
        isolation: str | None = None,
        engine_ended: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.judge = judge
        self.admission = Admission(max_running=max_concurrency, max_waiting=max_queue)
        self.readiness = Readiness()
        self.fingerprint = fingerprint
        self.isolation = isolation
        self.engine_ended = engine_ended
        self._deadlines: set[asyncio.Timeout] = set()
        self._ends_at: float | None = None  # on the loop's clock, once it is shutting down

    def check(self, request: JudgeRequest) -> None:
        """Whether this judge can take the request at all.

        Raises:
            Refused: it asks for another model, or for tools where there are none.
            ShuttingDown: no more requests are taken.
        """
        if self._ends_at is not None:
            raise ShuttingDown
        name = self.judge.profile.name
        if request.model not in (None, name):
            message = f"model: {shown(request.model)} given, this server has {shown(name)}"
            raise Refused(invalid(message, param="model", code="model_not_found"), status=404)
        if self.judge.sandbox is None and request.tools != "off":
            message = f'tools: "{request.tools}" given, but this server runs without a sandbox; "off" would do'
            raise Refused(invalid(message, param="tools", code="no_sandbox"))

    async def judgment(
        self, request: JudgeRequest, *, judgment_id: str, place: Place, on_turn: OnTurn | None = None
    ) -> Judgment:
        """Wait for the turn of `place`, then judge.

        Raises:
            PromptTooLong, EngineUnavailable, CheckpointError, SandboxUnavailable: as `Judge.judge`.
            ShuttingDown: it took longer than a server that is shutting down waits.
        """
        try:
            async with self.until_shutdown():
                queue_s = await place.turn()
                judgment = await self.judge.judge(request, on_turn=on_turn)
        except UNAVAILABLE as error:
            logger.error("%s failed: %s", judgment_id, error)
            self.readiness.doubt(error)
            raise
        logger.info("%s %s %s in %.2f s", judgment_id, request.mode, judgment.verdict.status, judgment.timing.total_s)
        timing = judgment.timing.model_copy(update={"queue_s": queue_s})
        return judgment.model_copy(update={"id": judgment_id, "timing": timing})

    @asynccontextmanager
    async def until_shutdown(self) -> AsyncIterator[None]:
        """Cuts off what is done inside when a server that is shutting down waits no longer.

        Raises:
            ShuttingDown: it was cut off.
        """
        deadline = asyncio.timeout_at(self._ends_at)
        self._deadlines.add(deadline)
        try:
            async with deadline:
                yield
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise ShuttingDown from error
        finally:
            self._deadlines.discard(deadline)

    def drain(self, *, grace_s: float) -> None:
        """Take no more requests, and end those under way after `grace_s`."""
        self._ends_at = asyncio.get_running_loop().time() + grace_s
        for deadline in self._deadlines:
            deadline.reschedule(self._ends_at)
