"""Run one program in its process: wait for the job, apply the last restrictions, execute the code, exit. Never returns.

The process is forked and isolated before a program arrives, so that programs do not wait for this.

The exit code is Python's (1 after an uncaught exception, or the argument of `sys.exit`), but `EXIT_MEMORY` after an
uncaught MemoryError. A program can forge its exit code, which affects only its own result.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import select
import socket
import sys
import threading
import types
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from tirjudge_sandbox.candidate import call_in
from tirjudge_sandbox.guest import HostConnection, install
from tirjudge_sandbox.jail import NUM_FILES, Jail, JailError, ProgramSetup, close_in, shut
from tirjudge_sandbox.packages import PackageFinder
from tirjudge_sandbox.protocol import (
    CALLS,
    EXIT_MEMORY,
    MAX_DESCRIPTORS,
    PACKET_BYTES,
    REPORTS,
    SCRATCH,
    VALUE,
    ProgramJob,
)
from tirjudge_sandbox.watching import PROGRAM, watch

STARTED = b"started"
"""Message to the slot when the process is fully isolated. Any other message is the reason why isolation failed."""

_SOURCE = 3
"""Descriptor of the program's source."""


def become_program(
    jail: Jail,
    setup: ProgramSetup,
    *,
    slot: int,
    channel: socket.socket,
    has_thread_limit: bool,
    rehearsal: Callable[[], Iterable[object]] | None = None,
) -> NoReturn:
    """Isolate this process, wait for a job, and run its program.

    Args:
        jail: result of `jail.enter`.
        setup: result of `jail.prepare`.
        slot: number of the slot, which determines the user id.
        channel: socket to the slot. It delivers the job and the first three of `Descriptors`; the answer is `STARTED`
            or the reason why isolation failed.
        has_thread_limit: whether the slot limits the number of threads.
        rehearsal: returns short steps to run while no job has arrived. None: none.
    """
    try:
        close_in(jail, setup, slot=slot)
        if rehearsal is not None:
            _rehearse(rehearsal, until=channel)
        packet, descriptors, _, _ = socket.recv_fds(channel, PACKET_BYTES, MAX_DESCRIPTORS)
        if not packet:  # the slot is dead
            os._exit(0)
        job = ProgramJob.from_packet(packet)
        shut(jail, setup, job=job, has_thread_limit=has_thread_limit)
    except JailError as error:
        channel.send(str(error).encode())
        os._exit(1)
    channel.send(STARTED)
    _keep_only(*descriptors)
    _run({name: _SOURCE + 1 + number for number, name in enumerate(job.channels)})


def _rehearse(rehearsal: Callable[[], Iterable[object]], *, until: socket.socket) -> None:
    """Run the steps of a preloaded module until a job arrives. The memory that they write is then this process's own, so that
    the program does not wait for the kernel to copy it."""
    poll = select.poll()
    poll.register(until, select.POLLIN)
    for _ in rehearsal():
        if poll.poll(0):
            return


def _keep_only(source: int, stdout: int, stderr: int, *channels: int) -> None:
    """Set up the descriptors: /dev/null on 0, output on 1 and 2, the source on `_SOURCE`, the channels after it; close all
    others."""
    kept = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, NUM_FILES // 2) for descriptor in (source, *channels)]
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    for number, descriptor in enumerate(kept):
        os.dup2(descriptor, _SOURCE + number)
    os.closerange(_SOURCE + len(kept), 4 * NUM_FILES)
    os.dup2(nothing := os.open(os.devnull, os.O_RDONLY), 0)
    os.close(nothing)


def _run(channels: dict[str, int]) -> NoReturn:
    """Run the program as `python program.py` does. `os._exit` is kept in a local name because a program can modify any
    module.

    Args:
        channels: name of a channel of the job -> its descriptor.
    """
    leave = os._exit
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    sys.argv[:] = ["program.py"]
    status = 1
    try:
        try:
            header = _unpack()
            source, call = header["code"], header.get("call")
            main.__dict__.update(header["bindings"])
            _seed_again(source)
            code = compile(source, PROGRAM, "exec")
            if CALLS in channels:
                install(header["functions"], connection=HostConnection(channels[CALLS]), namespace=main.__dict__)
            if REPORTS in channels:
                _watch(header, descriptor=channels[REPORTS])
            if call is not None:
                main.__dict__["__name__"] = "candidate"
            exec(code, main.__dict__)  # noqa: S102 - this process exists for it
            if call is not None:
                value = call_in(main.__dict__, call["name"], call["args"], call["kwargs"])
                os.pwrite(channels[VALUE], value.encode(), 0)
            status = 0
        except BaseException as error:
            status = _report(error)
        status = _wind_down(status)
    finally:
        leave(status)


def _watch(header: dict[str, Any], *, descriptor: int) -> None:
    """Watch the program for the execution of the bindings that the header names."""
    values = [header["bindings"][name] for name in header["watched"]]
    texts = [text for value in values for text in ([value] if isinstance(value, str) else value.values())]
    watch(
        header["code"],
        texts,
        descriptor=descriptor,
        refuses=header["refuses"],
        scratch=SCRATCH,
        libraries=[path for finder in sys.meta_path if isinstance(finder, PackageFinder) for path in finder.paths],
    )


def _unpack() -> dict[str, Any]:
    """Return the header of the program. Write its files, and make the rest of the payload its standard input.

    This runs under the program's limits, because the texts may be larger than its memory limit.
    """
    os.lseek(_SOURCE, 0, os.SEEK_SET)
    with open(_SOURCE, "rb") as file:
        header = json.loads(file.readline())
        for path, num_bytes in header["files"]:
            _write_file(path, file.read(num_bytes))
        position = file.tell()
        if position < os.fstat(_SOURCE).st_size:
            os.lseek(_SOURCE, position, os.SEEK_SET)
            os.dup2(_SOURCE, 0)
    return header


def _write_file(path: str, content: bytes) -> None:
    path = f"{SCRATCH}/{path}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


def _seed_again(source: str) -> None:
    """Seed numpy's legacy random generator, which has the same state in every forked process. Seeding takes as long as
    the rest of the start, so it is skipped for programs that do not contain the word "random"."""
    if "random" in source and (random := sys.modules.get("numpy.random")):
        random.seed()


def _report(error: BaseException) -> int:
    """Print an uncaught exception as Python does, and return the exit code."""
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        print(error.code, file=sys.stderr)
        return 1
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # drop the frame of this file
    sys.excepthook(type(error), error, error.__traceback__)
    return EXIT_MEMORY if isinstance(error, MemoryError) else 1


def _wind_down(status: int) -> int:
    """Wait for threads, run exit hooks and flush the streams, in Python's order. A failed flush gives exit code 120."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name, None)
        try:
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
        except Exception:  # the program may have replaced the stream with any object
            status = status or 120
    return status
