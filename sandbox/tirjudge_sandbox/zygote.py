"""The fork server: one warm interpreter that forks slots, which fork programs.

    pool -- exec --> zygote -- fork --> slot -- fork --> program     (one at a time per slot, forked before its job)

The fork server is started by exec, not forked from the service, so that it has no data of the service in its memory. It
never reads a program's descriptors, so that no text of one program is in the memory of the next. It sees only limits
and file names. `_serve_zygote` returns in the process of a new slot, and `_serve_slot` in the process of a new program,
so that a program's stack is short.

This module imports only the standard library. The pool runs `main` with a stub of the package (see
`fork_server.isolated_python`), so importing this file imports neither tirjudge nor pydantic.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

from tirjudge_sandbox import kernel
from tirjudge_sandbox.fetch import copy_files
from tirjudge_sandbox.jail import (
    Jail,
    JailError,
    ProgramSetup,
    adapt,
    clear_away,
    die_first_of_memory,
    die_with,
    enter,
    enter_slot,
    prepare,
)
from tirjudge_sandbox.levels import IsolationLevel
from tirjudge_sandbox.packages import Packages
from tirjudge_sandbox.preload import Preload
from tirjudge_sandbox.presets import Preset
from tirjudge_sandbox.program import STARTED, become_program
from tirjudge_sandbox.program_end import ProgramEnd, program_end
from tirjudge_sandbox.protocol import (
    CANCEL,
    ENTER,
    HELLO,
    MAX_DESCRIPTORS,
    PACKET_BYTES,
    PAUSE,
    RESUME,
    SCRATCH,
    Ending,
    ProgramJob,
    StoppedBy,
)
from tirjudge_sandbox.thread_limit import ThreadLimit
from tirjudge_sandbox.warmup import warm_up

_POLL_S = 0.01
"""Shortest interval in seconds between checks of a program's CPU time."""

_USUAL_SCRATCH_BYTES = 16 << 20
"""Size of the private directory that is prepared for the first program."""

_NUM_PROCESSORS = len(os.sched_getaffinity(0))
"""Number of CPUs: a program's CPU time advances at most this factor faster than wall time."""


def main() -> NoReturn:
    """Serve the pool over the socket on descriptor 0 until the socket closes."""
    control = socket.socket(fileno=os.dup(0))
    config = json.loads(control.recv(PACKET_BYTES))
    die_with(config["parent"])
    packages = Packages.from_json(config["packages"])
    try:
        preload = Preload(**config["preload"]) if config.get("preload") else None
        warm_up(Preset(config["preset"]), packages=packages, preload=preload)
        die_first_of_memory()
        jail = enter(IsolationLevel(config["level"]), packages=packages.paths)
    except JailError as error:
        control.send(json.dumps({"failure": str(error), "step": error.step}).encode())
        sys.exit(1)
    if jail.mounter < 0:
        control.send(b"{}")
    else:
        socket.send_fds(control, [b"{}"], [jail.mounter])
        os.close(jail.mounter)
    number, slot_socket, cpu_clock = _serve_zygote(control)
    setup, channel, has_thread_limit = _serve_slot(slot_socket, jail=jail, cpu_clock=cpu_clock)
    rehearsal = preload.rehearsal if preload else None
    become_program(jail, setup, slot=number, channel=channel, has_thread_limit=has_thread_limit, rehearsal=rehearsal)


# ----------------------------------------------------------------------------------------------------------------- zygote


