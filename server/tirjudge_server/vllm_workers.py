"""Starts the workers of `tirjudge serve --workers`, and restarts a worker when it ends.

Each worker is a separate process that listens on a loopback port. Its API key is generated for this run and passed in the
environment. Its output is logged with its number. A worker that ends is restarted on the same port. `worker_guard` makes
sure that no worker outlives this process.
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
"""Logger of the workers' output, which is logged at INFO regardless of the level of this module's logger."""

GUARD = Path(__file__).with_name("worker_guard.py")

GRACE_S = 10.0
"""Seconds that a worker gets to end after SIGTERM."""

RESTART_S = (1.0, 60.0)
"""Initial and maximum pause in seconds before a restart; the pause doubles with each restart."""

LASTING_S = 300.0
"""A worker that ran for longer than this many seconds is restarted with the initial pause."""

LOOK_S = 0.5
"""Seconds between two readiness checks of a worker."""

PROGRESS_S = 10.0
"""Seconds between two progress lines on stderr."""

MAX_LINE = 16 * 1024
"""Maximum bytes of a line of output; longer lines are logged in pieces."""


@dataclass(slots=True, kw_only=True)
class StartedWorker:
    """One worker."""

    number: int
    """Number of the worker, from 0, for log lines."""
    url: str
    """URL of the worker."""
    command: list[str]
    """Command line of the worker."""
    environment: dict[str, str] = field(repr=False)
    """Environment of the worker, including its API key."""
    has_been_ready: bool = False
    """Whether the worker has been ready at least once."""
    last_line: str = ""
    """Last line of the worker's output."""
    num_restarts: int = 0
    """Number of restarts so far."""
    _process: asyncio.subprocess.Process | None = field(default=None, repr=False)

    def end(self) -> None:
        """Send SIGTERM to the process if it is running; `run` then restarts it."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    async def run(self) -> None:
        """Start the process, and restart it whenever it ends, until cancelled.

        Raises:
            EngineUnavailable: the process ended before it was ready for the first time.
        """
        pause_s, longest_s = RESTART_S
        while True:
            started = monotonic()
            try:
                how = f"ended with status {await self._run_once()}"
            except OSError as error:
                how = f"cannot be started: {error}"
            if not self.has_been_ready:
                detail = f"; its last line: {self.last_line}" if self.last_line else ""
                raise EngineUnavailable(f"worker {self.number} {how} before it was ready{detail}")
            if monotonic() - started > LASTING_S:
                pause_s = RESTART_S[0]
            self.num_restarts += 1
            logger.warning("[worker %d] %s; restarting in %g s", self.number, how, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)

    async def wait_until_ready(self, http: httpx2.AsyncClient) -> None:
        """Poll the worker until it is ready."""
        while not self.has_been_ready:
            try:
                response = await http.get(f"{self.url}/health")
                self.has_been_ready = response.status_code == 200
            except httpx2.RequestError:
                pass
            if not self.has_been_ready:
                await asyncio.sleep(LOOK_S)

    async def _run_once(self) -> int:
        """Run the process to its end; return its exit status."""
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
        logging_output = asyncio.create_task(self._log_output(process.stdout))
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
            await asyncio.wait([logging_output], timeout=GRACE_S)
            await cancelled(logging_output)

    async def _log_output(self, stream: asyncio.StreamReader) -> None:
        """Log the output of the process, line by line."""
        rest = b""
        while chunk := await stream.read(MAX_LINE):
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
    """All workers, ready."""

    workers: Sequence[StartedWorker]
    """The workers."""
    key: str = field(repr=False)
    """API key of the workers."""

    @property
    def urls(self) -> list[str]:
        """URLs of the workers."""
        return [worker.url for worker in self.workers]

    def restart(self, url: str) -> None:
        """Restart the worker with this URL, because it hangs."""
        for worker in self.workers:
            if worker.url == url:
                worker.end()


@asynccontextmanager
async def open_workers(served: WorkerModel, *, workers: Workers) -> AsyncIterator[StartedWorkers]:
    """Start workers, wait until all are ready, and keep them running until the end of the block.

    Args:
        served: the model that the workers serve.
        workers: number and command of the workers.

    Raises:
        WorkersRefused: the command does not exist, or there are not enough GPUs.
        EngineUnavailable: a worker ended before it was ready.
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
    """Return `num` loopback ports that are free now."""
    taken = [socket.create_server((HOST, 0)) for _ in range(num)]
    ports = [each.getsockname()[1] for each in taken]
    for each in taken:
        each.close()
    return ports


async def _until_ready(workers: Sequence[StartedWorker], *, running: Sequence[asyncio.Task[None]]) -> None:
    """Wait until all workers are ready, and print the progress to stderr.

    Raises:
        EngineUnavailable: a worker ended before it was ready.
    """
    started = monotonic()
    async with httpx2.AsyncClient(timeout=LOOK_S * 10, trust_env=False) as http:
        waiting = asyncio.gather(*(worker.wait_until_ready(http) for worker in workers))
        async with background(_print_progress(workers, started=started)):
            try:
                await asyncio.wait([waiting, *running], return_when=asyncio.FIRST_COMPLETED)
            finally:
                await cancelled(waiting)
    for task in running:
        if task.done():
            task.result()
    _print_num_ready(workers, started=started)


async def _print_progress(workers: Sequence[StartedWorker], *, started: float) -> None:
    while True:
        _print_num_ready(workers, started=started)
        await asyncio.sleep(PROGRESS_S)


def _print_num_ready(workers: Sequence[StartedWorker], *, started: float) -> None:
    num_ready = sum(worker.has_been_ready for worker in workers)
    after_s = monotonic() - started
    print(f"{num_ready} of {len(workers)} workers are ready after {after_s:.0f} s", file=sys.stderr, flush=True)
