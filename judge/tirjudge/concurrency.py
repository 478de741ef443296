"""Several coroutines at a time: all of them, a bounded number, or one beside a block. The first failure ends all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@asynccontextmanager
async def fail_fast_group() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group for tasks that start others. The first failure cancels the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def gather_fail_fast(coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All of them side by side; the first failure cancels the others and is raised as it is."""
    async with fail_fast_group() as group:
        tasks = [group.create_task(coroutine) for coroutine in coroutines]
    return [task.result() for task in tasks]


async def run_concurrently(
    coroutines: Iterable[Coroutine[Any, Any, object]], *, num_at_once: int, one_by_one: bool = False
) -> None:
    """All of them, so many side by side; what they return is dropped. Arguments and failures as of `map_concurrently`."""
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
    """The results of all, in order, so many side by side. The first failure cancels the others and is raised as it is.

    Args:
        coroutines: each is made when its turn comes, so that this may generate many; before that the event loop goes round.
        num_at_once: how many are under way.
        one_by_one: whether the event loop goes round between any two that begin, because making one takes a while.
    """
    results: dict[int, T] = {}

    async def keep(number: int, coroutine: Coroutine[Any, Any, T]) -> None:
        results[number] = await coroutine

    keeping = (keep(number, coroutine) for number, coroutine in enumerate(coroutines))
    await run_concurrently(keeping, num_at_once=num_at_once, one_by_one=one_by_one)
    return [results[number] for number in range(len(results))]


@asynccontextmanager
async def background(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Run a coroutine beside the block. At the end of the block it is cancelled, and waited for."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
