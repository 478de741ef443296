"""Health checks of a worker."""

import asyncio

import pytest

from tirjudge.http.workers import Worker

NUM_LOOKS = 17
"""Checks until the pause, which doubles from a microsecond, is long enough to end it early."""


@pytest.mark.parametrize("num_switches", range(6))
async def test_checks_end_when_they_are_cancelled_at_the_end_of_a_pause(
    num_switches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause ends and the task is cancelled at the same time, a few switches of the event loop apart."""
    looks = asyncio.Semaphore(0)

    async def look() -> str:
        looks.release()
        return "still down"

    monkeypatch.setattr("tirjudge.http.workers.CHECK_S", (1e-6, 60.0))
    worker = Worker(url="http://127.0.0.1:1")
    worker.leave_out("down", look=look)
    for _ in range(NUM_LOOKS):
        await looks.acquire()
    await asyncio.sleep(0.01)
    worker.hurried.set()
    for _ in range(num_switches):
        await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await worker.stop_checking()
    assert worker.check is not None
    assert worker.check.done()
