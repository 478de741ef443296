"""The fork-server: one warm interpreter, from which slots are forked, and from those, programs.

    pool -- exec --> zygote -- fork --> slot -- fork --> program     (one at a time in each slot, which may wait for its code)

It is started by exec, never forked from the server, so that nothing of the server is in its memory; it never opens a
program's descriptors, so that no text of one program is in the memory of the next: only limits and names of files are.
`_serve_zygote` returns in the process of a new slot and `_serve_slot` in the process of a new program, so the stack of a
program is short.

Standard library only. The pool runs `main` under a stand-in for the package (see `fork_server.isolated_python`), so importing
this file imports neither tirjudge nor pydantic.
"""

from __future__ import annotations

import contextlib
import json
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
from tirjudge_sandbox.presets import Preset
from tirjudge_sandbox.program import STARTED, become_program
from tirjudge_sandbox.program_end import ProgramEnd, program_end
from tirjudge_sandbox.protocol import (
    CANCEL,
    ENTER,
    HELLO,
    MAX_DESCRIPTORS,
    PACKET_BYTES,
    SCRATCH,
    Descriptors,
    Ending,
    ProgramJob,
    StoppedBy,
)
from tirjudge_sandbox.thread_limit import ThreadLimit
from tirjudge_sandbox.warmup import warm_up

_POLL_S = 0.01
"""How closely processor time is watched once it is nearly used up."""

_USUAL_SCRATCH_BYTES = 16 << 20

_NUM_PROCESSORS = len(os.sched_getaffinity(0))
"""So many times as fast as the clock may the processor time of a program run."""


def main() -> NoReturn:
    """Serves the pool over the socket on descriptor 0 until that closes."""
    control = socket.socket(fileno=os.dup(0))
    config = json.loads(control.recv(PACKET_BYTES))
    die_with(config["parent"])
    packages = Packages.from_json(config["packages"])
    try:
        warm_up(Preset(config["preset"]), packages=packages)
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
    become_program(jail, setup, slot=number, channel=channel, has_thread_limit=has_thread_limit)


# ----------------------------------------------------------------------------------------------------------------- zygote


def _serve_zygote(control: socket.socket) -> tuple[int, socket.socket, int | None]:
    """Forks a slot for each socket that comes in. Returns in the slot, with its number, its socket and, if it has a control
    group, the descriptor of that group's clock."""
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
        os.wait()  # children are not reaped by us: it returns when the last is gone
    os._exit(0)


# ------------------------------------------------------------------------------------------------------------------- slot


def _serve_slot(pool: socket.socket, *, jail: Jail, cpu_clock: int | None) -> tuple[ProgramSetup, socket.socket, bool]:
    """Forks a process ahead of each job, hands the job over, watches and answers. Returns in the program's process, with its
    end of the channel over which the job comes, and whether the slot bounds its threads."""
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
            to_program.close()  # so that our end tells us if the slot dies
            return setup, to_slot, threads is not None
        packet, descriptors = _next_job(pool)
        if not packet:
            _leave_with(program, status=0)
        job = ProgramJob.from_packet(packet)
        num_files = len(Descriptors._fields) if job.fetch else len(Descriptors._fields) - 1
        files, mounts = Descriptors(*descriptors[:num_files]), descriptors[num_files:]
        start = time.monotonic()
        try:
            adapt(jail, setup, job=job, mounts=mounts)
        except JailError as error:
            pool.send(_never_started(str(error)).to_packet())
            _leave_with(program, status=1)
        own = (files.source, files.stdout, files.stderr)
        socket.send_fds(to_program, [packet], own)
        for descriptor in own:
            os.close(descriptor)
        ending = _watch(
            program, end=end, threads=threads, job=job, pool=pool, channel=to_program, start=start, cpu_clock=cpu_clock
        )
        _packet_in(to_slot)  # a job that its process did not live to read: the next one must not find it
        if job.fetch:
            if not ending.failure:
                sizes = copy_files(job.fetch, root=SCRATCH, target=files.fetched, max_bytes=job.fetch_bytes)
                ending = replace(ending, fetched=sizes)
            os.close(files.fetched)
        try:
            pool.send(ending.to_packet())
        except BrokenPipeError:
            os._exit(0)
        clear_away(jail, setup, job=job)
        setup = prepare(jail, scratch_bytes=job.scratch_bytes)


