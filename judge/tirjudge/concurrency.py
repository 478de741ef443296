"""Run coroutines concurrently: all together, a bounded number at a time, or one in the background of a block.

The first failure cancels the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")
U = TypeVar("U")


@asynccontextmanager
async def fail_fast_group() -> AsyncIterator[asyncio.TaskGroup]:
    """Task group whose first failure cancels the other tasks and is raised without an ExceptionGroup around it."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def gather_fail_fast(coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Run all coroutines concurrently and return their results in order. The first failure cancels the others and is
    raised without an ExceptionGroup around it."""
    async with fail_fast_group() as group:
        tasks = [group.create_task(coroutine) for coroutine in coroutines]
    return [task.result() for task in tasks]


async def gather_pair(first: Coroutine[Any, Any, T], second: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """Run two coroutines concurrently and return both results. Errors are those of `gather_fail_fast`."""
    async with fail_fast_group() as group:
        tasks = group.create_task(first), group.create_task(second)
    return tasks[0].result(), tasks[1].result()


async def run_concurrently(
    coroutines: Iterable[Coroutine[Any, Any, object]], *, num_at_once: int, one_by_one: bool = False
) -> None:
    """Run coroutines, at most `num_at_once` concurrently, and discard their results. Arguments and errors are those of
    `map_concurrently`."""
    remaining = iter(coroutines)
    taking = asyncio.Semaphore(1 if one_by_one else num_at_once)

    async def work() -> None:
        while True:
            async with taking:
                await asyncio.sleep(0)
                if (coroutine := next(remaining, None)) is None:
                    return
            await coroutine

    await gather_fail_fast([work() for _ in range(num_at_once)])


async def map_concurrently(
    coroutines: Iterable[Coroutine[Any, Any, T]], *, num_at_once: int, one_by_one: bool = False
) -> list[T]:
    """Run coroutines, at most `num_at_once` concurrently, and return their results in order. The first failure cancels
    the others and is raised without an ExceptionGroup around it.

    Args:
        coroutines: consumed lazily. The event loop runs once before each coroutine is created, so that a long generator
            does not block it.
        num_at_once: maximum number of coroutines in flight.
        one_by_one: whether the event loop also runs between two creations, for coroutines that are slow to create.
    """
    results: dict[int, T] = {}

    async def keep(number: int, coroutine: Coroutine[Any, Any, T]) -> None:
        results[number] = await coroutine

    keeping = (keep(number, coroutine) for number, coroutine in enumerate(coroutines))
    await run_concurrently(keeping, num_at_once=num_at_once, one_by_one=one_by_one)
    return [results[number] for number in range(len(results))]


@asynccontextmanager
async def background(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Run a coroutine in the background of the block. At the end of the block, cancel it and wait for it to end."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
