"""`SandboxPool`: runs programs and returns an `ExecResult` for each.

    async with SandboxPool(slots=4) as pool:
        result = await pool.run("print(response_a.count('e'))", bindings={"response_a": "three trees"})

A program's error is part of its result. If the sandbox itself fails, `run` raises an exception. A program that
certainly did not start is retried once before that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import types
import warnings
from collections import Counter
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tirjudge.errors import SandboxUnavailable
from tirjudge.tools.functions import Candidate, CandidateResult, Offer
from tirjudge.types import ExecResult, Outcome
from tirjudge_sandbox import kernel
from tirjudge_sandbox.candidate import code_in
from tirjudge_sandbox.cgroups import Cgroup, CgroupError, CgroupTree, open_tree
from tirjudge_sandbox.channel import Calls
from tirjudge_sandbox.containers import ContainerPlan, start_container
from tirjudge_sandbox.exchange import Exchange
from tirjudge_sandbox.fork_server import start_fork_server
from tirjudge_sandbox.host_limits import Need, host_limits, resident_bytes
from tirjudge_sandbox.levels import IsolationLevel
from tirjudge_sandbox.limits import Limits
from tirjudge_sandbox.outcome import result_of
from tirjudge_sandbox.packages import DEFAULT_PACKAGES, find_packages
from tirjudge_sandbox.preload import PRELOAD, Preload
from tirjudge_sandbox.presets import Preset, preset_for
from tirjudge_sandbox.protocol import ProgramReport
from tirjudge_sandbox.remedies import LevelFailure, NoLevelWorks, remedy
from tirjudge_sandbox.request import ForwardedOffer, Program, attachments_of
from tirjudge_sandbox.slot_process import LevelUnavailable, SlotLost, SlotProcess, SlotServer
from tirjudge_sandbox.slots import ProgramSlot, SlotQueue

_NOTHING: Mapping[str, Any] = types.MappingProxyType({})
_CANARY_CODE, _CANARY_OUTPUT = "print(6 * 7)", b"42\n"
_HARMLESS = frozenset({Outcome.OK, Outcome.ERROR, Outcome.REFUSED})
"""Outcomes after which a slot is reused directly. After any other outcome the slot is checked first."""

_MAX_WAITING_PER_SLOT = 64
_MAX_LIMITS_FACTOR = 4

RETRY_S = 300.0
"""Seconds until a warm interpreter that did not start is tried again. The machine may have been too busy."""

RECYCLE_AFTER_PROGRAMS = 10_000
"""Number of programs after which a fork server is replaced. All programs of a fork server have the same memory layout,
so an attacker could learn it."""

RECYCLE_AFTER_S = 600.0
"""Age in seconds after which a fork server is replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStats:
    """State of a pool, for health pages and metrics."""

    level: str
    """Isolation level. Empty before the pool has started."""
    num_slots: int
    """Number of programs that can run concurrently."""
    num_idle: int
    """Free slots."""
    num_busy: int
    """Slots that run a program, or are being checked or repaired after one."""
    num_waiting: int
    """Programs that wait for a slot."""
    num_programs: int
    """Programs that ran since the start, with any outcome."""
    num_by_outcome: dict[str, int]
    """Outcome -> number of programs with this outcome."""
    num_by_preset: dict[str, int]
    """Preset -> number of programs that ran in this preset."""
    num_refused: int
    """Programs that were rejected because the queue was full."""
    num_lost: int
    """Slot processes that failed since the start."""
    num_restarts: int
    """Number of times that a dead fork server was started again."""
    num_recycled: int
    """Number of times that an old fork server was replaced."""


