"""Fork servers in containers: each has a container that is started once and controlled over its standard streams.

A program may take over the inside of its container. The container's output is therefore bounded and checked. The
container has no network, no host directory and no writable file system except a small /tmp. It ends when this process
ends, because its standard input is then closed. The sandbox code is sent over standard input too, so the Docker daemon
needs no access to this process's files: it may run outside the container of this process, or on another machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import io
import itertools
import json
import os
import secrets
import socket
import struct
import time
import zipfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tirjudge_sandbox.candidate import MAX_VALUE_CHARS
from tirjudge_sandbox.cgroups import Cgroup, start_of
from tirjudge_sandbox.channel import Calls, Link
from tirjudge_sandbox.fork_server import GRACE_S, WATCHDOG_S
from tirjudge_sandbox.frames import HEADER_BYTES, LENGTHS, frame, report_from
from tirjudge_sandbox.jail import NUM_THREADS
from tirjudge_sandbox.levels import IsolationLevel
from tirjudge_sandbox.messages import MAX_MESSAGE_BYTES
from tirjudge_sandbox.presets import Preset
from tirjudge_sandbox.protocol import ProgramJob, ProgramReport
from tirjudge_sandbox.slot_process import LevelUnavailable, SlotLost, SlotProcess, SlotServer

START_S = 60.0
"""Timeout in seconds for the start of a container."""

DAEMON_S = 30.0
"""Timeout in seconds of requests to the Docker daemon. The daemon hangs if a runtime hangs, as gVisor does on some
virtual machines."""

RELAY_S = 2.0
"""Seconds added to the slot's own timeout, so that the slot in the container reports an overdue program first."""

LABEL = "tirjudge.sandbox"
"""Label of our containers. Its value identifies the owner process: see `owner_label`."""

GVISOR_RUNTIME = "runsc"
"""Name of the gVisor runtime in the configuration of the Docker daemon."""

_BOOTSTRAP = """
import importlib, os, sys, types
def read(left):
    parts = []
    while left:
        parts.append(os.read(0, left))
        left -= len(parts[-1]) or sys.exit("the standard input ended")
    return b"".join(parts)
with open("/tmp/tirjudge.zip", "wb") as file:
    file.write(read(int.from_bytes(read(4), "big")))
package = types.ModuleType("tirjudge_sandbox")
package.__path__ = ["/tmp/tirjudge.zip/tirjudge_sandbox"]
sys.modules["tirjudge_sandbox"] = package
importlib.import_module("tirjudge_sandbox.relay").main()
"""

_MIB = 1 << 20
_BASE_BYTES = 768 * _MIB
"""Memory for the warm interpreters, the relay, and gVisor's kernel."""
_BYTES_PER_SLOT = 256 * _MIB
"""Memory per slot in addition to the program's own memory: the slot process and the program's output."""
_GVISOR_TASKS = 1000
"""Maximum number of threads of gVisor itself. gVisor dies if it cannot start enough threads."""
_FIRST_USER, _NUM_USERS = 60_578, 600
"""User ids that no distribution assigns, so that the kernel counts no foreign process toward our process limit."""

_CHUNK = struct.Struct(">BxxxI")
_STANDARD_OUTPUT = 1
_LAST_ERRORS_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPlan:
    """Settings that all containers of a pool share."""

    image: str
    """Docker image to run in."""
    level: IsolationLevel
    """`GVISOR` or `DOCKER`."""
    num_slots: int
    """Number of slots that the container may open."""
    packages: tuple[str, ...]
    """Names of distributions to offer to programs. Distributions that the image does not have are skipped."""
    memory_bytes: int
    """Largest memory limit that a program may request."""
    output_bytes: int
    """Largest output of one program."""


async def start_container(plan: ContainerPlan, *, preset: Preset) -> ContainerServer:
    """Start a fork server in a new container, ready to open slots.

    Raises:
        LevelUnavailable: the container could not be started. The container is removed.
    """
    creation = asyncio.create_task(asyncio.to_thread(_Container.create, plan))
    try:
        container = await asyncio.shield(creation)
    except asyncio.CancelledError:
        with contextlib.suppress(LevelUnavailable):
            container = await creation
            container.streams.close()
            await asyncio.to_thread(container.remove)
        raise
    reader, writer = await asyncio.open_unix_connection(sock=container.streams)
    server = ContainerServer(container, reader, writer, output_bytes=plan.output_bytes)
    config = {"level": plan.level, "preset": preset, "packages": plan.packages}
    try:
        await server.greet(config)
    except BaseException:
        await server.stop()
        raise
    return server


