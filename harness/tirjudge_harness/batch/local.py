"""Judge a batch in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tirjudge.errors import TirjudgeError
from tirjudge_harness.batch.asking import Opening, RowJudge
from tirjudge_harness.batch.inputs import RequestRow
from tirjudge_harness.batch.plan import Piece
from tirjudge_harness.batch.results import Result, result_of
from tirjudge_harness.runner import do_all


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """Executor that judges rows with one judge in this process.

    Args:
        concurrency: maximum number of concurrent judgments.
    """

    concurrency: int

    @asynccontextmanager
    async def opened(self, opening: Opening, *, place: str) -> AsyncIterator[OpenedLocal]:
        """Open the judge. `place`: path of the results, for messages."""
        async with opening() as judge:
            asking = RowJudge(judge, concurrency=self.concurrency, place=place)
            yield OpenedLocal(identity=judge.identity, asking=asking, concurrency=self.concurrency)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedLocal:
    """An open judge in this process."""

    identity: Mapping[str, Any]
    asking: RowJudge
    concurrency: int

    async def judge(self, pieces: Sequence[Piece], *, on_result: Callable[[Result], None]) -> None:
        """Judge the remaining rows.

        Raises:
            InputError: the input cannot be read.
            RunStopped: the judge is unavailable, or raised by `on_result`.
        """

        def done(row: RequestRow, result: Result | TirjudgeError) -> None:
            on_result(result_of(row, result) if isinstance(result, TirjudgeError) else result)

        rows = (row for piece in pieces for row in piece.rows())
        await do_all(rows, do=self.asking.result, most=self.concurrency, on_done=done)
