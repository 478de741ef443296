from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from tirjudge_server.admission import Admission, QueueFull, retry_headers


async def test_turns_come_in_order_of_arrival() -> None:
    admission = Admission(max_running=2, max_waiting=10)
    began: list[int] = []

    async def visit(number: int) -> None:
        with admission.enter() as place:
            await place.turn()
            began.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(visit(number) for number in range(12)))
    assert began == list(range(12))
    assert (admission.num_running, admission.num_waiting) == (0, 0)


async def test_one_more_than_may_wait_is_turned_away() -> None:
    admission = Admission(max_running=1, max_waiting=1)
    with ExitStack() as entered:
        entered.enter_context(admission.enter())
        entered.enter_context(admission.enter())
        with pytest.raises(QueueFull, match="1 requests are waiting"), admission.enter():
            pass
        assert (admission.num_running, admission.num_waiting) == (1, 1)


async def test_who_gives_up_waiting_holds_nobody_up() -> None:
    admission = Admission(max_running=1, max_waiting=2)
    with admission.enter() as first:
        await first.turn()
        with admission.enter():
            with admission.enter() as last:
                assert admission.num_waiting == 2
            assert admission.num_waiting == 1
            assert last.began is None
    assert (admission.num_running, admission.num_waiting) == (0, 0)


async def test_waiting_is_measured_from_arrival() -> None:
    admission = Admission(max_running=1, max_waiting=1)
    with ExitStack() as running:
        first = running.enter_context(admission.enter())
        assert await first.turn() < 0.01
        with admission.enter() as second:
            await asyncio.sleep(0.02)
            running.close()
            assert await second.turn() >= 0.02


def test_retry_after_grows_with_the_queue() -> None:
    admission = Admission(max_running=2, max_waiting=7)
    assert admission.retry_after_s() == 1.0
    admission._durations.extend([4.0, 8.0])
    # Nobody waits: (0 + 1) / 2 of a mean of 6 s, shared by 2.
    assert admission.retry_after_s() == pytest.approx(1.5)


def test_retry_headers_are_whole_numbers_of_at_least_one_second() -> None:
    assert retry_headers(0.25) == {"retry-after": "1", "retry-after-ms": "250"}
    assert retry_headers(2.001) == {"retry-after": "3", "retry-after-ms": "2001"}