class ContainerServer(SlotServer):
    """A running container and the relay in it. Created by `start_container`."""

    def __init__(
        self, container: _Container, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, output_bytes: int
    ) -> None:
        self.started_at = time.monotonic()
        self.num_open = 0
        self.offered: Collection[str] = ()
        self._container = container
        self._output = _Output(reader)
        self._writer = writer
        self._max_body_bytes = output_bytes + 65_536 + max(4 * MAX_VALUE_CHARS, MAX_MESSAGE_BYTES)
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[tuple[dict[str, Any], bytes]]] = {}
        self._calls: dict[int, tuple[Calls, Link]] = {}
        self._is_alive = True
        self._removal: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None

    @property
    def is_alive(self) -> bool:
        return self._is_alive

    async def greet(self, config: dict[str, Any]) -> None:
        """Send the sandbox code and wait for the relay's greeting. Raises LevelUnavailable."""
        code = _package()
        self._writer.write(b"".join([len(code).to_bytes(4, "big"), code, frame(config)]))
        try:
            async with asyncio.timeout(START_S):
                hello, _ = await self._read_frame()
        except TimeoutError as error:
            raise LevelUnavailable("container", f"it was not ready after {START_S:g} s") from error
        except (OSError, EOFError, ValueError) as error:
            with contextlib.suppress(TimeoutError, OSError, EOFError):
                async with asyncio.timeout(GRACE_S):
                    await self._output.exactly(1 << 20)  # read to the end: the error message may come late
            reason = self._output.last_errors.decode(errors="replace").strip() or str(error) or "it ended immediately"
            raise LevelUnavailable("container", reason) from error
        if "offered" not in hello:
            raise LevelUnavailable(str(hello.get("step")), str(hello.get("failure")))
        self.offered = frozenset(map(str, hello["offered"]))
        self._listening = asyncio.create_task(self._listen())

    async def open_slot(self, number: int, *, cgroup: Cgroup | None) -> SlotProcess:
        process = ContainedSlot(next(self._numbers), server=self)
        try:
            answer, _ = await self.ask("open", process.number, slot=number, timeout_s=START_S)
        except SlotLost as lost:
            raise OSError(str(lost)) from lost
        except asyncio.CancelledError:
            process.close()
            raise
        if "lost" in answer:
            raise OSError(str(answer["lost"]))
        self.num_open += 1
        process.is_counted = True
        return process

    async def stop(self) -> None:
        self.give_up("it was stopped")
        if self._removal is not None:
            await self._removal
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])

    def give_up(self, reason: str) -> None:
        """End the container. Pending requests fail with `SlotLost`."""
        self._is_alive = False
        self._writer.close()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(SlotLost(f"the container is gone: {reason}", started=True))
        if self._removal is None:
            self._removal = asyncio.create_task(asyncio.to_thread(self._container.remove))

    def tell(self, do: str, process: int, *parts: bytes, **fields: Any) -> None:
        """Send a message without waiting for an answer. Do nothing if the container has ended."""
        if self._is_alive:
            self._writer.write(frame({"do": do, "process": process, **fields}, *parts))

    async def ask(
        self, do: str, process: int, *parts: bytes, timeout_s: float, calls: Calls | None = None, **fields: Any
    ) -> tuple[dict[str, Any], bytes]:
        """Send a request and return its answer. Raises SlotLost.

        Args:
            do: kind of request.
            process: number of the slot's process.
            parts: data of the request.
            timeout_s: timeout in seconds. The container is ended after it.
            calls: receives the messages that come before the answer. None: there are none.
            fields: further fields of the request.
        """
        if not self._is_alive:
            raise SlotLost("the container is gone", started=False)
        request = next(self._numbers)
        answer = self._waiting[request] = asyncio.get_running_loop().create_future()
        if calls is not None:
            link = _ContainedLink(self, process)
            calls.begin(link)
            self._calls[request] = calls, link
        self.tell(do, process, *parts, request=request, **fields)
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError as error:
            self.give_up("it did not answer in time")
            raise SlotLost("no answer in time", started=True) from error
        finally:
            del self._waiting[request]
            if calls is not None:
                del self._calls[request]
                await calls.end()

    async def _listen(self) -> None:
        try:
            while True:
                header, body = await self._read_frame()
                request = header.get("request", 0)
                answer = self._waiting.get(request)
                if "message" in header:
                    self._receive(request, body)
                elif answer is not None and not answer.done():
                    answer.set_result((header, body))
        except (OSError, EOFError, ValueError) as error:
            errors = self._output.last_errors.decode(errors="replace").strip()
            self.give_up(errors or str(error) or "it ended")

    def _receive(self, request: int, message: bytes) -> None:
        """Take a message of a program."""
        calls, link = self._calls.get(request, (None, None))
        if calls is None or link is None:
            return
        try:
            calls.receive(message)
        except ValueError:
            link.close()

    async def _read_frame(self) -> tuple[dict[str, Any], bytes]:
        """Read one frame. Raises EOFError or OSError at the end of the stream, ValueError if the frame is not valid."""
        num_header, num_body = LENGTHS.unpack(await self._output.exactly(LENGTHS.size))
        if num_header > HEADER_BYTES or num_body > self._max_body_bytes:
            raise ValueError("it sent a frame over the size limit")
        try:
            header = json.loads(await self._output.exactly(num_header))
        except RecursionError as error:
            raise ValueError("it sent an invalid header") from error
        if not isinstance(header, dict) or not isinstance(header.get("request", 0), int):
            raise ValueError("it sent an invalid header")
        return header, await self._output.exactly(num_body)


