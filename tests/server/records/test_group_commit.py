"""Group commit: the thread that runs jobs in transactions."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tirjudge_server.records.group_commit import GroupCommitWriter


@contextmanager
def transaction() -> Iterator[list[int]]:
    yield [1, 2, 3]


class Store:
    """Has a writer, and gives it jobs that hold the store, as the stores of the server do."""

    def __init__(self, name: str) -> None:
        self.writer = GroupCommitWriter[list[int]](name, transaction=transaction)
        self.total = 0

    async def add(self) -> int:
        def work(numbers: list[int]) -> int:
            self.total += sum(numbers)
            return self.total

        return await self.writer.do(work)


def threads_named(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


async def test_the_thread_ends_with_close() -> None:
    store = Store("closed writer")
    assert [await store.add(), await store.add()] == [6, 12]
    assert len(threads_named("closed writer")) == 1
    store.writer.close()
    assert not threads_named("closed writer")


@pytest.mark.slow
async def test_the_thread_of_a_dropped_store_ends(until: Callable[..., Any]) -> None:
    """As in an application whose shutdown code never runs."""
    store = Store("dropped writer")
    assert await store.add() == 6
    del store

    def ended() -> bool:
        gc.collect()
        return not threads_named("dropped writer")

    await until(ended)
