"""Convert rows to results with a judge, in this process or in a Ray actor."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from tirjudge.errors import TirjudgeError
from tirjudge.http.exchange import RequestRefused
from tirjudge.types import JudgeRequest, Judgment
from tirjudge_harness.batch.inputs import RequestRow
from tirjudge_harness.batch.results import RequestImpossible, Result, result_of
from tirjudge_harness.judges import OpenJudge
from tirjudge_harness.pacing import Pace
from tirjudge_harness.run_store import RunStopped
from tirjudge_harness.runner import Runner

Opening = Callable[[], AbstractAsyncContextManager[OpenJudge]]
"""Function that opens a judge in the calling process. It must be picklable."""


CALLER_ERRORS = ("authentication_error", "permission_error")
"""Error types of a server that reject the caller, not the request."""


class RowJudge:
    """Executor that judges rows with adaptive concurrency.

    Args:
        opened: the judge.
        concurrency: maximum number of concurrent judgments.
        place: path of the results, for messages.
    """

    def __init__(self, opened: OpenJudge, *, concurrency: int, place: str) -> None:
        self._opened = opened
        self._runner = Runner(
            self._judge, identity=opened.identity, store=_NullStore(place), pace=Pace(most=concurrency)
        )

    async def result(self, row: RequestRow) -> Result:
        """Return the result of a row: a judgment, or the error.

        Raises:
            RunStopped: the judge is unavailable.
        """
        try:
            return result_of(row, await self._runner.judge(row.request))
        except RunStopped:
            raise
        except TirjudgeError as error:
            return result_of(row, error)

    async def _judge(self, request: JudgeRequest) -> Judgment:
        try:
            return await self._opened.judge(request)
        except RequestRefused as error:
            if error.problem.type in CALLER_ERRORS:
                raise
            raise RequestImpossible(str(error)) from error
        except TirjudgeError:
            raise
        except ValueError as error:
            raise RequestImpossible(str(error)) from error


class _NullStore:
    """A store that keeps nothing, because the caller writes the results."""

    def __init__(self, place: str) -> None:
        self.place = place

    def find(self, key: str) -> Judgment | None:
        return None

    async def keep(self, key: str, judgment: Judgment) -> None:
        pass

    async def fail(self, key: str, error: str) -> None:
        pass