def _serve_zygote(control: socket.socket) -> tuple[int, socket.socket, int | None]:
    """Fork a slot for each socket received. Return in the slot's process, with the slot's number, its socket and, if it
    has a control group, the descriptor of the group's CPU clock."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps slots
    zygote = os.getpid()
    while True:
        packet, descriptors, _, _ = socket.recv_fds(control, PACKET_BYTES, MAX_DESCRIPTORS)
        if not packet:
            _leave_after_the_slots()
        if not os.fork():
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            die_with(zygote)
            slot_socket, *clock = descriptors
            return json.loads(packet)["slot"], socket.socket(fileno=slot_socket), clock[0] if clock else None
        for descriptor in descriptors:
            os.close(descriptor)


def _leave_after_the_slots() -> NoReturn:
    with contextlib.suppress(ChildProcessError):
        os.wait()  # the kernel reaps the children, so this returns when the last one has ended
    os._exit(0)


# ------------------------------------------------------------------------------------------------------------------- slot


def _serve_slot(pool: socket.socket, *, jail: Jail, cpu_clock: int | None) -> tuple[ProgramSetup, socket.socket, bool]:
    """Run programs: fork a process before each job, send the job to it, watch it, and answer the pool.

    Return in the program's process, with the resources prepared for it, the socket over which the job will arrive, and
    whether the slot limits its threads."""
    own_pid = os.getpid()
    own_pidfd = _pidfd_of(own_pid, is_needed=jail.level.has_namespaces)
    end = program_end()
    to_program, to_slot = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    socket.send_fds(pool, [HELLO], [] if own_pidfd is None else [own_pidfd])
    if pool.recv(PACKET_BYTES) != ENTER:
        os._exit(0)
    try:
        threads = enter_slot(jail)
        setup = prepare(jail, scratch_bytes=_USUAL_SCRATCH_BYTES)
    except JailError as error:
        _refuse_job(pool, str(error))
    while True:
        program = _fork_program(jail, own_pidfd=own_pidfd)
        if not program:
            end.forget()
            if threads is not None:
                threads.forget()
            die_with(own_pid)
            pool.close()
            to_program.close()  # so that this process reads end of file if the slot dies
            return setup, to_slot, threads is not None
        packet, descriptors = _next_job(pool)
        if not packet:
            _leave_with(program, status=0)
        job = ProgramJob.from_packet(packet)
        num_own = 3 + len(job.channels)
        own, rest = descriptors[:num_own], descriptors[num_own:]
        fetched, mounts = (rest[0], rest[1:]) if job.fetch else (-1, rest)
        start = time.monotonic()
        try:
            adapt(jail, setup, job=job, mounts=mounts)
        except JailError as error:
            pool.send(_never_started(str(error)).to_packet())
            _leave_with(program, status=1)
        socket.send_fds(to_program, [packet], own)
        for descriptor in own:
            os.close(descriptor)
        ending = _watch(
            program, end=end, threads=threads, job=job, pool=pool, channel=to_program, start=start, cpu_clock=cpu_clock
        )
        _packet_in(to_slot)  # drop the job if the program died before reading it, so that the next program does not
        if job.fetch:
            if not ending.failure:
                sizes = copy_files(job.fetch, root=SCRATCH, target=fetched, max_bytes=job.fetch_bytes)
                ending = replace(ending, fetched=sizes)
            os.close(fetched)
        try:
            pool.send(ending.to_packet())
        except BrokenPipeError:
            os._exit(0)
        clear_away(jail, setup, job=job)
        setup = prepare(jail, scratch_bytes=job.scratch_bytes)


def _next_job(pool: socket.socket) -> tuple[bytes, list[int]]:
    """Return the next job. The packet is empty if the pool has closed the socket."""
    while True:
        packet, descriptors, _, _ = socket.recv_fds(pool, PACKET_BYTES, MAX_DESCRIPTORS)
        # These arrived after the program had ended.
        if packet not in (CANCEL, PAUSE) and not packet.startswith(RESUME):
            return packet, descriptors


def _leave_with(program: int, *, status: int) -> NoReturn:
    """Kill and reap the process that waits for a program, then exit. No other process may be left to reap it."""
    os.kill(program, signal.SIGKILL)
    os.waitpid(program, 0)
    os._exit(status)


def _refuse_job(pool: socket.socket, failure: str) -> NoReturn:
    """Answer the first job with the reason why isolation failed."""
    if pool.recv(PACKET_BYTES):
        pool.send(_never_started(failure).to_packet())
    os._exit(1)


def _never_started(failure: str) -> Ending:
    return Ending(failure=failure, wait_status=0, stopped_by=StoppedBy.NONE, cpu_s=0.0, wall_s=0.0, max_rss_kb=0)


def _pidfd_of(pid: int, *, is_needed: bool) -> int | None:
    """Return a pidfd of a process. None: the kernel has no pidfds, and none is needed."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        if is_needed:
            raise
        return None


def _fork_program(jail: Jail, *, own_pidfd: int | None) -> int:
    """Fork a program's process, at the levels with namespaces into a new pid namespace."""
    if not jail.level.has_namespaces or own_pidfd is None:
        return os.fork()
    kernel.unshare(kernel.CLONE_NEWPID)
    program = os.fork()
    if program:
        kernel.setns(own_pidfd, kernel.CLONE_NEWPID)
    return program


