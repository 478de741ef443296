"""The queue: its order, its bounds, and its fairness between callers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirjudge_server import admission as admission_module
from tirjudge_server.admission import Admission, QueueTicket
from tirjudge_server.call import Priority
from tirjudge_web.errors import QueueFull, retry_headers

INTERACTIVE, REWARD, BATCH = Priority


def began_in_turn(admission: Admission, tickets: Sequence[QueueTicket]) -> list[QueueTicket]:
    """End all running tickets until none is left; return the tickets in the order in which they ran."""
    order: list[QueueTicket] = []
    while running := [ticket for ticket in tickets if ticket.began is not None and not ticket.has_ended]:
        order += running
        for ticket in running:
            admission.leave(ticket)
    return order


async def refused(tickets: Sequence[QueueTicket]) -> list[QueueTicket]:
    """The tickets that were replaced by other requests."""
    turns = [asyncio.create_task(ticket.turn()) for ticket in tickets]
    await asyncio.sleep(0)
    found = [ticket for ticket, turn in zip(tickets, turns, strict=True) if turn.done() and turn.exception()]
    for turn in turns:
        turn.cancel()
    return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of the queue: a list with the time in seconds, which tests change."""
    now = [0.0]
    monkeypatch.setattr(admission_module, "perf_counter", lambda: now[0])
    return now


async def test_requests_run_in_order_of_arrival() -> None:
    admission = Admission(max_running=2, max_waiting=10)
    began: list[int] = []

    async def visit(number: int) -> None:
        with admission.enter() as ticket:
            await ticket.turn()
            began.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(visit(number) for number in range(12)))
    assert began == list(range(12))
    assert (admission.num_running, admission.num_waiting) == (0, 0)


async def test_request_beyond_max_waiting_is_refused() -> None:
    admission = Admission(max_running=1, max_waiting=1)
    with ExitStack() as entered:
        entered.enter_context(admission.enter())
        entered.enter_context(admission.enter())
        with pytest.raises(QueueFull, match="1 requests are waiting"), admission.enter():
            pass
        with pytest.raises(QueueFull):
            admission.check()
        assert (admission.num_running, admission.num_waiting) == (1, 1)


async def test_cancelled_waiting_request_does_not_block_others() -> None:
    admission = Admission(max_running=1, max_waiting=2)
    with admission.enter() as first:
        await first.turn()
        with admission.enter():
            with admission.enter() as last:
                assert admission.num_waiting == 2
            assert admission.num_waiting == 1
            assert last.began is None
    assert (admission.num_running, admission.num_waiting) == (0, 0)


async def test_waiting_time_counts_from_arrival(clock: list[float]) -> None:
    admission = Admission(max_running=1, max_waiting=1)
    first, second = admission.take(), admission.take()
    assert await first.turn() == 0
    clock[0] += 5.0
    admission.leave(first)
    assert await second.turn() == 5.0


async def test_urgent_requests_run_first() -> None:
    admission = Admission(max_running=1, max_waiting=10)
    first = admission.take(priority=BATCH)
    waiting = [admission.take(priority=priority) for priority in (BATCH, REWARD, INTERACTIVE, BATCH, INTERACTIVE)]
    order = [ticket.priority for ticket in began_in_turn(admission, [first, *waiting])]
    assert order == [BATCH, INTERACTIVE, INTERACTIVE, REWARD, BATCH, BATCH]


async def test_callers_take_turns() -> None:
    admission = Admission(max_running=1, max_waiting=20)
    tickets = [admission.take(caller=caller) for caller in "aaaaabbc"]
    assert "".join(ticket.caller or "" for ticket in began_in_turn(admission, tickets)) == "abcabaaa"


async def test_caller_with_fewest_running_judgments_goes_first() -> None:
    admission = Admission(max_running=3, max_waiting=20)
    a1, a2, b1 = (admission.take(caller=caller) for caller in "aab")
    next_a, next_b = admission.take(caller="a"), admission.take(caller="b")
    admission.leave(a1)
    # Each caller has one running judgment: the caller that was served less recently goes first.
    assert (next_a.began is None) != (next_b.began is None)
    admission.leave(b1)
    admission.leave(a2)
    assert next_a.began is not None
    assert next_b.began is not None


