"""Starts the engines of `tirjudge serve --workers`, and restarts each one that ends.

Each is a process of its own at a port of this machine, with a key that is made for this run and handed over in the
environment. What it writes is logged with its number. One that ends is started again at the same port; none outlives this
process (`worker_guard`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import httpx2

from tirjudge.concurrency import background
from tirjudge.engines.fleet_worker import cancelled
from tirjudge.errors import EngineUnavailable
from tirjudge_server.vllm_command import (
    HOST,
    WorkerModel,
    Workers,
    check_command,
    shares,
    visible_gpus,
    worker_command,
    worker_environment,
)

logger = logging.getLogger(__name__)

output = logging.getLogger(f"{__name__}.output")
output.setLevel(logging.INFO)
"""What workers write is passed on at any level of ours."""

GUARD = Path(__file__).with_name("worker_guard.py")

GRACE_S = 10.0
"""What a worker gets to end by itself."""

RESTART_S = (1.0, 60.0)
"""Before a worker is started again: at first, and at most; doubled each time."""

LASTING_S = 300.0
"""A worker that ran so long is started again without the pauses of its earlier ends."""

LOOK_S = 0.5
"""Between two looks whether a worker is ready."""

PROGRESS_S = 10.0
"""Between two lines that say how many are."""

MAX_LINE = 16 * 1024
"""Longer lines of a worker are logged in pieces."""


@dataclass(slots=True, kw_only=True)
class StartedWorker:
    """One of them."""

    number: int
    url: str
    command: list[str]
    environment: dict[str, str] = field(repr=False)
    has_been_ready: bool = False
    last_line: str = ""
    """That it wrote."""
    num_restarts: int = 0
    _process: asyncio.subprocess.Process | None = field(default=None, repr=False)

    def end(self) -> None:
        """End it, if it runs; `run` then starts it again."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    async def run(self) -> None:
        """Start it, and again whenever it ends, until cancelled.

        Raises:
            EngineUnavailable: it ended before it was ready for the first time.
        """
        pause_s, longest_s = RESTART_S
        while True:
            started = monotonic()
            try:
                how = f"ended with status {await self._run_once()}"
            except OSError as error:
                how = f"cannot be started: {error}"
            if not self.has_been_ready:
                said = f"; its last line: {self.last_line}" if self.last_line else ""
                raise EngineUnavailable(f"worker {self.number} {how} before it was ready{said}")
            if monotonic() - started > LASTING_S:
                pause_s = RESTART_S[0]
            self.num_restarts += 1
            logger.warning("[worker %d] %s; it is started again in %g s", self.number, how, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)

    async def wait_until_ready(self, http: httpx2.AsyncClient) -> None:
        while not self.has_been_ready:
            try:
                response = await http.get(f"{self.url}/health")
                self.has_been_ready = response.status_code == 200
            except httpx2.RequestError:
                pass
            if not self.has_been_ready:
                await asyncio.sleep(LOOK_S)

    async def _run_once(self) -> int:
        """Its exit status."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), str(GRACE_S), *self.command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.environment,
            start_new_session=True,
        )
        assert process.stdout is not None
        self._process = process
        passing_on = asyncio.create_task(self._pass_on(process.stdout))
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
            await asyncio.wait([passing_on], timeout=GRACE_S)
            await cancelled(passing_on)

    async def _pass_on(self, written: asyncio.StreamReader) -> None:
        """Log what it writes, line by line."""
        rest = b""
        while chunk := await written.read(MAX_LINE):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > MAX_LINE:
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._log(line)
        self._log(rest)

    def _log(self, line: bytes) -> None:
        text = line.decode(errors="replace").strip().replace(self.environment["VLLM_API_KEY"], "...")
        if text:
            self.last_line = text
            output.info("[worker %d] %s", self.number, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedWorkers:
    """All of them, ready."""

    workers: Sequence[StartedWorker]
    key: str = field(repr=False)
    """That they ask for."""

    @property
    def urls(self) -> list[str]:
        return [worker.url for worker in self.workers]

    def restart(self, url: str) -> None:
        """Start the one at that URL anew: it hangs."""
        for worker in self.workers:
            if worker.url == url:
                worker.end()


@asynccontextmanager
async def open_workers(served: WorkerModel, *, workers: Workers) -> AsyncIterator[StartedWorkers]:
    """Start workers, wait until all are ready, keep them running, and end them all.

    Raises:
        WorkersRefused: there is no such command, or there are not enough GPUs.
        EngineUnavailable: one ended before it was ready.
    """
    check_command(workers.command)
    key = secrets.token_urlsafe(32)
    gpus_of = shares(visible_gpus(os.environ), workers)
    started = [
        StartedWorker(
            number=number,
            url=f"http://{HOST}:{port}",
            command=worker_command(served, workers=workers, port=port),
            environment=worker_environment(os.environ, key=key, gpus=gpus),
        )
        for number, (port, gpus) in enumerate(zip(free_ports(workers.num_workers), gpus_of, strict=True))
    ]
    running = [asyncio.create_task(worker.run()) for worker in started]
    try:
        await _until_ready(started, running=running)
        yield StartedWorkers(workers=started, key=key)
    finally:
        await asyncio.gather(*(cancelled(task) for task in running))


def free_ports(num: int) -> list[int]:
    """Ports of this machine that are free now."""
    taken = [socket.create_server((HOST, 0)) for _ in range(num)]
    ports = [each.getsockname()[1] for each in taken]
    for each in taken:
        each.close()
    return ports


async def _until_ready(workers: Sequence[StartedWorker], *, running: Sequence[asyncio.Task[None]]) -> None:
    """
    Raises:
        EngineUnavailable: one ended before.
    """
    started = monotonic()
    async with httpx2.AsyncClient(timeout=LOOK_S * 10, trust_env=False) as http:
        waiting = asyncio.gather(*(worker.wait_until_ready(http) for worker in workers))
        async with background(_tell_progress(workers, started=started)):
            try:
                await asyncio.wait([waiting, *running], return_when=asyncio.FIRST_COMPLETED)
            finally:
                await cancelled(waiting)
    for task in running:
        if task.done():
            task.result()
    _tell(workers, started=started)


async def _tell_progress(workers: Sequence[StartedWorker], *, started: float) -> None:
    while True:
        _tell(workers, started=started)
        await asyncio.sleep(PROGRESS_S)


def _tell(workers: Sequence[StartedWorker], *, started: float) -> None:
    num_ready = sum(worker.has_been_ready for worker in workers)
    after_s = monotonic() - started
    print(f"{num_ready} of {len(workers)} workers are ready after {after_s:.0f} s", file=sys.stderr, flush=True)
