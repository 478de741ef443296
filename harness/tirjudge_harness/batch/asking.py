"""A row becomes a result, whoever judges and wherever this runs."""

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
"""Opens a judge, in whichever process it is called; can be pickled."""


NOT_THE_ROWS_FAULT = ("authentication_error", "permission_error")
"""What a server refuses whoever asks, rather than what is asked."""


class Asking:
    """Asks a judge about rows, at a pace that it stands.

    Args:
        opened: the judge.
        concurrency: most judgments under way at a time.
        place: where the results will be, for messages.
    """

    def __init__(self, opened: OpenJudge, *, concurrency: int, place: str) -> None:
        self._opened = opened
        self._runner = Runner(self._judge, identity=opened.identity, store=_Nowhere(place), pace=Pace(most=concurrency))

    async def result(self, row: RequestRow) -> Result:
        """The result of a row, a judgment or why there is none.

        Raises:
            RunStopped: the judge is gone.
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
            if error.problem.type in NOT_THE_ROWS_FAULT:
                raise
            raise RequestImpossible(str(error)) from error
        except TirjudgeError:
            raise
        except ValueError as error:
            raise RequestImpossible(str(error)) from error


class _Nowhere:
    """Keeps nothing: results are kept by key, where they are written."""

    def __init__(self, place: str) -> None:
        self.place = place

    def find(self, key: str) -> Judgment | None:
        return None

    async def keep(self, key: str, judgment: Judgment) -> None:
        pass

    async def fail(self, key: str, error: str) -> None:
        pass
