"""The pool's side of a fork server: start it, open slots, and send them jobs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from tirjudge_sandbox import host_limits, kernel
from tirjudge_sandbox.candidate import MAX_VALUE_CHARS
from tirjudge_sandbox.cgroups import Cgroup, MemoryKill, num_oom_kills
from tirjudge_sandbox.channel import Calls, Channel, open_channel
from tirjudge_sandbox.levels import IsolationLevel
from tirjudge_sandbox.packages import Packages
from tirjudge_sandbox.preload import Preload
from tirjudge_sandbox.presets import Preset
from tirjudge_sandbox.protocol import (
    CALLS,
    CANCEL,
    ENTER,
    ONE_THREAD,
    PACKET_BYTES,
    PAUSE,
    REPORTS,
    RESUME,
    Attachment,
    Ending,
    Printed,
    ProgramJob,
    ProgramReport,
    StoppedBy,
)
from tirjudge_sandbox.slot_process import LevelUnavailable, SlotLost, SlotProcess, SlotServer
from tirjudge_sandbox.watching import MAX_REPORT_BYTES, MAX_REPORTS

START_S = 30.0
"""Timeout in seconds for the start of a fork server."""

GRACE_S = 5.0
"""Seconds that a process has to end before it is killed."""

WATCHDOG_S = 5.0
"""Seconds past a program's wall time limit until its slot is killed. On an overloaded machine a working slot answers
late."""

_POLL_S = 0.002
"""Seconds between checks whether a fork server has ended. Polling is needed because not every kernel has pidfds."""

_STDERR_BYTES = 16_384

_CREDENTIALS, _DESCRIPTOR = struct.Struct("iii"), struct.Struct("i")
"""Ancillary data of a packet: the sender's pid, uid and gid; a descriptor."""

_BOOTSTRAP = """
import importlib, sys, types
package = types.ModuleType("tirjudge_sandbox")
package.__path__ = [sys.argv[1]]
sys.modules["tirjudge_sandbox"] = package
importlib.import_module("tirjudge_sandbox." + sys.argv[2]).main()
"""
"""Imports one module without its package's `__init__`, which would import the whole judge."""