class _ContainedLink:
    """The program of a slot in a container, as the receiver of its calls sees it."""

    def __init__(self, server: ContainerServer, process: int) -> None:
        self._server, self._process = server, process

    def send(self, message: bytes) -> None:
        self._server.tell("answer", self._process, message)

    def close(self) -> None:
        self._server.tell("hang_up", self._process)

    def pause(self) -> None:
        self._server.tell("pause", self._process)

    def resume(self, calls_s: float) -> None:
        self._server.tell("resume", self._process, f"{calls_s:.6f}".encode())


class ContainedSlot(SlotProcess):
    """A slot's process in a container, identified by its number there."""

    def __init__(self, number: int, *, server: ContainerServer) -> None:
        self.number = number
        self.server = self._server = server
        self.is_open, self.is_running = True, False
        self.is_counted = False
        """Whether the server's `num_open` includes this process."""
        self._hung_up = asyncio.Event()

    async def run(self, job: ProgramJob, payload: bytes, *, calls: Calls | None = None) -> ProgramReport:
        if not self.is_open:
            raise SlotLost("the slot is closed", started=False)
        self.is_running = True
        calls_s = 0.0 if calls is None else calls.max_s
        timeout_s = job.wall_s + WATCHDOG_S + RELAY_S + calls_s
        packet = job.to_packet().decode()
        header, body = await self._ask("run", payload, job=packet, timeout_s=timeout_s, calls=calls, calls_s=calls_s)
        self.is_running = False
        if "lost" in header:
            raise SlotLost(str(header["lost"]), started=header.get("started") is not False)
        try:
            return report_from(header, body)
        except ValueError as error:
            self._server.give_up(str(error))
            raise SlotLost(f"the container sent an invalid report: {error}", started=True) from error

    async def cancel(self) -> None:
        if not self.is_open:
            raise SlotLost("the slot is closed", started=True)
        header, _ = await self._ask("cancel", timeout_s=GRACE_S + RELAY_S)
        self.is_running = False
        if "lost" in header:
            raise SlotLost(str(header["lost"]), started=True)

    async def _ask(
        self, do: str, *parts: bytes, timeout_s: float, calls: Calls | None = None, **fields: Any
    ) -> tuple[dict[str, Any], bytes]:
        asking = asyncio.ensure_future(
            self._server.ask(do, self.number, *parts, timeout_s=timeout_s, calls=calls, **fields)
        )
        hanging_up = asyncio.ensure_future(self._hung_up.wait())
        try:
            await asyncio.wait([asking, hanging_up], return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise SlotLost("its process was ended", started=True)
            return asking.result()
        finally:
            hanging_up.cancel()
            asking.cancel()
            if calls is not None:
                await asyncio.wait([asking])  # its calls have ended then

    def hang_up(self) -> None:
        self._hung_up.set()
        self._server.tell("close", self.number)

    def kill(self) -> None:
        self.close()

    def close(self) -> None:
        if self.is_open:
            self._server.tell("close", self.number)
            self.is_open = self.is_running = False
            self._server.num_open -= self.is_counted


class _Output:
    """The standard output of a container. The daemon sends it together with the standard error in one multiplexed
    stream."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._num_left = 0
        self.last_errors = b""
        """The last 4 KiB of the standard error."""

    async def exactly(self, num_bytes: int) -> bytes:
        """Read a number of bytes. Raises EOFError (IncompleteReadError is a subclass) at the end of the stream."""
        parts = []
        while num_bytes:
            while not self._num_left:
                await self._next_chunk()
            parts.append(await self._some(min(num_bytes, self._num_left)))
            num_bytes -= len(parts[-1])
            self._num_left -= len(parts[-1])
        return b"".join(parts)

    async def _next_chunk(self) -> None:
        kind, num_bytes = _CHUNK.unpack(await self._reader.readexactly(_CHUNK.size))
        if kind == _STANDARD_OUTPUT:
            self._num_left = num_bytes
            return
        while num_bytes:
            part = await self._some(num_bytes)
            self.last_errors = (self.last_errors + part)[-_LAST_ERRORS_BYTES:]
            num_bytes -= len(part)

    async def _some(self, num_bytes: int) -> bytes:
        part = await self._reader.read(min(num_bytes, 1 << 16))
        if not part:
            raise EOFError
        return part


class _Container:
    """A container and the client of its Docker daemon. The methods block."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self._name = name
        self.streams: socket.socket
        """Socket attached to the container's standard streams."""

    @classmethod
    def create(cls, plan: ContainerPlan) -> _Container:
        """Start a container. Raises LevelUnavailable, after removing the container."""
        try:
            docker = importlib.import_module("docker")
        except ImportError as error:
            raise LevelUnavailable("docker", "the Docker SDK for Python is not installed") from error
        try:
            client = docker.from_env(timeout=DAEMON_S)
        except docker.errors.DockerException as error:
            raise LevelUnavailable("docker", f"the daemon cannot be reached: {error}") from error
        container = cls(client, f"tirjudge-{os.getpid()}-{secrets.token_hex(4)}")
        try:
            container._start(plan)
        except BaseException as error:
            if hasattr(container, "streams"):
                container.streams.close()
            container.remove()
            if isinstance(error, docker.errors.ImageNotFound):
                raise LevelUnavailable("image", f"the daemon has no image {plan.image}") from error
            # The SDK does not wrap errors of its HTTP client; they are OSErrors.
            if isinstance(error, (docker.errors.DockerException, OSError)):
                raise LevelUnavailable("container", str(error)) from error
            raise
        return container

    def _start(self, plan: ContainerPlan) -> None:
        if plan.level is IsolationLevel.GVISOR and GVISOR_RUNTIME not in self._client.info().get("Runtimes", ()):
            raise LevelUnavailable("runtime", f"the daemon has no runtime {GVISOR_RUNTIME}")
        _sweep(self._client)
        container = self._client.containers.create(name=self._name, **_options(plan))
        if container.attrs["Mounts"]:
            raise LevelUnavailable("image", "the image declares volumes, which programs could share")
        attached = container.attach_socket(params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
        self.streams = _plain_socket(attached)
        container.start()

    def remove(self) -> None:
        """Wait for the container to end, which closing its standard input causes. Kill it if it does not end in
        time."""
        errors = importlib.import_module("docker").errors
        try:
            with contextlib.suppress(errors.DockerException, OSError):
                if self._client.api.inspect_container(self._name)["State"]["Running"]:
                    self._client.api.wait(self._name, timeout=GRACE_S, condition="removed")
            for _ in range(10):  # removing a container that is already being removed is an error too
                with contextlib.suppress(errors.DockerException, OSError):
                    self._client.api.remove_container(self._name, v=True, force=True)
                try:
                    self._client.api.inspect_container(self._name)
                except errors.NotFound:
                    return
                except (errors.DockerException, OSError):
                    pass
                time.sleep(0.2)
        finally:
            self._client.close()


def _options(plan: ContainerPlan) -> dict[str, Any]:
    """Return the options of a container that can only compute: no network, no privileges, no writable files but
    /tmp."""
    docker_types = importlib.import_module("docker").types
    memory_bytes = _BASE_BYTES + plan.num_slots * (plan.memory_bytes + _BYTES_PER_SLOT)
    num_tasks = (NUM_THREADS + 8) * plan.num_slots + 64
    options = {
        "image": plan.image,
        "entrypoint": ["python3", "-I", "-B", "-X", "utf8", "-c", _BOOTSTRAP],
        "command": [],
        "labels": {LABEL: owner_label(os.getpid())},
        "stdin_open": True,
        "tty": False,
        "working_dir": "/",
        "hostname": "sandbox",
        "network_mode": "none",
        "ipc_mode": "none",  # also removes /dev/shm
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "mem_limit": memory_bytes,
        "memswap_limit": memory_bytes,
        "pids_limit": num_tasks,
        "init": False,
        "auto_remove": True,
        "healthcheck": {"test": ["NONE"]},
        "log_config": docker_types.LogConfig(type="none"),  # the default keeps all output on the host's disk
    }
    if plan.level is IsolationLevel.GVISOR:
        # These capabilities apply to gVisor's kernel, not to the host's. They are needed to hide the image's files and
        # to give each slot its user. Programs do not have them.
        options |= {
            "runtime": GVISOR_RUNTIME,
            "user": "0:0",
            "cap_add": ["SYS_ADMIN", "SYS_CHROOT", "SETUID", "SETGID", "KILL"],
            "pids_limit": _GVISOR_TASKS + 4 * num_tasks,
            "tmpfs": {"/tmp": "size=4m,mode=0700"},
        }
    else:
        user = _FIRST_USER + os.getpid() % _NUM_USERS
        options |= {"user": f"{user}:{user}", "tmpfs": {"/tmp": f"size=4m,mode=0700,uid={user},gid={user}"}}
    return options


def _plain_socket(stream: Any) -> socket.socket:
    """Return a non-blocking socket of an attached stream. The SDK returns a wrapper that depends on the transport."""
    plain = getattr(stream, "_sock", stream)
    if type(plain) is not socket.socket:
        stream._response.close()
        raise LevelUnavailable("docker", "the daemon must be reached over a Unix socket, or TCP without TLS")
    streams = plain.dup()
    streams.setblocking(False)
    stream._response.close()
    return streams


@functools.cache
def _package() -> bytes:
    """Return this package's source as a zip file that Python can import."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path in sorted(Path(__file__).parent.glob("*.py")):
            archive.write(path, f"tirjudge_sandbox/{path.name}")
    return buffer.getvalue()


# -------------------------------------------------------------------------------------------------------- stale containers


def _sweep(client: Any) -> None:
    """Remove containers that outlived their owner process."""
    errors = importlib.import_module("docker").errors
    for container in client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True):
        if _is_stale(container.labels.get(LABEL, "")):
            with contextlib.suppress(errors.APIError):
                container.remove(force=True, v=True)


def _is_stale(owner: str) -> bool:
    """Whether the owner process is dead. False for an owner in another pid namespace, which cannot be checked from
    here."""
    namespace, _, process = owner.partition(" ")
    pid, _, start = process.partition(" ")
    return namespace == _pid_namespace() and pid.isdecimal() and start_of(int(pid)) != start


def owner_label(pid: int) -> str:
    """Return the value of `LABEL` that identifies a process: boot and pid namespace, pid, start time."""
    return f"{_pid_namespace()} {pid} {start_of(pid)}"


def _pid_namespace() -> str:
    """Return a string that identifies this boot of the machine and the pid namespace of this process."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
