"""Judging a batch in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tirjudge.errors import TirjudgeError
from tirjudge_harness.batch.asking import Asking, Opening
from tirjudge_harness.batch.inputs import RequestRow
from tirjudge_harness.batch.plan import Piece
from tirjudge_harness.batch.results import Result, result_of
from tirjudge_harness.runner import do_all


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """One judge, here.

    Args:
        concurrency: most judgments under way at a time.
    """

    concurrency: int

    @asynccontextmanager
    async def opened(self, opening: Opening, *, place: str) -> AsyncIterator[OpenedHere]:
        """Open the judge; `place` is where the results will be, for messages."""
        async with opening() as judge:
            asking = Asking(judge, concurrency=self.concurrency, place=place)
            yield OpenedHere(identity=judge.identity, asking=asking, concurrency=self.concurrency)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedHere:
    identity: Mapping[str, Any]
    asking: Asking
    concurrency: int

    async def judge(self, pieces: Sequence[Piece], *, on_result: Callable[[Result], None]) -> None:
        """Judge all that is left of these pieces.

        Raises:
            InputError: the input cannot be read any more.
            RunStopped: the judge is gone, or `on_result` raised it.
        """

        def done(row: RequestRow, result: Result | TirjudgeError) -> None:
            on_result(result_of(row, result) if isinstance(result, TirjudgeError) else result)

        rows = (row for piece in pieces for row in piece.rows())
        await do_all(rows, do=self.asking.result, most=self.concurrency, on_done=done)