def _next_job(pool: socket.socket) -> tuple[bytes, list[int]]:
    """An empty packet if the pool has hung up."""
    while True:
        packet, descriptors, _, _ = socket.recv_fds(pool, PACKET_BYTES, MAX_DESCRIPTORS)
        if packet != CANCEL:  # else the program had ended before the pool knew
            return packet, descriptors


def _leave_with(program: int, *, status: int) -> NoReturn:
    """Takes the process along that waits for a program: nobody else may be there to reap it."""
    os.kill(program, signal.SIGKILL)
    os.waitpid(program, 0)
    os._exit(status)


def _refuse_job(pool: socket.socket, failure: str) -> NoReturn:
    """Answers the first job with the reason why there are no walls."""
    if pool.recv(PACKET_BYTES):
        pool.send(_never_started(failure).to_packet())
    os._exit(1)


def _never_started(failure: str) -> Ending:
    return Ending(failure=failure, wait_status=0, stopped_by=StoppedBy.NOBODY, cpu_s=0.0, wall_s=0.0, max_rss_kb=0)


def _pidfd_of(pid: int, *, is_needed: bool) -> int | None:
    """None where the kernel has no descriptors of processes, and we can do without."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        if is_needed:
            raise
        return None


def _fork_program(jail: Jail, *, own_pidfd: int | None) -> int:
    """Forks, into a new pid namespace if we have them; this process's next children stay in its own."""
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
    """Waits for the end of a program, or brings it about. What it said on the way out does not matter here."""
    ended = end.watch(program)
    used = _processor_time_of(program) if cpu_clock is None else _processor_time_by(cpu_clock)
    stopped_by = _wait_for_end(end, ended, used=used, threads=threads, job=job, pool=pool, start=start)
    if stopped_by is not StoppedBy.NOBODY:
        end.kill()
    _, status, usage = os.wait4(program, 0)
    said = _packet_in(channel)
    end.release()
    cpu_s = usage.ru_utime + usage.ru_stime
    return Ending(
        failure="" if said == STARTED else said.decode() or "it died before it was isolated",
        wait_status=status,
        stopped_by=stopped_by,
        cpu_s=max(cpu_s, job.cpu_s) if stopped_by is StoppedBy.CPU else cpu_s,
        wall_s=time.monotonic() - start,
        max_rss_kb=usage.ru_maxrss,
    )


def _packet_in(channel: socket.socket) -> bytes:
    """What waits there to be read; empty if nothing does."""
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
    start: float,
) -> StoppedBy:
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
        wall_left = start + job.wall_s - time.monotonic()
        # What this process does for a program counts as the program's: it could ask for thread after thread.
        cpu_left = job.cpu_s - used() - (time.process_time() - own_start_s)
        patience_s = max(_POLL_S, min(wall_left, cpu_left / _NUM_PROCESSORS))
        ready = {descriptor for descriptor, _ in poll.poll(1000 * patience_s)}
        if ended in ready and end.has_come():
            return StoppedBy.NOBODY
        if pool.fileno() in ready:
            return StoppedBy.CANCEL
        if wall_left <= 0:
            return StoppedBy.WALL
        if cpu_left <= 0:
            return StoppedBy.CPU
        if threads is not None and thread_calls in ready:
            threads.answer()


def _processor_time_of(program: int) -> Callable[[], float]:
    """Of a process and its threads."""
    clock = ~program << 3 | 2  # clock_getcpuclockid(3), which Python does not have
    return lambda: time.clock_gettime(clock)


def _processor_time_by(cpu_clock: int) -> Callable[[], float]:
    """Of all processes of a program: what their control group has used since now."""

    def read() -> float:
        words = os.pread(cpu_clock, 64, 0).split()
        return int(words[0]) / 1e9 if len(words) == 1 else int(words[1]) / 1e6

    before = read()
    return lambda: read() - before
