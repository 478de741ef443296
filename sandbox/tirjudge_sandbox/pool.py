"""`SandboxPool`: programs in, `ExecResult`s out.

    async with SandboxPool(slots=4) as pool:
        result = await pool.run("print(response_a.count('e'))", bindings={"response_a": "three trees"})

A program's error is data. When the sandbox itself fails, `run` raises; a program that certainly never started is first
tried once more.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import keyword
import os
import time
import types
import warnings
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tirjudge.errors import SandboxUnavailable
from tirjudge.types import ExecResult, Outcome
from tirjudge_sandbox.fork_server import ForkServer, LevelUnavailable, Slot, SlotLost, start_fork_server
from tirjudge_sandbox.levels import Level
from tirjudge_sandbox.limits import Limits
from tirjudge_sandbox.outcome import result_of
from tirjudge_sandbox.protocol import Descriptors, Ending, Job
from tirjudge_sandbox.remedies import remedy
from tirjudge_sandbox.slots import SlotQueue

_NO_BINDINGS: Mapping[str, str | Mapping[str, str]] = types.MappingProxyType({})
_CANARY_CODE, _CANARY_OUTPUT = "print(6 * 7)", "42\n"
_HARMLESS = frozenset({Outcome.OK, Outcome.ERROR, Outcome.REFUSED})
"""After any other outcome the slot is tried out before its next program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStats:
    """Where a pool stands, for health pages and metrics."""

    level: str
    """Empty before the pool has started."""
    num_slots: int
    num_idle: int
    """Slots that wait for a program."""
    num_waiting: int
    """Programs that wait for a slot."""
    num_programs: int
    """Programs that ran since the start, whatever their outcome."""
    num_lost: int
    """Slots that died since the start."""
    num_restarts: int
    """Times that the fork-server was started again."""


