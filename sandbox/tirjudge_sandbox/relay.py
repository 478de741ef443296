"""The pool's agent in a container: reads frames from standard input, runs programs in slots, and answers on standard
output.

    pool == docker attach ==> first process -- fork --> relay -- exec --> zygote -- fork --> slot -- fork --> program

The relay ends when its standard input ends, and the container ends with it. This module imports only the
standard library: `containers` sends this package to the container, whose image needs only Python.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Coroutine
from typing import Any, NoReturn

from tirjudge_sandbox.channel import ForwardedCalls
from tirjudge_sandbox.fork_server import ForkServer, start_fork_server
from tirjudge_sandbox.frames import LENGTHS, frame, report_frame
from tirjudge_sandbox.levels import IsolationLevel
from tirjudge_sandbox.packages import find_packages
from tirjudge_sandbox.presets import Preset
from tirjudge_sandbox.protocol import CALLS, ProgramJob
from tirjudge_sandbox.slot_process import LevelUnavailable, SlotLost, SlotProcess


def main() -> NoReturn:
    """Run as the container's first process. Does not return. All other processes of the container die with it."""
    relay = os.fork()
    if relay:
        while os.wait()[0] != relay:  # the first process must reap orphans
            pass
        os._exit(0)
    try:
        asyncio.run(_relay())
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    os._exit(0)


async def _relay() -> None:
    reader, writer = await _connect()
    config, _ = await _read_frame(reader)
    try:
        packages = find_packages(config["packages"])
        server = await start_fork_server(
            IsolationLevel(config["level"]), preset=Preset(config["preset"]), packages=packages
        )
    except LevelUnavailable as error:
        writer.write(frame({"failure": str(error), "step": error.step}))
        await writer.drain()
        return
    writer.write(frame({"offered": sorted(packages.modules)}))
    relay = _Relay(server, writer)
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            header, payload = await _read_frame(reader)
            relay.take(header, payload)


async def _connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return streams for descriptors 0 and 1, and put /dev/null in their places."""
    loop = asyncio.get_running_loop()
    source, target = os.fdopen(os.dup(0), "rb", buffering=0), os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, target)
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)


async def _read_frame(reader: asyncio.StreamReader) -> tuple[dict[str, Any], bytes]:
    num_header, num_payload = LENGTHS.unpack(await reader.readexactly(LENGTHS.size))
    header = json.loads(await reader.readexactly(num_header))
    return header, await reader.readexactly(num_payload)


class _Relay:
    """The slot processes, by the numbers that the pool assigned, and their running programs."""

    def __init__(self, server: ForkServer, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._writer = writer
        self._processes: dict[int, SlotProcess] = {}
        self._running: dict[int, asyncio.Task[None]] = {}
        self._calls: dict[int, ForwardedCalls] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, header: dict[str, Any], payload: bytes) -> None:
        """Start to handle one request."""
        number, request = header["process"], header.get("request", 0)
        match header["do"]:
            case "open":
                self._start(request, self._open(number, slot=header["slot"]))
            case "run":
                job = ProgramJob.from_packet(header["job"].encode())
                calls = self._calls_of(request, max_s=header["calls_s"]) if CALLS in job.channels else None
                work = self._run(number, request=request, job=job, payload=payload, calls=calls)
                self._running[number] = self._start(request, work)
                if calls is not None:
                    self._calls[number] = calls
            case "answer" | "pause" | "resume" | "hang_up" as what if number in self._calls:
                _tell(self._calls[number], what, payload)
            case "cancel":
                self._start(request, self._cancel(number))
            case "close":
                self._close(number)

    def _calls_of(self, request: int, *, max_s: float) -> ForwardedCalls:
        """Return a receiver that forwards the function calls of a program to the pool."""

        def forward(message: bytes) -> None:
            self._writer.write(frame({"request": request, "message": True}, message))

        return ForwardedCalls(forward, max_s=max_s)

    def _start(self, request: int, work: Coroutine[Any, Any, bytes | None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._answer(request, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _answer(self, request: int, work: Coroutine[Any, Any, bytes | None]) -> None:
        """Send the frame that the work returns, or an empty frame, or the reason of a failure."""
        try:
            answer = await work or frame({"request": request})
        except SlotLost as lost:
            answer = frame({"request": request, "lost": str(lost)[:1000], "started": lost.started})
        except OSError as error:
            answer = frame({"request": request, "lost": str(error), "started": False})
        self._writer.write(answer)

    async def _open(self, number: int, *, slot: int) -> None:
        self._processes[number] = await self._server.open_slot(slot, cgroup=None)

    async def _run(
        self, number: int, *, request: int, job: ProgramJob, payload: bytes, calls: ForwardedCalls | None
    ) -> bytes:
        try:
            return report_frame(request, await self._processes[number].run(job, payload, calls=calls))
        finally:
            if self._calls.get(number) is calls:
                self._calls.pop(number, None)

    async def _cancel(self, number: int) -> None:
        """Kill the running program. Its `run` request gets no answer."""
        process = self._processes[number]
        task = self._running.get(number)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        if process.is_running:
            await process.cancel()

    def _close(self, number: int) -> None:
        process = self._processes.pop(number, None)
        task = self._running.pop(number, None)
        if task is not None:
            task.cancel()
        if process is not None:
            process.kill()


def _tell(calls: ForwardedCalls, what: str, payload: bytes) -> None:
    """Do what the pool wants for a program: an answer, the end of the channel, a pause, or its end with the duration of the
    calls."""
    match what:
        case "answer":
            calls.answer(payload)
        case "pause":
            calls.pause()
        case "hang_up":
            calls.hang_up()
        case _:
            calls.resume(float(payload))
