"""The pool's end of the fork-server: start one, get slots from it, give them jobs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from tirjudge_sandbox.levels import Level
from tirjudge_sandbox.protocol import CANCEL, PACKET_BYTES, Descriptors, Ending, Job

START_S = 30.0
"""A fork-server that takes longer than this to start is broken."""

GRACE_S = 5.0
"""How long a slot may be overdue with its answer, or a process with its end, before it is killed."""

_BOOTSTRAP = """
import importlib, sys, types
package = types.ModuleType("tirjudge_sandbox")
package.__path__ = [sys.argv[1]]
sys.modules["tirjudge_sandbox"] = package
importlib.import_module("tirjudge_sandbox." + sys.argv[2]).main()
"""
"""Imports one module without its package's `__init__`, which would bring the whole judge along."""

ENVIRONMENT = {"PYTHONHASHSEED": "0"}
"""All there is. With the hash seed fixed, a program that is run again prints its sets in the same order."""


def isolated_python(module: str) -> list[str]:
    """The command that runs `main` of a module of this package in a bare interpreter of the standard library."""
    python = getattr(sys, "_base_executable", None) or sys.executable
    package = os.path.dirname(os.path.abspath(__file__))
    return [python, "-P", "-s", "-S", "-B", "-X", "utf8", "-c", _BOOTSTRAP, package, module]


class SlotLost(Exception):
    """A slot did not answer: it, or its fork-server, is dead."""

    def __init__(self, reason: str, *, started: bool) -> None:
        super().__init__(reason)
        self.started = started
        """Whether the program may have started; if not, it can be run again."""


class Slot:
    """The place of one program at a time: a process forked from the fork-server, or the wish for one."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_running = False
        """Whether an answer is owed."""
        self._socket: socket.socket | None = None
        self._pidfd = -1

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    async def open(self, server: ForkServer) -> None:
        """Raises OSError if the fork-server is dead."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            with theirs:
                server.send({"slot": self.number}, theirs.fileno())
            await _readable(ours.fileno(), START_S)
            packet, descriptors, _, _ = socket.recv_fds(ours, PACKET_BYTES, 1)
            if not packet:
                raise OSError("the fork-server died")
        except BaseException:
            ours.close()
            raise
        self._socket, self._pidfd = ours, descriptors[0]

    async def run(self, job: Job, descriptors: Descriptors) -> Ending:
        """Raises SlotLost."""
        if self._socket is None:
            raise SlotLost("the slot is closed", started=False)
        try:
            socket.send_fds(self._socket, [job.to_packet()], descriptors)
        except OSError as error:
            raise SlotLost(f"the job could not be handed over: {error}", started=False) from error
        self.is_running = True
        ending = await self._answer(job.wall_s + GRACE_S)
        if ending.failure:
            raise SlotLost(f"the program could not be isolated: {ending.failure}", started=False)
        return ending

    async def cancel(self) -> None:
        """Kills the program that is running. Raises SlotLost."""
        if self._socket is None:
            raise SlotLost("the slot is closed", started=True)
        with contextlib.suppress(OSError):  # dead: then there is no answer either
            self._socket.send(CANCEL)
        await self._answer(GRACE_S)

    async def _answer(self, timeout_s: float) -> Ending:
        if self._socket is None:
            raise SlotLost("the slot is closed", started=True)
        try:
            await _readable(self._socket.fileno(), timeout_s)
            packet = self._socket.recv(PACKET_BYTES)
        except OSError as error:
            raise SlotLost(f"no answer: {error}", started=True) from error
        if not packet:
            raise SlotLost("its process died", started=True)
        self.is_running = False
        return Ending.from_packet(packet)

    def hang_up(self) -> None:
        """Ends the process and its program; whoever waits for an answer is told at once. `close` must follow."""
        if self._socket is not None:
            with contextlib.suppress(OSError):  # the other end is gone already
                self._socket.shutdown(socket.SHUT_RDWR)

    def kill(self) -> None:
        """For a slot that does not do as it is told."""
        if self._socket is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            os.close(self._pidfd)
            self._socket.close()
            self._socket, self.is_running = None, False


class LevelUnavailable(Exception):
    """This machine does not let a fork-server isolate at a level."""

    def __init__(self, step: str, reason: str) -> None:
        super().__init__(reason)
        self.step = step
        """Which wall could not be put up."""


class ForkServer:
    """A running `zygote`, and the socket over which it is asked for slots. Made by `start_fork_server`."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket, *, level: Level) -> None:
        self.level = level
        self._process = process
        self._control = control

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def send(self, message: Mapping[str, Any], *descriptors: int) -> None:
        """Raises OSError if it is dead."""
        socket.send_fds(self._control, [json.dumps(message).encode()], descriptors)

    async def receive(self) -> dict[str, Any]:
        """Raises OSError if it is dead, or silent for `START_S`."""
        await _readable(self._control.fileno(), START_S)
        packet = self._control.recv(PACKET_BYTES)
        if not packet:
            raise ConnectionResetError("it died")
        return json.loads(packet)

    async def stop(self) -> None:
        """Ends it and everything forked from it. Slots that were hung up before have then reaped their programs."""
        self._control.close()
        if not self.is_alive:
            return
        pidfd = os.pidfd_open(self._process.pid)
        try:
            await _readable(pidfd, GRACE_S)
        except TimeoutError:
            self._process.kill()
            await _readable(pidfd, GRACE_S)
        finally:
            os.close(pidfd)
        self._process.wait()


async def start_fork_server(level: Level, *, num_slots: int) -> ForkServer:
    """A fork-server inside its walls, ready to open slots.

    Raises:
        LevelUnavailable: a wall could not be put up.
    """
    errors = os.memfd_create("stderr")
    try:
        server = _spawn(level, stderr=errors)
        try:
            server.send({"level": level, "num_slots": num_slots, "parent": os.getpid()})
            answer = await server.receive()
        except OSError as error:
            await server.stop()
            last_words = os.pread(errors, PACKET_BYTES, 0).decode(errors="replace").strip()
            raise LevelUnavailable("fork-server", last_words or str(error)) from error
        except BaseException:
            await server.stop()
            raise
    finally:
        os.close(errors)
    if answer:
        await server.stop()
        raise LevelUnavailable(answer["step"], answer["failure"])
    return server


def _spawn(level: Level, *, stderr: int) -> ForkServer:
    """By exec, with nothing of ours in it: no environment, no descriptor but the socket, no session."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    with theirs:
        process = subprocess.Popen(
            isolated_python("zygote"),
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=ENVIRONMENT,
            cwd="/",
            start_new_session=True,
        )
    return ForkServer(process, ours, level=level)


async def _readable(descriptor: int, timeout_s: float) -> None:
    """Raises TimeoutError (an OSError)."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(descriptor, lambda: ready.done() or ready.set_result(None))
    try:
        async with asyncio.timeout(timeout_s):
            await ready
    finally:
        loop.remove_reader(descriptor)
