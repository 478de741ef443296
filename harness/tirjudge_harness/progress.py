"""How a run goes, while it does: a bar, the accuracy so far, what failed, and how long it will take."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tirjudge_harness.items import Task
from tirjudge_harness.journal import Journal, Record

SHOWN_FAILURES = 20
"""How many failed items are named on the console; the output file has them all."""


class RunProgress:
    """The progress of one run; use it as `with`.

    Args:
        tasks: of the run, the finished ones included.
        journal: has the finished ones.
        console: where the bar is drawn; nothing is, if it is no terminal.

    Attributes:
        num_new: items that this run judged.
        num_failed: items that it failed to judge.
    """

    def __init__(self, tasks: Sequence[Task], *, journal: Journal, console: Console) -> None:
        done = [journal.records[task.item.id] for task in tasks if task.item.id in journal.records]
        self.num_new = self.num_failed = 0
        self._correct = [record.correct for record in done if record.correct is not None]
        self._bar = Progress(
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(self._description(), total=len(tasks), completed=len(done))

    def __enter__(self) -> RunProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def show(self, record: Record) -> None:
        """One more item is finished."""
        if record.error is None:
            self.num_new += 1
        else:
            self.num_failed += 1
            self._name_failure(record)
        if record.correct is not None:
            self._correct.append(record.correct)
        self._bar.update(self._task, advance=1, description=self._description())

    def _name_failure(self, record: Record) -> None:
        if self.num_failed <= SHOWN_FAILURES:
            self._bar.console.print(f"{record.id}: {record.error}", markup=False, highlight=False, soft_wrap=True)
        if self.num_failed == SHOWN_FAILURES:
            self._bar.console.print("More failures are in the output file alone.")

    def _description(self) -> str:
        parts = [f"accuracy {sum(self._correct) / len(self._correct):.1%}"] if self._correct else []
        parts += [f"{self.num_failed} failed"] if self.num_failed else []
        return ", ".join(parts)