ENVIRONMENT = {"PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "1", **ONE_THREAD}
"""The complete environment of a fork server. A fixed hash seed makes a repeated program print its sets in the same
order. With one malloc arena, a thread takes only its stack of address space."""


def base_python() -> str:
    """Return the interpreter that the virtual environment was created from. It does not find the environment's
    packages."""
    return getattr(sys, "_base_executable", None) or sys.executable


def isolated_python(module: str) -> list[str]:
    """Return the command that runs `main` of a module of this package in an interpreter with only the standard
    library."""
    package = os.path.dirname(os.path.abspath(__file__))
    return [base_python(), "-P", "-s", "-S", "-B", "-X", "utf8", "-c", _BOOTSTRAP, package, module]


class ForkedSlot(SlotProcess):
    """A slot's process, forked from a fork server on this machine. Input and output travel in memory files (memfds)."""

    def __init__(
        self, connection: socket.socket, pid: int, pidfd: int | None, *, server: ForkServer, cgroup: Cgroup | None
    ) -> None:
        self.server = self._server = server
        self.is_open, self.is_running = True, False
        self._socket = connection
        self._pid, self._pidfd = pid, pidfd
        self._cgroup = cgroup
        self._answer: asyncio.Future[bytes] | None = None
        asyncio.get_running_loop().add_reader(connection.fileno(), self._receive)

    async def run(self, job: ProgramJob, payload: bytes, *, calls: Calls | None = None) -> ProgramReport:
        if not self.is_open:
            raise SlotLost("the slot is closed", started=False)
        mounts = await self._server.copy_mounts(job.attachments)
        if mounts:  # the program needs only the mounts, so hide the host's paths from it
            job = replace(job, attachments=tuple(attachment._replace(path="") for attachment in job.attachments))
        try:
            async with _open_files(job, payload, calls=calls, slot=self) as files:
                timeout_s = job.wall_s + WATCHDOG_S + (0.0 if calls is None else calls.max_s)
                ending = await self._ending_of(job, files, mounts, timeout_s=timeout_s)
                return ProgramReport(
                    ending=ending,
                    stdout=_read_ends(files.stdout, limit=job.output_bytes),
                    stderr=_read_ends(files.stderr, limit=4 * _STDERR_BYTES),
                    files=_split(files.fetched, dict(zip(job.fetch, ending.fetched, strict=False))),
                    reports=_read_reports(files.reports),
                    value=_read_value(files.value),
                )
        finally:
            for descriptor in mounts:
                os.close(descriptor)

    async def _ending_of(self, job: ProgramJob, files: _Files, mounts: list[int], *, timeout_s: float) -> Ending:
        start = time.monotonic()
        try:
            if self._cgroup is not None:
                self._cgroup.limit(job.memory_bytes)
            socket.send_fds(self._socket, [job.to_packet()], [*files.sent, *mounts])
        except OSError as error:
            raise SlotLost(f"the job could not be sent: {error}", started=False) from error
        files.close_sockets()
        self.is_running = True
        try:
            ending = Ending.from_packet(await self._packet(timeout_s))
        except SlotLost:
            if self._cgroup is None or self._cgroup.memory_kill() is not MemoryKill.OWN_LIMIT:
                raise
            # The group was out of memory, and the kernel killed the slot's process instead of the program.
            self.kill()
            ending = Ending(
                wait_status=signal.SIGKILL,
                stopped_by=StoppedBy.MEMORY,
                cpu_s=0.0,
                wall_s=time.monotonic() - start,
                max_rss_kb=0,
            )
        if ending.failure:
            raise SlotLost(f"the program could not be isolated: {ending.failure}", started=False)
        memory_kill = self._memory_kill(ending)
        if memory_kill is MemoryKill.LIMIT_AROUND:
            raise SlotLost("the machine ran out of memory, and its kernel ended the program", started=True)
        return replace(ending, stopped_by=StoppedBy.MEMORY) if memory_kill is MemoryKill.OWN_LIMIT else ending

    def _memory_kill(self, ending: Ending) -> MemoryKill:
        """Return why the kernel killed the program, if it did. Without a cgroup, the reason is never the program's
        limit."""
        if self._cgroup is not None:
            return self._cgroup.memory_kill()
        was_killed = ending.was_killed and self._server.memory_ran_out()
        return MemoryKill.LIMIT_AROUND if was_killed else MemoryKill.NONE

    def tell(self, packet: bytes) -> None:
        """Send PAUSE or RESUME. A slot that does not read them counts the calls as wall time."""
        if self.is_open and self.is_running:
            with contextlib.suppress(OSError):
                self._socket.send(packet)

    async def cancel(self) -> None:
        if not self.is_open:
            raise SlotLost("the slot is closed", started=True)
        with contextlib.suppress(OSError):  # the slot is dead; waiting for its answer fails below
            self._socket.send(CANCEL)
        await self._packet(GRACE_S)

    async def _packet(self, timeout_s: float) -> bytes:
        loop = asyncio.get_running_loop()
        self._answer = loop.create_future()
        alarm = loop.call_later(timeout_s, self._give_up)
        self._receive()  # the packet may have arrived already
        try:
            packet = await self._answer
        finally:
            alarm.cancel()
            self._answer = None
        self.is_running = False
        return packet

    def _receive(self) -> None:
        if self._answer is None or self._answer.done():
            # No answer is awaited: the process died, or a cancelled program ended. The next job will notice.
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            return
        try:
            packet = self._socket.recv(PACKET_BYTES)
        except BlockingIOError:
            asyncio.get_running_loop().add_reader(self._socket.fileno(), self._receive)
            return
        except OSError as error:
            # ECONNRESET means that the other end closed its socket without reading the job.
            self._answer.set_exception(
                SlotLost(f"no answer: {error}", started=not isinstance(error, ConnectionResetError))
            )
            return
        if packet:
            self._answer.set_result(packet)
        else:
            self._answer.set_exception(SlotLost("its process died", started=True))

    def _give_up(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._receive()  # the answer may have arrived while the event loop was busy
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(SlotLost("no answer in time", started=True))

    def hang_up(self) -> None:
        if self.is_open:
            with contextlib.suppress(OSError):  # the other end is already closed
                self._socket.shutdown(socket.SHUT_RDWR)

    def kill(self) -> None:
        if self.is_open:
            with contextlib.suppress(ProcessLookupError):
                if self._pidfd is None:
                    os.kill(self._pid, signal.SIGKILL)
                else:
                    signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        if self.is_open:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            if self._pidfd is not None:
                os.close(self._pidfd)
            self._socket.close()
            self.is_open = self.is_running = False
            self._server.num_open -= 1


class ForkServer(SlotServer):
    """A running `zygote` process and its control socket. Created by `start_fork_server`."""

    def __init__(
        self, process: subprocess.Popen[bytes], control: socket.socket, *, level: IsolationLevel, packages: Packages
    ) -> None:
        self.level = level
        self.offered = packages.modules.keys()
        self.started_at = time.monotonic()
        self.num_open = 0
        self._num_kills = num_oom_kills()
        self.mounter: socket.socket | None = None
        """Socket to the helper process that may mount. None: this process mounts."""
        self._mounting = asyncio.Lock()
        self._process = process
        self._control = control

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def resident_bytes(self) -> int:
        return host_limits.resident_bytes(self._process.pid)

    @property
    def writable_bytes(self) -> int:
        return host_limits.writable_bytes(self._process.pid)

    async def open_slot(self, number: int, *, cgroup: Cgroup | None) -> SlotProcess:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        try:
            with theirs:
                clock = [] if cgroup is None else [cgroup.clock]
                self.send({"slot": number}, theirs.fileno(), *clock)
            await _readable(ours.fileno(), START_S)
            pid, pidfd = _greeting(ours)
            if cgroup is not None:
                cgroup.add(pid, base_bytes=host_limits.resident_bytes(pid))
            ours.send(ENTER)
        except BaseException:
            ours.close()
            raise
        self.num_open += 1
        return ForkedSlot(ours, pid, pidfd, server=self, cgroup=cgroup)

    def memory_ran_out(self) -> bool:
        """Whether the OOM killer has killed a process of this process's group since the previous call."""
        before, self._num_kills = self._num_kills, num_oom_kills()
        return self._num_kills > before

    async def copy_mounts(self, attachments: tuple[Attachment, ...]) -> list[int]:
        """Return a mount descriptor for each attachment. Empty at levels where programs see the host's paths.

        Raises:
            OSError: the kernel refused, or does not have the system call.
        """
        if not self.level.has_namespaces:
            return []
        descriptors: list[int] = []
        try:
            for attachment in attachments:
                descriptors.append(await self._copy_mount(attachment.path))
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        return descriptors

    async def _copy_mount(self, path: str) -> int:
        if self.mounter is None:
            return kernel.copy_mount(path)
        async with self._mounting:
            self.mounter.send(os.fsencode(path))
            await _readable(self.mounter.fileno(), GRACE_S)
            packet, descriptors, _, _ = socket.recv_fds(self.mounter, PACKET_BYTES, 1)
        if not descriptors:
            raise OSError(packet.decode() or "the fork server died")
        return descriptors[0]

    def send(self, message: Mapping[str, Any], *descriptors: int) -> None:
        """Send a message with descriptors. Raises OSError if the server is dead."""
        socket.send_fds(self._control, [json.dumps(message).encode()], descriptors)

    async def receive_hello(self, *, within_s: float) -> dict[str, Any]:
        """Wait for the server's greeting. Raises OSError if the server is dead, or silent for `within_s` seconds."""
        await _readable(self._control.fileno(), within_s)
        packet, descriptors, _, _ = socket.recv_fds(self._control, PACKET_BYTES, 1)
        if not packet:
            raise ConnectionResetError("it died")
        if descriptors:
            self.mounter = socket.socket(fileno=descriptors[0])
            self.mounter.setblocking(False)
        return json.loads(packet)

    async def stop(self) -> None:
        self._control.close()
        if self.mounter is not None:
            self.mounter.close()
        for _ in range(round(GRACE_S / _POLL_S)):
            if not self.is_alive:
                return
            await asyncio.sleep(_POLL_S)
        self._process.kill()
        await asyncio.to_thread(self._process.wait, GRACE_S)


async def start_fork_server(
    level: IsolationLevel,
    *,
    preset: Preset,
    packages: Packages,
    preload: Preload | None = None,
    start_s: float | None = None,
) -> ForkServer:
    """Start an isolated fork server, ready to open slots.

    Args:
        level: isolation level.
        preset: packages to import.
        packages: packages that programs may import.
        preload: module to load before the isolation. None: none.
        start_s: maximum time in seconds until it is ready. None: `START_S`.

    Raises:
        LevelUnavailable: an isolation step failed.
    """
    start_s = START_S if start_s is None else start_s
    errors = os.memfd_create("stderr")
    config = {"level": level, "preset": preset, "packages": packages.to_json(), "parent": os.getpid()}
    if preload is not None:
        config["preload"] = preload.to_json()
    try:
        server = _spawn(level, packages=packages, stderr=errors)
        try:
            server.send(config)
            answer = await server.receive_hello(within_s=start_s)
        except OSError as error:
            await server.stop()
            message = os.pread(errors, PACKET_BYTES, 0).decode(errors="replace").strip()
            if isinstance(error, TimeoutError):
                message = f"it was not ready after {start_s:g} s"
            raise LevelUnavailable("fork-server", message or str(error)) from error
        except BaseException:
            await server.stop()
            raise
    finally:
        os.close(errors)
    if answer:
        await server.stop()
        raise LevelUnavailable(answer["step"], answer["failure"])
    return server


def _spawn(level: IsolationLevel, *, packages: Packages, stderr: int) -> ForkServer:
    """Start the process with exec, so that it inherits only the socket: a fixed environment, no other descriptor, a new
    session."""
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
    return ForkServer(process, ours, level=level, packages=packages)


def _greeting(slot: socket.socket) -> tuple[int, int | None]:
    """Return the pid of a slot's process, translated by the kernel to our pid namespace, and its pidfd. The pidfd is
    None on kernels without pidfds. Raises OSError."""
    num_bytes = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(_DESCRIPTOR.size)
    packet, messages, _, _ = slot.recvmsg(PACKET_BYTES, num_bytes)
    if not packet:
        raise OSError("the fork server died")
    found = {kind: data for _, kind, data in messages}
    pid = _CREDENTIALS.unpack(found[socket.SCM_CREDENTIALS])[0]
    descriptor = found.get(socket.SCM_RIGHTS)
    return pid, _DESCRIPTOR.unpack(descriptor)[0] if descriptor else None


class _Files:
    """The memory files and sockets of one program. Memory files, unlike pipes, need no reader, and a kill loses nothing."""

    def __init__(self, job: ProgramJob, payload: bytes, *, calls: socket.socket | None) -> None:
        self._files: list[int] = []
        self._sockets: list[socket.socket] = [] if calls is None else [calls]
        self.reports: socket.socket | None = None
        """Socket on which reports arrive. None: the job has no channel `REPORTS`."""
        self.value = self.fetched = -1
        self.sent: list[int] = []
        """Descriptors to send with the job."""
        source, self.stdout, self.stderr = (self._memory_file(name) for name in ("source", "stdout", "stderr"))
        os.write(source, payload)
        for name in job.channels:
            if name == REPORTS:
                self.reports, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                self.reports.setblocking(False)
                self._sockets.append(theirs)
                self.sent.append(theirs.fileno())
            elif name == CALLS and calls is not None:
                self.sent.append(calls.fileno())
            else:
                self.value = self._memory_file(name)
        if job.fetch:
            self.fetched = self._memory_file("fetched")

    def _memory_file(self, name: str) -> int:
        descriptor = os.memfd_create(name)
        self._files.append(descriptor)
        self.sent.append(descriptor)
        return descriptor

    def close_sockets(self) -> None:
        """Close the program's ends of the sockets here, after they were sent."""
        for each in self._sockets:
            each.close()

    def close(self) -> None:
        """Close everything."""
        self.close_sockets()
        if self.reports is not None:
            self.reports.close()
        for descriptor in self._files:
            os.close(descriptor)


class _ForkedLink:
    """The program of a slot, as the receiver of its calls sees it."""

    def __init__(self, slot: ForkedSlot, channel: Channel) -> None:
        self._slot, self._channel = slot, channel

    def send(self, message: bytes) -> None:
        self._channel.send(message)

    def close(self) -> None:
        self._channel.close()

    def pause(self) -> None:
        self._slot.tell(PAUSE)

    def resume(self, calls_s: float) -> None:
        self._slot.tell(RESUME + f"{calls_s:.6f}".encode())


@contextlib.asynccontextmanager
async def _open_files(
    job: ProgramJob, payload: bytes, *, calls: Calls | None, slot: ForkedSlot
) -> AsyncIterator[_Files]:
    """Open the files of a program, and its channel for function calls. Close them at the end of the block."""
    if calls is None:
        files = _Files(job, payload, calls=None)
        try:
            yield files
        finally:
            files.close()
        return
    channel, theirs = await open_channel(calls.receive)
    calls.begin(_ForkedLink(slot, channel))
    files = _Files(job, payload, calls=theirs)
    try:
        yield files
    finally:
        channel.close()
        files.close()
        await calls.end()


def _read_reports(reports: socket.socket | None) -> tuple[str, ...]:
    """Return the reports that have arrived, without repetitions."""
    found: dict[str, None] = {}
    for _ in range(0 if reports is None else MAX_REPORTS):
        try:
            packet = reports.recv(MAX_REPORT_BYTES) if reports is not None else b""
        except BlockingIOError:
            break
        if not packet:
            break
        found[packet.decode(errors="replace")] = None
    return tuple(found)


def _read_value(descriptor: int) -> str | None:
    """Return the value that a candidate's function returned, as JSON; None if there is none, or it is too large or not as
    `call_in` writes it. The candidate can write anything."""
    num_bytes = 0 if descriptor < 0 else os.fstat(descriptor).st_size
    if not 0 < num_bytes <= MAX_VALUE_CHARS:
        return None
    text = os.pread(descriptor, num_bytes, 0).decode("latin-1")
    return text if text.isascii() and text.isprintable() else None


def _read_ends(descriptor: int, *, limit: int) -> Printed:
    """Read a file. If it is longer than `limit`, read the first three quarters and the last quarter of `limit`
    bytes."""
    num_bytes = os.fstat(descriptor).st_size
    if num_bytes <= limit:
        return Printed(num_bytes, os.pread(descriptor, limit, 0) if num_bytes else b"", b"")
    num_tail = limit // 4
    head, tail = os.pread(descriptor, limit - num_tail, 0), os.pread(descriptor, num_tail, num_bytes - num_tail)
    return Printed(num_bytes, head, tail)


def _split(descriptor: int, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """Return path -> content of the fetched files, which are concatenated in one file. Negative sizes are skipped."""
    files: dict[str, bytes] = {}
    position = 0
    for path, size in sizes.items():
        if size >= 0:
            files[path] = os.pread(descriptor, size, position)
            position += size
    return files


async def _readable(descriptor: int, timeout_s: float) -> None:
    """Wait until a descriptor is readable. Raises TimeoutError (an OSError).

    If the event loop was blocked for longer than the timeout, the descriptor may have become readable in the meantime. That
    is no timeout.
    """
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(descriptor, lambda: ready.done() or ready.set_result(None))
    try:
        async with asyncio.timeout(timeout_s):
            await ready
    except TimeoutError:
        now = select.poll()
        now.register(descriptor, select.POLLIN)
        if not now.poll(0):
            raise
    finally:
        loop.remove_reader(descriptor)