class SandboxPool:
    """Runs strangers' Python, one process a program, at a level of isolation that never silently drops.

    Belongs to the event loop, and the thread, that it was started in: when that thread ends, the kernel ends the rest.
    """

    def __init__(
        self,
        *,
        slots: int | None = None,
        limits: Limits | None = None,
        level: Level | str | None = None,
        min_level: Level | str = Level.LANDLOCK,
        allow_unsafe: bool = False,
    ) -> None:
        """Starts nothing yet.

        Args:
            slots: programs at a time; None: one a processor.
            limits: of each program; None: the defaults.
            level: to run at; None: the best that works here.
            min_level: below which the pool refuses to start.
            allow_unsafe: run without isolation, with a warning, where nothing better works.

        Raises:
            ValueError: no slots, a level there is none of, or `unsafe` without `allow_unsafe`.
        """
        num_slots = len(os.sched_getaffinity(0)) if slots is None else slots
        if num_slots < 1:
            raise ValueError(f"slots: {slots} given, at least 1 is needed")
        self.limits = limits or Limits()
        self._levels = _candidates(
            None if level is None else Level(level), min_level=Level(min_level), allow_unsafe=allow_unsafe
        )
        self._slots = [Slot(number) for number in range(num_slots)]
        self._queue = SlotQueue(self._slots)
        self._server: ForkServer | None = None
        self._level: Level | None = None
        self._repair = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()
        self._num_programs = self._num_lost = self._num_restarts = 0

    @property
    def level(self) -> str:
        """The isolation that programs really run under; empty before the start."""
        return self._level or ""

    @property
    def is_ready(self) -> bool:
        """Whether a program given now would run: started, not closed, fork-server alive."""
        return self._server is not None and self._server.is_alive

    def stats(self) -> PoolStats:
        return PoolStats(
            level=self.level,
            num_slots=len(self._slots),
            num_idle=self._queue.num_idle,
            num_waiting=self._queue.num_waiting,
            num_programs=self._num_programs,
            num_lost=self._num_lost,
            num_restarts=self._num_restarts,
        )

    async def __aenter__(self) -> SandboxPool:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Starts the fork-server at the best level that works, and proves it by running a program.

        Raises:
            SandboxUnavailable: no level that is allowed works; says why, and what would change that.
        """
        failures: list[str] = []
        for level in self._levels:
            try:
                await self._start_at(level)
            except LevelUnavailable as error:
                failures.append(f"{level}: {error}. {remedy(error.step, reason=str(error))}")
                continue
            if not level.isolates:
                warnings.warn("programs run without isolation (level unsafe)", RuntimeWarning, stacklevel=2)
            return
        raise SandboxUnavailable("no isolation that is allowed works here:\n" + "\n".join(failures))

    async def close(self) -> None:
        """Kills what runs (its `run` raises SandboxUnavailable) and leaves no process behind."""
        self._queue.close()
        for slot in self._slots:
            slot.hang_up()
        await self._queue.all_back()
        await asyncio.gather(*self._background)
        for slot in self._slots:
            slot.close()
        if self._server is not None:
            await self._server.stop()
            self._server = None

    async def run(self, code: str, *, bindings: Mapping[str, str | Mapping[str, str]] = _NO_BINDINGS) -> ExecResult:
        """One program, in a new process, with `bindings` set as variables. Cancelling kills it.

        Args:
            code: Python source.
            bindings: name -> text, or name -> (label -> text); never parsed as code.

        Raises:
            SandboxUnavailable: it could not be run, or was lost, for a reason that is not its own.
            ValueError: a binding whose name no variable can have.
        """
        for name in bindings:
            if not name.isidentifier() or keyword.iskeyword(name):
                raise ValueError(f"bindings: {name!r} given, a Python variable name would do")
        if len(code.encode("utf-8", "surrogatepass")) > self.limits.source_bytes:
            error = f"ProgramTooLong: more than {self.limits.source_bytes} bytes"
            return ExecResult(outcome=Outcome.REFUSED, error=error, level=self.level)
        queued = time.monotonic()
        slot = await self._queue.take()
        return await self._run_in(slot, code, bindings=bindings, queue_s=time.monotonic() - queued)

    # ---------------------------------------------------------------------------------------------------- one program

    async def _run_in(
        self, slot: Slot, code: str, *, bindings: Mapping[str, str | Mapping[str, str]], queue_s: float
    ) -> ExecResult:
        """Runs a program in a slot that is ours, and gives the slot back."""
        try:
            result = await self._execute(slot, _payload(code, bindings=bindings), queue_s=queue_s)
        except asyncio.CancelledError:
            self._in_background(self._recover(slot))
            raise
        except BaseException:
            self._queue.give_back(slot)
            raise
        if result.outcome in _HARMLESS:
            self._queue.give_back(slot)
        else:
            self._in_background(self._recover(slot))
        return result

    async def _execute(self, slot: Slot, payload: bytes, *, queue_s: float) -> ExecResult:
        with _memory_files(payload) as descriptors:
            ending = await self._end_of(slot, descriptors)
            self._num_programs += 1
            return result_of(
                ending,
                stdout=descriptors.stdout,
                stderr=descriptors.stderr,
                limits=self.limits,
                level=Level(self.level),
                queue_s=queue_s,
            )

    async def _end_of(self, slot: Slot, descriptors: Descriptors) -> Ending:
        """Runs the program; if the slot is lost before it started, once more in a new one."""
        retried = False
        while True:
            try:
                await self._open(slot)
                return await slot.run(_job(self.limits), descriptors)
            except SlotLost as lost:
                slot.kill()
                self._num_lost += 1
                if lost.started or retried or self._queue.is_closed:
                    raise SandboxUnavailable(f"the program was lost: {lost}") from lost
                retried = True

    # --------------------------------------------------------------------------------------------------------- health

    async def _recover(self, slot: Slot) -> None:
        """Ends what still runs in a slot, sees whether it is fit for another program, and gives it back."""
        try:
            if slot.is_running:
                await slot.cancel()
            if not self._queue.is_closed and not await self._runs_canary(slot):
                raise SlotLost("it failed its canary", started=True)
        except SlotLost:
            self._num_lost += 1
            slot.kill()
        finally:
            self._queue.give_back(slot)

    async def _runs_canary(self, slot: Slot) -> bool:
        with _memory_files(_payload(_CANARY_CODE, bindings=_NO_BINDINGS)) as descriptors:
            ending = await slot.run(_job(self.limits), descriptors)
            output = os.pread(descriptors.stdout, len(_CANARY_OUTPUT) + 1, 0)
        return ending.wait_status == 0 and output.decode() == _CANARY_OUTPUT

    async def _open(self, slot: Slot) -> None:
        """Makes sure that there is a process behind a slot, and a fork-server behind that. Raises SlotLost."""
        if slot.is_open:
            return
        async with self._repair:
            server = self._server
            if server is None or not server.is_alive:
                server = await self._restart()
            try:
                await slot.open(server)
            except OSError as error:
                await server.stop()
                raise SlotLost(f"no new slot: {error}", started=False) from error
        if self._queue.is_closed:
            raise SlotLost("the pool was closed", started=False)

    async def _restart(self) -> ForkServer:
        """A new fork-server at the same level: a pool does not change its level while it runs."""
        if self._level is None:
            raise SandboxUnavailable("the sandbox pool was not started")
        if self._server is not None:
            await self._server.stop()
        self._num_restarts += 1
        try:
            self._server = await start_fork_server(self._level, num_slots=len(self._slots))
        except LevelUnavailable as error:
            raise SandboxUnavailable(f"the fork-server died and does not start again: {error}") from error
        return self._server

    async def _start_at(self, level: Level) -> None:
        """Raises LevelUnavailable."""
        server = await start_fork_server(level, num_slots=len(self._slots))
        try:
            for slot in self._slots:
                await slot.open(server)
            if not await self._runs_canary(self._slots[0]):
                raise LevelUnavailable("canary", "a harmless program did not run")
        except BaseException as error:
            for slot in self._slots:
                slot.close()
            await server.stop()
            if isinstance(error, (OSError, SlotLost)):
                raise LevelUnavailable("canary", str(error)) from error
            raise
        self._server, self._level = server, level

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _candidates(level: Level | None, *, min_level: Level, allow_unsafe: bool) -> list[Level]:
    """The levels to try, best first."""
    if level is Level.UNSAFE and not allow_unsafe:
        raise ValueError("level: unsafe given, which also needs allow_unsafe")
    wanted = list(Level) if level is None else [level]
    return [
        candidate
        for candidate in wanted
        if (candidate.isolates and candidate.at_least(min_level)) or (not candidate.isolates and allow_unsafe)
    ]


def _job(limits: Limits) -> Job:
    return Job(
        cpu_s=limits.cpu_s,
        wall_s=limits.wall_s,
        memory_bytes=limits.memory_mb << 20,
        file_bytes=limits.file_mb << 20,
        scratch_bytes=limits.scratch_mb << 20,
    )


@contextlib.contextmanager
def _memory_files(payload: bytes) -> Iterator[Descriptors]:
    """A program's source, and its output to be. Files, not pipes: nobody has to drain them, a kill loses nothing."""
    descriptors = Descriptors(*map(os.memfd_create, Descriptors._fields))
    try:
        os.write(descriptors.source, payload)
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _payload(code: str, *, bindings: Mapping[str, str | Mapping[str, str]]) -> bytes:
    """What a process reads. A copy of all texts, so it is made when there is a slot for it."""
    plain = {name: value if isinstance(value, str) else dict(value) for name, value in bindings.items()}
    return json.dumps({"code": code, "bindings": plain}).encode()