def _watch(
    program: int,
    *,
    end: ProgramEnd,
    threads: ThreadLimit | None,
    job: ProgramJob,
    pool: socket.socket,
    channel: socket.socket,
    start: float,
    cpu_clock: int | None,
) -> Ending:
    """Wait for the end of a program, or kill it at a limit or on request. The result does not depend on the program's
    output."""
    ended = end.watch(program)
    used = _processor_time_of(program) if cpu_clock is None else _processor_time_by(cpu_clock)
    clock = _WallClock(start=start, limit_s=job.wall_s)
    stopped_by = _wait_for_end(end, ended, used=used, threads=threads, job=job, pool=pool, clock=clock)
    if stopped_by is not StoppedBy.NONE:
        end.kill()
    _, status, usage = os.wait4(program, 0)
    message = _packet_in(channel)
    end.release()
    cpu_s = usage.ru_utime + usage.ru_stime
    return Ending(
        failure="" if message == STARTED else message.decode() or "its process died before it was isolated",
        wait_status=status,
        stopped_by=stopped_by,
        cpu_s=max(cpu_s, job.cpu_s) if stopped_by is StoppedBy.CPU else cpu_s,
        wall_s=clock.elapsed_s,
        max_rss_kb=usage.ru_maxrss,
    )


class _WallClock:
    """Wall time of a program without its function calls, as far as the pool has reported them."""

    def __init__(self, *, start: float, limit_s: float) -> None:
        self._start, self._limit_s = start, limit_s
        self._calls_s = 0.0
        self._paused_at: float | None = None

    @property
    def elapsed_s(self) -> float:
        now = time.monotonic() if self._paused_at is None else self._paused_at
        return max(0.0, now - self._start - self._calls_s)

    @property
    def left_s(self) -> float:
        """Seconds until the limit, counted as if no call were in progress."""
        return math.inf if self._paused_at is not None else self._limit_s - self.elapsed_s

    def take(self, packet: bytes) -> None:
        """Handle a PAUSE or RESUME."""
        if packet == PAUSE:
            self._paused_at = self._paused_at or time.monotonic()
        else:
            self._paused_at = None
            self._calls_s = float(packet[len(RESUME) :])


def _packet_in(channel: socket.socket) -> bytes:
    """Return the next packet without waiting. Empty: no packet has arrived."""
    try:
        return channel.recv(PACKET_BYTES, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return b""


def _wait_for_end(
    end: ProgramEnd,
    ended: int,
    *,
    used: Callable[[], float],
    threads: ThreadLimit | None,
    job: ProgramJob,
    pool: socket.socket,
    clock: _WallClock,
) -> StoppedBy:
    """Wait until the program ends, exceeds a time limit, or is cancelled. Answer its thread notifications meanwhile."""
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(pool, select.POLLIN)
    thread_calls = -1
    if threads is not None:
        threads.begin()
        thread_calls = threads.fileno()
        poll.register(thread_calls, select.POLLIN)
    own_start_s = time.process_time()
    while True:
        wall_left = clock.left_s
        # The CPU time of this slot counts as the program's: a program could keep the slot busy by starting threads.
        cpu_left = job.cpu_s - used() - (time.process_time() - own_start_s)
        patience_s = max(_POLL_S, min(wall_left, cpu_left / _NUM_PROCESSORS))
        ready = {descriptor for descriptor, _ in poll.poll(1000 * patience_s)}
        if ended in ready and end.has_come():
            return StoppedBy.NONE
        if pool.fileno() in ready:
            packet = pool.recv(PACKET_BYTES)
            if packet != PAUSE and not packet.startswith(RESUME):
                return StoppedBy.CANCEL
            clock.take(packet)
            continue
        if wall_left <= 0:
            return StoppedBy.WALL
        if cpu_left <= 0:
            return StoppedBy.CPU
        if threads is not None and thread_calls in ready:
            threads.answer()


def _processor_time_of(program: int) -> Callable[[], float]:
    """Return a function that reads the CPU time of a process and its threads, in seconds."""
    clock = ~program << 3 | 2  # clock_getcpuclockid(3), which Python does not have
    return lambda: time.clock_gettime(clock)


def _processor_time_by(cpu_clock: int) -> Callable[[], float]:
    """Return a function that reads the CPU time of all processes of a program in seconds: the time that their control
    group has used since this call."""

    def read() -> float:
        words = os.pread(cpu_clock, 64, 0).split()
        return int(words[0]) / 1e9 if len(words) == 1 else int(words[1]) / 1e6

    before = read()
    return lambda: read() - before
