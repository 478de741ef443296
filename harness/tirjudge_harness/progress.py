"""Progress of a run: completed requests, accuracy so far, failures, tokens, cost and remaining time.

On a terminal, the progress is a bar. Otherwise, one line is printed every 30 seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tirjudge.prices import Prices
from tirjudge.types import Judgment

T = TypeVar("T")

SHOWN_FAILURES = 20
"""Maximum number of failures, or problems of one kind, that are printed."""

LINE_S = 30.0
"""Seconds between two progress lines if the console is not a terminal."""


def run_resumable(running: Coroutine[Any, Any, T], *, out: Path | None, console: Console) -> T:
    """Run a coroutine and return its result. After Ctrl-C, print how to resume the run.

    Args:
        running: the run.
        out: output file or folder, for the message. None: nothing is stored.
        console: console for the message.

    Raises:
        typer.Exit: the run was stopped with Ctrl-C; status 130.
    """
    try:
        return asyncio.run(running)
    except KeyboardInterrupt:
        message = "Stopped." if out is None else f"Stopped. Run the same command again to continue {out}."
        console.print(message, markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(130) from None


def print_some(problems: Sequence[str], *, console: Console, rest: str) -> None:
    """Print the first problems and the number of the others. `rest` describes the others, such as "more invalid rows"."""
    for problem in problems[:SHOWN_FAILURES]:
        console.print(problem, markup=False, highlight=False, soft_wrap=True)
    if len(problems) > SHOWN_FAILURES:
        console.print(f"{len(problems) - SHOWN_FAILURES} {rest}", markup=False, highlight=False, soft_wrap=True)


class RunProgress:
    """The progress of one run, as an async context manager.

    Args:
        total: number of requests, including the requests that an earlier run completed.
        console: console for bar or lines.
        title: title of the run, such as the name of a benchmark.
        prices: prices of tokens. None: no cost is shown.

    Attributes:
        num_failed: number of requests that failed in this run.
    """

    def __init__(self, total: int, *, console: Console, title: str = "", prices: Prices | None = None) -> None:
        self.num_failed = 0
        self._total = total
        self._title = title
        self._prices = prices or Prices()
        self._num_done = self._num_kept = 0
        self._credit, self._num_marks = 0.0, 0
        self._tokens = (0, 0)
        self._started = monotonic()
        self._console = console
        self._bar = Progress(
            TextColumn("{task.fields[title]}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total, title=title)
        self._lines: asyncio.Task[None] | None = None

    async def __aenter__(self) -> RunProgress:
        self._bar.start()
        if not self._console.is_terminal:
            self._lines = asyncio.create_task(self._print_lines())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lines is not None:
            self._lines.cancel()
        self._bar.stop()

    def kept(self, *judgments: Judgment) -> None:
        """Count a request that an earlier run completed. Such requests do not count toward the speed
        of this run."""
        self._num_kept += 1
        self._count(judgments)
        self._bar.reset(self._task, completed=self._num_done, description=", ".join(self._notes()))

    def answered(self, *judgments: Judgment) -> None:
        """Count a completed request, which made one or more judgments."""
        self._count(judgments)
        self._show()

    def judged(self, *, input_tokens: int | None, output_tokens: int | None) -> None:
        """Count a completed request by its number of tokens. None: not reported."""
        self._num_done += 1
        read, written = self._tokens
        self._tokens = read + (input_tokens or 0), written + (output_tokens or 0)
        self._show()

    def failed(self, name: str, error: str) -> None:
        """Count a failed request and print its error."""
        self.num_failed += 1
        self._num_done += 1
        if self.num_failed <= SHOWN_FAILURES:
            self._console.print(f"{name}: {error}", markup=False, highlight=False, soft_wrap=True)
        if self.num_failed == SHOWN_FAILURES + 1:
            self._console.print("Further failures are only in the output.")
        self._show()

    def scored(self, credit: float) -> None:
        """Count the score of one comparison, from 0 to 1."""
        self._credit += credit
        self._num_marks += 1

    def line(self) -> str:
        """Return the progress as one line."""
        elapsed_s = monotonic() - self._started
        num_new = self._num_done - self._num_kept
        left_s = (self._total - self._num_done) * elapsed_s / num_new if num_new else None
        parts = [f"{self._title} {self._num_done}/{self._total}".strip(), *self._notes()]
        parts += [] if left_s is None else [f"{timedelta(seconds=round(left_s))} left"]
        return ", ".join(parts)

    def _count(self, judgments: Sequence[Judgment]) -> None:
        self._num_done += 1
        read, written = self._tokens
        read += sum(judgment.usage.input_tokens or 0 for judgment in judgments)
        written += sum(judgment.usage.output_tokens or 0 for judgment in judgments)
        self._tokens = read, written

    def _show(self) -> None:
        self._bar.update(self._task, completed=self._num_done, description=", ".join(self._notes()))

    def _notes(self) -> list[str]:
        read, written = self._tokens
        cost = self._prices.cost_of(input_tokens=read, output_tokens=written)
        notes = [f"accuracy {self._credit / self._num_marks:.1%}"] if self._num_marks else []
        notes += [f"{self.num_failed} failed"] if self.num_failed else []
        notes += [f"{_short(read + written)} tokens"] if read + written else []
        return notes if cost is None else [*notes, f"cost {cost:.2f}"]

    async def _print_lines(self) -> None:
        while True:
            await asyncio.sleep(LINE_S)
            self._console.print(self.line(), markup=False, highlight=False, soft_wrap=True)


def _short(number: int) -> str:
    """Format a number with a suffix: 12,345,678 -> 12.3M."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.1f}{letter}"
    return str(number)
