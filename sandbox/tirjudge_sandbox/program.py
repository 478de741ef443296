"""One program, in its own process, from waiting for it to its exit code. Never returns.

The process is forked and closed in while there is no program yet, so that none has to wait for that.

The exit code is Python's own (1 after an uncaught exception, the argument of `sys.exit`), but `EXIT_MEMORY` after an
uncaught MemoryError. A program can forge any of them; it then only lies about itself.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import sys
import threading
import types
from typing import Any, NoReturn

from tirjudge_sandbox.jail import NUM_FILES, Jail, JailError, ProgramSetup, close_in, shut
from tirjudge_sandbox.protocol import EXIT_MEMORY, MAX_DESCRIPTORS, PACKET_BYTES, SCRATCH, ProgramJob

STARTED = b"started"
"""Written to the slot when the walls are up; anything else that comes is the reason why they are not."""

_SOURCE = 3


def become_program(
    jail: Jail, setup: ProgramSetup, *, slot: int, channel: socket.socket, has_thread_limit: bool
) -> NoReturn:
    """Turns this process into the program's: into one that waits for it, closed in, and then into the program itself.

    Args:
        jail: set up around the fork-server.
        setup: prepared by the slot.
        slot: number of the slot, which decides the user.
        channel: from the slot. A job comes, with the first three of `Descriptors`; the answer says that the walls are up.
        has_thread_limit: whether the slot bounds its threads.
    """
    try:
        close_in(jail, setup, slot=slot)
        packet, descriptors, _, _ = socket.recv_fds(channel, PACKET_BYTES, MAX_DESCRIPTORS)
        if not packet:  # the slot is dead
            os._exit(0)
        shut(jail, setup, job=ProgramJob.from_packet(packet), has_thread_limit=has_thread_limit)
    except JailError as error:
        channel.send(str(error).encode())
        os._exit(1)
    channel.send(STARTED)
    _keep_only(*descriptors)
    _run()


def _keep_only(source: int, stdout: int, stderr: int) -> None:
    """Nothing to read on 0 yet, output on 1 and 2, the source on `_SOURCE`, and everything else closed."""
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    source = os.dup2(os.dup(source), _SOURCE)
    os.closerange(source + 1, 4 * NUM_FILES)
    os.dup2(nothing := os.open(os.devnull, os.O_RDONLY), 0)
    os.close(nothing)


def _run() -> NoReturn:
    """As `python program.py` would. The way out is a local name: a program can empty any module it likes."""
    leave = os._exit
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    sys.argv[:] = ["program.py"]
    status = 1
    try:
        try:
            source, bindings = _unpack()
            main.__dict__.update(bindings)
            _seed_again(source)
            exec(compile(source, "program.py", "exec"), main.__dict__)  # noqa: S102 - this process exists for it
            status = 0
        except BaseException as error:
            status = _report(error)
        status = _wind_down(status)
    finally:
        leave(status)


def _unpack() -> tuple[str, dict[str, Any]]:
    """The program and its bindings; lays out its files, and leaves what follows them on the standard input.

    All under the program's own limits: a text may be larger than its memory.
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
    return header["code"], header["bindings"]


def _write_file(path: str, content: bytes) -> None:
    path = f"{SCRATCH}/{path}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


def _seed_again(source: str) -> None:
    """numpy's old generator would be in the same state in every program. Seeding takes as long as all the rest, so it is
    left out where nothing random is mentioned."""
    if "random" in source and (random := sys.modules.get("numpy.random")):
        random.seed()


def _report(error: BaseException) -> int:
    """Prints what Python prints for an uncaught exception, and gives its exit code."""
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        print(error.code, file=sys.stderr)
        return 1
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # the frame that ran it is ours
    sys.excepthook(type(error), error, error.__traceback__)
    return EXIT_MEMORY if isinstance(error, MemoryError) else 1


def _wind_down(status: int) -> int:
    """Waits for threads, runs exit hooks and flushes, in Python's order; a failed flush is exit code 120, as there."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name, None)
        try:
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
        except Exception:  # a program may have put anything there
            status = status or 120
    return status