async def test_limit_of_one_caller_does_not_delay_others() -> None:
    admission = Admission(max_running=4, max_waiting=20, max_running_of={"a": 1}.get)
    tickets = {name: admission.take(caller=name[0]) for name in ("a1", "a2", "b1", "b2")}
    assert [name for name, ticket in tickets.items() if ticket.began is not None] == ["a1", "b1", "b2"]
    admission.leave(tickets["b1"])
    assert tickets["a2"].began is None
    admission.leave(tickets["a1"])
    assert tickets["a2"].began is not None


async def test_urgent_request_replaces_less_urgent_one_in_full_queue() -> None:
    admission = Admission(max_running=1, max_waiting=2)
    _, early, late = (admission.take(priority=BATCH) for _ in range(3))
    urgent = admission.take(priority=INTERACTIVE)
    with pytest.raises(QueueFull):
        await late.turn()
    assert admission.num_waiting == 2
    for ticket in (early, urgent):
        assert ticket.began is None
    with pytest.raises(QueueFull):
        admission.take(priority=BATCH)


async def test_full_queue_accepts_callers_with_fewer_waiting_requests() -> None:
    admission = Admission(max_running=1, max_waiting=4)
    flood = [admission.take(caller="flood") for _ in range(5)]
    admission.take(caller="other")
    admission.take(caller="other")
    assert await refused(flood) == flood[3:]
    # Now each caller has two waiting requests, so no request is replaced.
    with pytest.raises(QueueFull):
        admission.take(caller="other")
    with pytest.raises(QueueFull):
        admission.take(caller="flood")


async def test_hurry_raises_the_priority_of_waiting_tickets_only() -> None:
    admission = Admission(max_running=1, max_waiting=4)
    running = admission.take()
    reward, batch = admission.take(priority=REWARD), admission.take(priority=BATCH)
    admission.hurry(batch, priority=INTERACTIVE)
    admission.hurry(running, priority=INTERACTIVE)
    admission.hurry(reward, priority=BATCH)
    assert began_in_turn(admission, [running, reward, batch]) == [running, batch, reward]


async def test_leaving_the_queue_twice_has_no_effect() -> None:
    admission = Admission(max_running=1, max_waiting=4)
    first, second = admission.take(), admission.take()
    for _ in range(3):
        admission.leave(first)
    assert (admission.num_running, second.began is not None) == (1, True)
    for _ in range(3):
        admission.leave(second)
    assert (admission.num_running, admission.num_waiting) == (0, 0)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(list(Priority)), st.booleans()), max_size=60),
    st.integers(1, 4),
    st.integers(0, 6),
)
def test_bounds_hold_and_every_ticket_runs_for_random_visits(
    visits: list[tuple[str, Priority, bool]], max_running: int, max_waiting: int
) -> None:
    admission = Admission(max_running=max_running, max_waiting=max_waiting, max_running_of={"c": 1}.get)
    tickets: list[QueueTicket] = []
    for caller, priority, leaves in visits:
        try:
            tickets.append(admission.take(caller=caller, priority=priority))
        except QueueFull:
            assert admission.num_waiting == max_waiting
        if leaves and tickets:
            admission.leave(tickets[len(tickets) // 2])
        assert admission.num_running <= max_running
        assert admission.num_waiting <= max_waiting
    began_in_turn(admission, tickets)
    assert (admission.num_running, admission.num_waiting) == (0, 0)


def test_retry_after_grows_with_the_queue(clock: list[float]) -> None:
    admission = Admission(max_running=2, max_waiting=7)
    assert admission.retry_after_s() == 1.0
    for duration_s in (4.0, 8.0):
        ticket = admission.take()
        clock[0] += duration_s
        admission.leave(ticket)
    # No request waits: (0 + 1) / 2 of a mean of 6 s, divided by 2 concurrent judgments.
    assert admission.retry_after_s() == pytest.approx(1.5)
    tickets = [admission.take() for _ in range(5)]
    assert admission.retry_after_s() == pytest.approx(6.0)
    for ticket in tickets:
        admission.leave(ticket)


def test_retry_headers_are_whole_numbers_of_at_least_one_second() -> None:
    assert retry_headers(0.25) == {"retry-after": "1", "retry-after-ms": "250"}
    assert retry_headers(2.001) == {"retry-after": "3", "retry-after-ms": "2001"}
