"""The fork-server: one warm interpreter, from which slots are forked, and from those, programs.

    pool -- exec --> zygote -- fork --> slot -- fork --> program     (one at a time in each slot)

It is started by exec, never forked from the server, so that nothing of the server is in its memory; it never opens a
program's descriptors, so that nothing of one program is in the memory of the next. `_serve_zygote` returns in the process
of a new slot and `_serve_slot` in the process of a new program, so the stack of a program is short.

Standard library only. The pool runs `main` under a stand-in for the package (see `fork_server.isolated_python`), so importing
this file imports neither tirjudge nor pydantic.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import glob
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from typing import NoReturn

from tirjudge_sandbox import kernel
from tirjudge_sandbox.jail import Jail, JailError, die_with, enter
from tirjudge_sandbox.levels import Level
from tirjudge_sandbox.program import STARTED, become_program
from tirjudge_sandbox.protocol import CANCEL, PACKET_BYTES, Descriptors, Ending, Job, StoppedBy

# fmt: off
PREIMPORTS = (
    "abc", "base64", "bisect", "calendar", "cmath", "collections", "copy", "csv", "ctypes", "dataclasses", "datetime",
    "decimal", "difflib", "enum", "fractions", "functools", "hashlib", "heapq", "html", "inspect", "io", "itertools",
    "json", "math", "numbers", "operator", "pathlib", "pprint", "random", "re", "statistics", "string", "struct",
    "textwrap", "threading", "time", "traceback", "typing", "unicodedata", "urllib.parse", "uuid", "warnings", "zlib",
)
# fmt: on
"""What judge programs import, already there when they start. More presets (numpy, sympy) would be more lists like it."""

_SKIPPED_EXTENSIONS = ("_tkinter", "_test", "_xx", "_curses", "readline", "_dbm", "_gdbm", "nis")
_POLL_S = 0.01
"""How closely processor time is watched once it is nearly used up."""


def main() -> NoReturn:
    """Serves the pool over the socket on descriptor 0 until that closes."""
    control = socket.socket(fileno=os.dup(0))
    config = json.loads(control.recv(PACKET_BYTES))
    die_with(config["parent"])
    _warm_up()
    try:
        jail = enter(Level(config["level"]), num_slots=config["num_slots"])
    except JailError as error:
        control.send(json.dumps({"failure": str(error), "step": error.step}).encode())
        sys.exit(1)
    control.send(b"{}")
    number, slot_socket = _serve_zygote(control)
    job, descriptors, started = _serve_slot(slot_socket, jail=jail)
    become_program(jail, slot=number, job=job, descriptors=descriptors, started=started)


def _warm_up() -> None:
    for name in PREIMPORTS:
        importlib.import_module(name)
    _load_shared_libraries()
    _add_site_builtins()
    for stream in (sys.stdout, sys.stderr):
        # Line by line, so that a killed program's last words are there; half a surrogate pair is no reason to fail.
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    gc.collect()
    gc.freeze()


def _load_shared_libraries() -> None:
    """Loads what the standard library's extensions link to: inside the walls, those files do not exist."""
    for directory in [path for path in sys.path if path.endswith("lib-dynload")]:
        for path in sorted(glob.glob(f"{directory}/*.so")):
            if not os.path.basename(path).startswith(_SKIPPED_EXTENSIONS):
                with contextlib.suppress(OSError):  # an extension whose library is not installed here
                    ctypes.CDLL(path)


def _add_site_builtins() -> None:
    """`exit`, `quit` and `help`, which `python -S` leaves out."""
    site = importlib.import_module("site")
    site.setquit()
    site.sethelper()


# ----------------------------------------------------------------------------------------------------------------- zygote


def _serve_zygote(control: socket.socket) -> tuple[int, socket.socket]:
    """Forks a slot for each socket that comes in. Returns in the slot, with its number and its socket."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps slots
    zygote = os.getpid()
    while True:
        packet, descriptors, _, _ = socket.recv_fds(control, PACKET_BYTES, 1)
        if not packet:
            _leave_after_the_slots()
        if not os.fork():
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            die_with(zygote)
            return json.loads(packet)["slot"], socket.socket(fileno=descriptors[0])
        os.close(descriptors[0])


def _leave_after_the_slots() -> NoReturn:
    with contextlib.suppress(ChildProcessError):
        os.wait()  # children are not reaped by us: it returns when the last is gone
    os._exit(0)


# ------------------------------------------------------------------------------------------------------------------- slot


def _serve_slot(pool: socket.socket, *, jail: Jail) -> tuple[Job, Descriptors, int]:
    """Forks a process for each job, watches it and answers. Returns in the program's process."""
    own_pid = os.getpid()
    own_pidfd = os.pidfd_open(own_pid)
    socket.send_fds(pool, [b"{}"], [own_pidfd])
    while True:
        packet, descriptors, _, _ = socket.recv_fds(pool, PACKET_BYTES, 3)
        if not packet:
            os._exit(0)
        if packet == CANCEL:  # the program had ended before the pool knew
            continue
        job = Job.from_packet(packet)
        read_end, write_end = os.pipe()
        start = time.monotonic()
        program = _fork_program(jail, own_pidfd=own_pidfd)
        if not program:
            die_with(own_pid)
            return job, Descriptors(*descriptors), write_end
        for descriptor in (*descriptors, write_end):
            os.close(descriptor)
        ending = _watch(program, job=job, pool=pool, started=read_end, start=start)
        try:
            pool.send(ending.to_packet())
        except BrokenPipeError:
            os._exit(0)


def _fork_program(jail: Jail, *, own_pidfd: int) -> int:
    """Forks, into a new pid namespace if we have them; this process's next children stay in its own."""
    if jail.level is not Level.NAMESPACES:
        return os.fork()
    kernel.unshare(kernel.CLONE_NEWPID)
    program = os.fork()
    if program:
        kernel.setns(own_pidfd, kernel.CLONE_NEWPID)
    return program


def _watch(program: int, *, job: Job, pool: socket.socket, started: int, start: float) -> Ending:
    """Waits for the end of a program, or brings it about. What it said on the way out does not matter here."""
    pidfd = os.pidfd_open(program)
    stopped_by = _wait_for_end(program, pidfd=pidfd, job=job, pool=pool, start=start)
    if stopped_by is not StoppedBy.NOBODY:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    _, status, usage = os.wait4(program, 0)
    said = os.read(started, 4096)
    for descriptor in (pidfd, started):
        os.close(descriptor)
    return Ending(
        failure="" if said == STARTED else said.decode() or "it died before it was isolated",
        wait_status=status,
        stopped_by=stopped_by,
        cpu_s=usage.ru_utime + usage.ru_stime,
        wall_s=time.monotonic() - start,
        max_rss_kb=usage.ru_maxrss,
    )


def _wait_for_end(program: int, *, pidfd: int, job: Job, pool: socket.socket, start: float) -> StoppedBy:
    cpu_clock = ~program << 3 | 2  # clock_getcpuclockid(3), which Python does not have
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.register(pool, select.POLLIN)
    while True:
        wall_left = start + job.wall_s - time.monotonic()
        cpu_left = job.cpu_s - time.clock_gettime(cpu_clock)
        ready = {descriptor for descriptor, _ in poll.poll(1000 * max(_POLL_S, min(wall_left, cpu_left)))}
        if pidfd in ready:
            return StoppedBy.NOBODY
        if ready:
            return StoppedBy.CANCEL
        if wall_left <= 0:
            return StoppedBy.WALL
        if cpu_left <= 0:
            return StoppedBy.CPU
