"""Slots and the queue for them. The program that has waited longest gets the slot that has been idle longest, which has
most likely prepared a process already."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from tirjudge.errors import SandboxBusy, SandboxUnavailable
from tirjudge_sandbox.presets import Preset
from tirjudge_sandbox.slot_process import SlotProcess


class ProgramSlot:
    """Runs one program at a time. It has a process for each preset used so far; at most one of them runs a program."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.processes: dict[Preset, SlotProcess] = {}

    def process_for(self, preset: Preset) -> SlotProcess | None:
        """Return the slot's process for a preset. None: the slot has none that is open."""
        process = self.processes.get(preset)
        return process if process is not None and process.is_open else None

    def hang_up(self) -> None:
        """End all processes and their programs. `close` must follow."""
        for process in self.processes.values():
            process.hang_up()

    def close(self) -> None:
        """Close all processes."""
        for process in self.processes.values():
            process.close()
        self.processes.clear()


class SlotQueue:
    """A fair queue for slots: a returned slot goes directly to the first waiter. (asyncio.Queue lets a later caller
    overtake.)"""

    def __init__(self, slots: Iterable[ProgramSlot], *, max_waiting: int | None = None) -> None:
        """Create a queue in which all slots are idle.

        Args:
            slots: all slots.
            max_waiting: maximum number of waiters. None: no limit.
        """
        self._idle = deque(slots)
        self._num_slots = len(self._idle)
        self._max_waiting = max_waiting
        self._waiting: deque[asyncio.Future[ProgramSlot]] = deque()
        self._all_back: asyncio.Future[None] | None = None
        self._mean_s = 0.0
        self.num_refused = 0
        self.is_closed = False

    @property
    def num_idle(self) -> int:
        """Number of free slots."""
        return len(self._idle)

    @property
    def num_waiting(self) -> int:
        """Number of waiters."""
        return len(self._waiting)

    async def take(self) -> ProgramSlot:
        """Wait for a slot.

        Raises:
            SandboxUnavailable: the queue is closed, or was closed during the wait.
            SandboxBusy: `max_waiting` is reached.
        """
        if self.is_closed:
            raise SandboxUnavailable("the sandbox pool is closed")
        if self._idle:
            return self._idle.popleft()
        if self._max_waiting is not None and len(self._waiting) >= self._max_waiting:
            self.num_refused += 1
            raise SandboxBusy(
                f"the queue is full: {len(self._waiting)} programs wait for {self._num_slots} slots",
                retry_after_s=self.wait_s(),
            )
        future: asyncio.Future[ProgramSlot] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self.give_back(future.result())
            elif future in self._waiting:
                self._waiting.remove(future)
            raise

    def take_idle(self) -> list[ProgramSlot]:
        """Take all slots that are free now, to replace their processes."""
        idle, self._idle = list(self._idle), deque()
        return idle

    def give_back(self, slot: ProgramSlot) -> None:
        """Return a slot to the queue."""
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(slot)
                return
        self._idle.append(slot)
        if self._all_back is not None and len(self._idle) == self._num_slots and not self._all_back.done():
            self._all_back.set_result(None)

    def note_run(self, run_s: float) -> None:
        """Record how many seconds a program held its slot."""
        self._mean_s = run_s if not self._mean_s else 0.9 * self._mean_s + 0.1 * run_s

    def wait_s(self) -> float:
        """Estimate from recent programs in how many seconds all current waiters will have run."""
        return max(0.01, self._mean_s) * (len(self._waiting) + 1) / self._num_slots

    def close(self) -> None:
        """Reject all current and later waiters with SandboxUnavailable."""
        self.is_closed = True
        for future in self._waiting:
            if not future.done():
                future.set_exception(SandboxUnavailable("the sandbox pool was closed"))
        self._waiting.clear()

    async def all_back(self) -> None:
        """Wait until all slots are idle."""
        if len(self._idle) < self._num_slots:
            self._all_back = asyncio.get_running_loop().create_future()
            await self._all_back