class SandboxPool:
    """Runs untrusted Python, one process per program. The isolation level never changes after the start.

    A pool belongs to the event loop and the thread that started it. When that thread ends, the kernel kills all
    processes of the pool.
    """

    def __init__(
        self,
        *,
        slots: int | None = None,
        limits: Limits | None = None,
        max_limits: Limits | None = None,
        max_waiting: int | None = None,
        level: IsolationLevel | str | None = None,
        min_level: IsolationLevel | str = IsolationLevel.LANDLOCK,
        allow_unsafe: bool = False,
        packages: Sequence[str] | None = None,
        image: str | None = None,
        preload: Preload | None = None,
        start_s: float | None = None,
    ) -> None:
        """Configure a pool. `start` starts its processes.

        Args:
            slots: number of programs that run concurrently. None: one per CPU.
            limits: limits of programs that have none in their request. None: the defaults of `Limits`.
            max_limits: largest limits that a request may set. None: four times `limits`.
            max_waiting: maximum number of queued programs. None: 64 per slot.
            level: isolation level. None: the strongest that works on this machine.
            min_level: weakest level allowed; the pool does not start below it.
            allow_unsafe: if no isolation level works, run programs with only the seccomp filter and resource limits,
                and warn.
            packages: distributions that programs may import, with their requirements. None: numpy, scipy, pandas and
                sympy. Distributions that are not installed here (or in the image, at a container level) are skipped.
            image: Docker image for the container levels, with Python 3.11 or later as `python3`. It must be present
                already: it is not pulled. None: container levels are not tried, except `gvisor` inside gVisor.
            preload: module that programs find loaded. All programs then run in one kind of interpreter, which is not
                replaced while it lives, and containers are not used. None: none.
            start_s: maximum time in seconds until an interpreter is ready. None: `fork_server.START_S`.

        Raises:
            ValueError: `slots` is below 1, the level does not exist, `unsafe` without `allow_unsafe`, or `limits`
                exceed `max_limits`.
        """
        num_slots = len(os.sched_getaffinity(0)) if slots is None else slots
        if num_slots < 1:
            raise ValueError(f"slots: expected at least 1, got {slots}")
        if max_waiting is not None and max_waiting < 0:
            raise ValueError(f"max_waiting: expected 0 or more, got {max_waiting}")
        self.limits = limits or Limits()
        self.max_limits = max_limits or self.limits.times(_MAX_LIMITS_FACTOR)
        self.limits.check_within(self.max_limits)
        self._levels = _candidates(
            None if level is None else IsolationLevel(level),
            min_level=IsolationLevel(min_level),
            allow_unsafe=allow_unsafe,
            has_image=image is not None and preload is None,
        )
        self._preload, self._start_s = preload, start_s
        self.image = image
        self._package_names = tuple(DEFAULT_PACKAGES if packages is None else packages)
        self._packages = find_packages(self._package_names)
        self._offered: Collection[str] = ()
        self._slots = [ProgramSlot(number) for number in range(num_slots)]
        # A program keeps its slot while it waits for a candidate, so candidates have slots of their own.
        self._candidate_slots = [ProgramSlot(num_slots + number) for number in range(num_slots)]
        self._candidate_queue = SlotQueue(self._candidate_slots)
        default_waiting = _MAX_WAITING_PER_SLOT * num_slots
        self._queue = SlotQueue(self._slots, max_waiting=default_waiting if max_waiting is None else max_waiting)
        self._level: IsolationLevel | None = None
        self._cgroup_tree: CgroupTree | None = None
        self._cgroups: dict[tuple[int, Preset], Cgroup] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._keep_no_servers()

    def _keep_no_servers(self) -> None:
        """Set the state before the start: no fork server, all counters 0."""
        self._servers: dict[Preset, SlotServer] = {}
        self._retired: list[SlotServer] = []
        self._starting: dict[Preset, asyncio.Lock] = {preset: asyncio.Lock() for preset in Preset}
        self._failed_at: dict[Preset, float] = {}
        self._num_since_start: Counter[Preset] = Counter()
        self._num_by_outcome: Counter[str] = Counter()
        self._num_by_preset: Counter[str] = Counter()
        self._num_lost = self._num_restarts = self._num_recycled = 0

    @property
    def level(self) -> str:
        """The isolation level in use. Empty before the start."""
        return self._level or ""

    @property
    def is_ready(self) -> bool:
        """Whether the pool can run programs: started, not closed, fork server alive."""
        server = self._servers.get(Preset.STDLIB)
        return server is not None and server.is_alive

    def stats(self) -> PoolStats:
        """Return the current state and counters."""
        return PoolStats(
            level=self.level,
            num_slots=len(self._slots),
            num_idle=self._queue.num_idle,
            num_busy=len(self._slots) - self._queue.num_idle,
            num_waiting=self._queue.num_waiting,
            num_programs=self._num_by_outcome.total(),
            num_by_outcome=dict(self._num_by_outcome),
            num_by_preset=dict(self._num_by_preset),
            num_refused=self._queue.num_refused,
            num_lost=self._num_lost,
            num_restarts=self._num_restarts,
            num_recycled=self._num_recycled,
        )

    async def __aenter__(self) -> SandboxPool:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Start a fork server at the strongest level that works, and run a program to verify it.

        Raises:
            NoLevelWorks: no allowed level works. The message has the reason and a remedy for each level.
        """
        failures: list[LevelFailure] = []
        for level in self._levels:
            try:
                await self._start_at(level)
            except LevelUnavailable as error:
                advice = remedy(error.step, reason=str(error))
                failures.append(LevelFailure(level=level, problem=str(error), remedy=advice))
                if error.step == PRELOAD:  # its module fails at every level
                    break
                continue
            if not level.isolates:
                warnings.warn("programs run without isolation (level unsafe)", RuntimeWarning, stacklevel=2)
            self._fit_into_host()
            return
        raise NoLevelWorks(failures)

    def _fit_into_host(self) -> None:
        """Lower `max_limits.memory_mb` to the memory that all slots can use concurrently. Warn if even the default
        limits exceed the host's: a program could then make the kernel kill the service."""
        if self._level is None or self._level.needs_image:  # a container has separate limits
            return
        host = host_limits()
        base_bytes = resident_bytes(os.getpid()) + sum(server.resident_bytes for server in self._servers.values())
        need = Need(
            limits=self.limits,
            num_slots=len(self._slots),
            base_bytes=base_bytes,
            warm_bytes=max((server.writable_bytes for server in self._servers.values()), default=0),
        )
        self.max_limits = replace(
            self.max_limits, memory_mb=min(self.max_limits.memory_mb, need.most_memory_mb(host=host))
        )
        for shortage in need.shortages(host=host):
            warnings.warn(f"sandbox: {shortage}", RuntimeWarning, stacklevel=3)

    async def close(self) -> None:
        """Kill running programs, whose `run` raises SandboxUnavailable, and end all processes of the pool."""
        slots = [*self._slots, *self._candidate_slots]
        for queue in (self._queue, self._candidate_queue):
            queue.close()
        for slot in slots:
            slot.hang_up()
        for queue in (self._queue, self._candidate_queue):
            await queue.all_back()
        await asyncio.gather(*self._background)
        for slot in slots:
            slot.close()
        for server in (*self._servers.values(), *self._retired):
            await server.stop()
        self._servers.clear()
        self._retired.clear()
        await self._remove_cgroups()

    async def run(
        self,
        code: str,
        *,
        bindings: Mapping[str, str | Mapping[str, str]] = _NOTHING,
        stdin: str = "",
        files: Mapping[str, bytes] = _NOTHING,
        fetch: Sequence[str] = (),
        attachments: Mapping[str, str | os.PathLike[str]] = _NOTHING,
        limits: Limits | None = None,
        offer: Offer | ForwardedOffer | None = None,
    ) -> ExecResult:
        """Run one program in a new process. Cancelling the call kills the program.

        Args:
            code: Python source.
            bindings: variables of the program: name -> text, or name -> (label -> text). Texts are never parsed as
                code.
            stdin: text on the program's standard input.
            files: relative path -> content of files in the working directory (levels with namespaces only).
            fetch: relative paths of files to return after the program, if they are regular files (levels with
                namespaces only).
            attachments: name -> absolute path of a file or directory that the program may read. The program's variable
                `attachments` maps each name to the path to open.
            limits: limits of this program. None: the pool's.
            offer: functions that the program may call, and bindings whose execution is reported. None: none. The result
                has the calls of an `Offer`, and none of a `ForwardedOffer`.

        Returns:
            The result, with the program's own errors in `outcome` and `error`.

        Raises:
            SandboxBusy: the queue is full.
            SandboxUnavailable: the program could not be run, or was lost, for a reason outside the program.
            ValueError: an argument is invalid, or not supported at this level; the message names the argument.
        """
        program = Program(
            code=code,
            bindings=bindings,
            stdin=stdin,
            files=files,
            fetch=tuple(dict.fromkeys(fetch)),
            attachments=attachments_of(attachments),
            limits=limits or self.limits,
            offer=offer,
        )
        if not isinstance(offer, Offer) or not offer.functions:
            calls = offer.calls if isinstance(offer, ForwardedOffer) else None
            return (await self._run_program(program, queue=self._queue, calls=calls))[0]
        exchange = Exchange(offer, run_candidate=self.run_candidate)
        result, _ = await self._run_program(program, queue=self._queue, calls=exchange)
        return exchange.completed(result)

    async def run_candidate(self, candidate: Candidate) -> CandidateResult:
        """Run the code of a candidate in a slot for candidates. Cancelling the call kills the code.

        Raises:
            SandboxUnavailable, ValueError: as in `run`.
        """
        limits = self.limits
        if candidate.timeout_s is not None:
            limits = replace(
                limits,
                cpu_s=min(candidate.timeout_s, self.max_limits.cpu_s),
                wall_s=min(candidate.timeout_s, self.max_limits.wall_s),
            )
        program = Program(
            code=code_in(candidate.code),
            bindings={},
            stdin=candidate.stdin,
            files={path: text.encode() for path, text in candidate.files.items()},
            fetch=(),
            attachments=(),
            limits=limits,
            candidate=candidate,
        )
        result, value = await self._run_program(program, queue=self._candidate_queue, calls=None)
        return CandidateResult(result=result, value=value)

    async def _run_program(
        self, program: Program, *, queue: SlotQueue, calls: Calls | None
    ) -> tuple[ExecResult, str | None]:
        """Run a program in a slot of a queue. Return its result and the value that a candidate's function returned."""
        if self._level is None and not self._queue.is_closed:
            raise SandboxUnavailable("the sandbox pool was not started")
        program.limits.check_within(self.max_limits)
        program.check(level=self._level or IsolationLevel.UNSAFE)
        if program.is_too_long:
            error = f"ProgramTooLong: more than {program.limits.source_bytes} bytes"
            return ExecResult(outcome=Outcome.REFUSED, error=error, level=self.level), None
        queued = time.monotonic()
        slot = await queue.take()
        taken = time.monotonic()
        try:
            return await self._run_in(slot, program, queued=queued, calls=calls)
        finally:
            queue.note_run(time.monotonic() - taken)

    # ---------------------------------------------------------------------------------------------------- one program

    async def _run_in(
        self, slot: ProgramSlot, program: Program, *, queued: float, calls: Calls | None
    ) -> tuple[ExecResult, str | None]:
        """Run a program in a slot taken from its queue, and give the slot back."""
        try:
            result, value = await self._execute(slot, program, queued=queued, calls=calls)
        except asyncio.CancelledError:
            self._in_background(self._recover(slot))
            raise
        except BaseException:
            self._give_back(slot)
            raise
        if result.outcome not in _HARMLESS or self._is_outdated(slot):
            self._in_background(self._recover(slot))
        else:
            self._give_back(slot)
        return result, value

    def _give_back(self, slot: ProgramSlot) -> None:
        queue = self._queue if slot.number < len(self._slots) else self._candidate_queue
        queue.give_back(slot)

    async def _execute(
        self, slot: ProgramSlot, program: Program, *, queued: float, calls: Calls | None
    ) -> tuple[ExecResult, str | None]:
        """Run a program. If the slot is lost before the program started, retry once in a new process."""
        wanted = Preset.STDLIB if self._preload else preset_for(program.code, offered=self._offered)
        job, payload = program.job(), program.payload(level=IsolationLevel(self.level))
        retried = False
        while True:
            process = None
            try:
                preset, process = await self._open(slot, wanted)
                queue_s = time.monotonic() - queued
                report = await process.run(job, payload, calls=calls)
                break
            except OSError as error:
                raise SandboxUnavailable(f"the host could not provide what the program needs: {error}") from error
            except SlotLost as lost:
                if process is not None:
                    process.kill()
                self._num_lost += 1
                if lost.started or retried or self._queue.is_closed:
                    raise SandboxUnavailable(f"the program was lost: {lost}") from lost
                retried = True
        result = result_of(
            report, limits=program.limits, level=IsolationLevel(self.level), preset=preset, queue_s=queue_s
        )
        self._count(result, preset=preset)
        return result, report.value

    def _count(self, result: ExecResult, *, preset: Preset) -> None:
        self._num_by_outcome[result.outcome] += 1
        self._num_by_preset[preset] += 1
        self._num_since_start[preset] += 1
        server = self._servers.get(preset)
        if server is None or self._queue.is_closed or self._preload:
            return
        is_old = time.monotonic() - server.started_at > RECYCLE_AFTER_S
        if is_old or self._num_since_start[preset] == RECYCLE_AFTER_PROGRAMS:
            server.started_at = time.monotonic()
            self._in_background(self._recycle(preset))

    # --------------------------------------------------------------------------------------------------------- health

    async def _recover(self, slot: ProgramSlot) -> None:
        """Kill the slot's running program, run a canary program to check the slot, and give the slot back."""
        try:
            for process in list(slot.processes.values()):
                if not process.is_open:
                    continue
                try:
                    if process.is_running:
                        await process.cancel()
                    if not self._queue.is_closed and not await self._runs_canary(process):
                        raise SlotLost("it failed its canary", started=True)
                except SlotLost:
                    self._num_lost += 1
                    process.kill()
            await self._renew(slot)
        finally:
            self._give_back(slot)

    async def _runs_canary(self, process: SlotProcess) -> bool:
        canary = Program(
            code=_CANARY_CODE, bindings={}, stdin="", files={}, fetch=(), attachments=(), limits=self.limits
        )
        report: ProgramReport = await process.run(canary.job(), canary.payload(level=IsolationLevel.UNSAFE))
        return report.ending.wait_status == 0 and report.stdout.head == _CANARY_OUTPUT

    def _does_without(self, preset: Preset) -> bool:
        """Whether the preset's interpreter recently failed to start. Its programs then run in `STDLIB` and import
        their packages themselves."""
        return preset in self._failed_at and time.monotonic() - self._failed_at[preset] < RETRY_S

    async def _open(self, slot: ProgramSlot, wanted: Preset) -> tuple[Preset, SlotProcess]:
        """Return the slot's process for a preset. Create the process and its fork server if needed. Raises SlotLost."""
        preset = Preset.STDLIB if self._does_without(wanted) else wanted
        process = slot.process_for(preset)
        if process is not None:
            return preset, process
        async with self._starting[preset]:
            server = self._servers.get(preset)
            if (server is None or not server.is_alive) and not self._does_without(preset):
                server = await self._start_server(preset)
            if server is None:
                return await self._open(slot, Preset.STDLIB)
            process = await self._open_process(slot, preset, server=server)
        if self._queue.is_closed:
            raise SlotLost("the pool was closed", started=False)
        return preset, process

    async def _open_process(self, slot: ProgramSlot, preset: Preset, *, server: SlotServer) -> SlotProcess:
        try:
            process = await server.open_slot(slot.number, cgroup=self._cgroup_of(slot, preset))
        except OSError as error:
            await server.stop()
            raise SlotLost(f"no new slot: {error}", started=False) from error
        slot.processes[preset] = process
        return process

    async def _start_server(self, preset: Preset) -> SlotServer | None:
        """Start a fork server of a preset at the pool's level. None: the preset's interpreter does not start, so its
        programs run in `STDLIB` until `RETRY_S` has passed."""
        if self._level is None or self._queue.is_closed:
            raise SandboxUnavailable("the sandbox pool is closed, or was not started")
        dead = self._servers.pop(preset, None)
        if dead is not None:
            self._num_restarts += 1
            await dead.stop()
        try:
            server = await self._new_server(self._level, preset)
        except LevelUnavailable as error:
            if preset is not Preset.STDLIB and dead is None:
                warnings.warn(f"no warm interpreter {preset}: {error}", RuntimeWarning, stacklevel=2)
                self._failed_at[preset] = time.monotonic()
                return None
            raise SandboxUnavailable(f"the fork server died and does not start again: {error}") from error
        self._servers[preset] = server
        self._num_since_start[preset] = 0
        self._fit_into_host()
        return server

    async def _new_server(self, level: IsolationLevel, preset: Preset) -> SlotServer:
        if not level.needs_image or (level is IsolationLevel.GVISOR and self.image is None and kernel.is_gvisor()):
            return await start_fork_server(
                level, preset=preset, packages=self._packages, preload=self._preload, start_s=self._start_s
            )
        if self.image is None:
            raise LevelUnavailable("image", "no image was given")
        plan = ContainerPlan(
            image=self.image,
            level=level,
            num_slots=len(self._slots) + len(self._candidate_slots),
            packages=self._package_names,
            memory_bytes=self.max_limits.memory_mb << 20,
            output_bytes=self.max_limits.output_bytes,
        )
        return await start_container(plan, preset=preset)

    async def _start_at(self, level: IsolationLevel) -> None:
        """Start the pool at a level. Raises LevelUnavailable."""
        if level.has_cgroup:
            try:
                self._cgroup_tree = open_tree()
            except CgroupError as error:
                raise LevelUnavailable("cgroup", str(error)) from error
        try:
            await self._open_at(level)
        except BaseException:
            with contextlib.suppress(TimeoutError, OSError):  # the next pool removes leftover groups
                await self._remove_cgroups()  # the next level may not use groups
            raise

    async def _open_at(self, level: IsolationLevel) -> None:
        """Start the fork server, open all slots, and run a canary program. Raises LevelUnavailable."""
        server = await self._new_server(level, Preset.STDLIB)
        try:
            for slot in self._slots:
                cgroup = self._cgroup_of(slot, Preset.STDLIB)
                slot.processes[Preset.STDLIB] = await server.open_slot(slot.number, cgroup=cgroup)
            if not await self._runs_canary(self._slots[0].processes[Preset.STDLIB]):
                raise LevelUnavailable("canary", "a harmless program did not run")
        except BaseException as error:
            for slot in self._slots:
                slot.close()
            await server.stop()
            if isinstance(error, (OSError, SlotLost)):
                raise LevelUnavailable("canary", str(error)) from error
            raise
        self._servers[Preset.STDLIB], self._level, self._offered = server, level, server.offered

    # ------------------------------------------------------------------------------------------------------ recycling

    async def _recycle(self, preset: Preset) -> None:
        """Replace a fork server while programs run. Each slot moves to the new server between two programs."""
        if self._level is None:
            return
        try:
            server = await self._new_server(self._level, preset)
        except LevelUnavailable as error:
            warnings.warn(f"the fork server could not be replaced: {error}", RuntimeWarning, stacklevel=2)
            return
        async with self._starting[preset]:
            old = self._servers.get(preset)
            self._servers[preset] = server
            self._num_since_start[preset] = 0
            self._num_recycled += 1
            if old is not None:
                self._retired.append(old)
        idle = [*self._queue.take_idle(), *self._candidate_queue.take_idle()]
        try:
            while idle:
                await self._renew(idle[-1])
                self._give_back(idle.pop())
        finally:
            for slot in idle:
                self._give_back(slot)

    def _is_outdated(self, slot: ProgramSlot) -> bool:
        """Whether a process of the slot belongs to a replaced fork server."""
        return any(process.is_open and process.server in self._retired for process in slot.processes.values())

    async def _renew(self, slot: ProgramSlot) -> None:
        """Replace the slot's processes that belong to replaced fork servers. Stop replaced servers without open
        processes."""
        for preset, process in list(slot.processes.items()):
            if process.is_open and process.server in self._retired:
                process.close()
                server = self._servers.get(preset)
                if server is not None and not self._queue.is_closed:
                    try:
                        await self._open_process(slot, preset, server=server)
                    except SlotLost:
                        self._num_lost += 1
        done = [server for server in self._retired if not server.num_open]
        self._retired = [server for server in self._retired if server.num_open]
        for server in done:
            await server.stop()

    # -------------------------------------------------------------------------------------------------------- cgroups

    def _cgroup_of(self, slot: ProgramSlot, preset: Preset) -> Cgroup | None:
        """Return the control group of a slot's process, creating it if needed. None: the level has none. Raises
        OSError."""
        if self._cgroup_tree is None:
            return None
        key = (slot.number, preset)
        if key not in self._cgroups:
            self._cgroups[key] = self._cgroup_tree.make()
        return self._cgroups[key]

    async def _remove_cgroups(self) -> None:
        cgroups, self._cgroups, self._cgroup_tree = list(self._cgroups.values()), {}, None
        for cgroup in cgroups:
            cgroup.close()
            await cgroup.remove()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _candidates(
    level: IsolationLevel | None, *, min_level: IsolationLevel, allow_unsafe: bool, has_image: bool
) -> list[IsolationLevel]:
    """Return the levels to try, strongest first."""
    if level is IsolationLevel.UNSAFE and not allow_unsafe:
        raise ValueError("level: unsafe given, which also needs allow_unsafe")
    possible = [
        candidate
        for candidate in IsolationLevel
        if has_image or not candidate.needs_image or (candidate is IsolationLevel.GVISOR and kernel.is_gvisor())
    ]
    wanted = possible if level is None else [level]
    return [
        candidate
        for candidate in wanted
        if (candidate.isolates and candidate.at_least(min_level)) or (not candidate.isolates and allow_unsafe)
    ]
