"""Judges many items side by side and writes each down as it is finished."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence

from tirjudge.errors import TirjudgeError
from tirjudge.types import JudgeRequest, Judgment
from tirjudge_harness.items import Task
from tirjudge_harness.journal import Journal, Record

JudgeOne = Callable[[JudgeRequest], Awaitable[Judgment]]
"""A judge in this process, or a client of one elsewhere."""


async def run_tasks(
    tasks: Sequence[Task],
    *,
    judge: JudgeOne,
    journal: Journal,
    concurrency: int,
    on_record: Callable[[Record], None],
) -> None:
    """Judge what the journal does not have yet.

    An item that we fail to judge is recorded with its error and stops no other; the next run tries it again.

    Args:
        tasks: in the order in which they are begun.
        judge: makes one judgment.
        journal: is told of each.
        concurrency: how many are under way at a time.
        on_record: told of each as well, to show it.
    """
    remaining = iter([task for task in tasks if task.item.id not in journal.records])
    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(_work(remaining, judge=judge, journal=journal, on_record=on_record))


async def _work(
    remaining: Iterator[Task], *, judge: JudgeOne, journal: Journal, on_record: Callable[[Record], None]
) -> None:
    for task in remaining:
        try:
            judgment = await judge(task.request)
        except TirjudgeError as error:
            record = journal.append(task.item, error=f"{type(error).__name__}: {error}")
        else:
            record = journal.append(task.item, judgment=judgment)
        on_record(record)
