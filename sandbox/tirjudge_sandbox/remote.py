"""`RemoteSandbox`: a client of several sandbox services that runs programs as a pool in this process would.

    async with RemoteSandbox(["http://host-a:8090", "http://host-b:8090"], key="...") as sandbox:
        result = await sandbox.run("print(6 * 7)")

Each program goes to the worker that has the fewest of ours. It goes to another one only if it certainly did not start: no
connection, a full queue, a worker that says so. A worker that cannot be reached gets no more programs until it is ready.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import httpx2

from tirjudge.errors import SandboxBusy, SandboxUnavailable
from tirjudge.http.exchange import CONNECT_S, KEEPALIVE_S, UNREACHED, retry_after_s, tls_context
from tirjudge.http.workers import Worker, least_busy
from tirjudge.types import ExecResult
from tirjudge_sandbox.limits import Limits
from tirjudge_sandbox.wire import EXECUTE_PATH, encoded, result_of_body, to_json

_LOOK_S = 0.25
"""How often a program that found no worker looks for one."""


@dataclass(slots=True, eq=False)
class SandboxWorker(Worker):
    """One service, as this client sees it."""

    rests_until: float = 0.0
    """When its queue may have room again, on the monotonic clock."""


class NotStarted(Exception):
    """The program did not start there; another worker may take it."""


class RemoteSandbox:
    """Talks to one or more services; use it as `async with`.

    Args:
        urls: of the services, such as `http://127.0.0.1:8090`.
        key: that they ask for; None: they ask for none.
        timeout_s: longest wait for one program, its time in the worker's queue included.
        max_wait_s: longest wait for a worker that takes a program at all.
        transport: another way to them than a socket.

    Raises:
        ValueError: no URL.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        key: str | None = None,
        timeout_s: float = 600.0,
        max_wait_s: float = 60.0,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.workers = [SandboxWorker(url.rstrip("/")) for url in ([urls] if isinstance(urls, str) else urls)]
        if not self.workers:
            raise ValueError("urls: none given, at least one is needed")
        self._max_wait_s = max_wait_s
        self._http = httpx2.AsyncClient(
            headers={} if key is None else {"authorization": f"Bearer {key}"},
            timeout=httpx2.Timeout(timeout_s, connect=CONNECT_S),
            limits=httpx2.Limits(max_connections=None, keepalive_expiry=KEEPALIVE_S),
            transport=transport,
            verify=tls_context(),
        )

    async def __aenter__(self) -> RemoteSandbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await asyncio.gather(*(worker.stop_checking() for worker in self.workers))
        await self._http.aclose()

    async def level(self) -> str:
        """How strictly the workers that are ready isolate programs; several levels with commas between them.

        Raises:
            SandboxUnavailable: none is ready.
        """
        levels = await asyncio.gather(*(self._level(worker) for worker in self.workers))
        if not (found := sorted({level for level in levels if level is not None})):
            raise self._none_left()
        return ", ".join(found)

    async def run(
        self,
        code: str,
        *,
        bindings: Mapping[str, str | Mapping[str, str]] | None = None,
        stdin: str = "",
        files: Mapping[str, bytes] | None = None,
        fetch: Sequence[str] = (),
        attachments: Mapping[str, str | os.PathLike[str]] | None = None,
        limits: Limits | None = None,
    ) -> ExecResult:
        """One program; the arguments are those of `SandboxPool.run`. Cancelling kills it.

        Raises:
            SandboxBusy: every worker's queue stayed full.
            SandboxUnavailable: no worker could be reached, or the one that had the program lost it.
            ValueError: the workers do not take what is asked for, or attachments were given.
        """
        if attachments:
            raise ValueError("attachments: paths of this machine mean nothing to another one; send `files` instead")
        body = to_json(
            {
                "code": code,
                "bindings": {
                    name: value if isinstance(value, str) else dict(value) for name, value in (bindings or {}).items()
                },
                "stdin": stdin,
                "files": encoded(files or {}),
                "fetch": list(fetch),
                "limits": None if limits is None else asdict(limits),
            }
        )
        give_up_at = time.monotonic() + self._max_wait_s
        while True:
            worker = await self._find_worker(give_up_at=give_up_at)
            try:
                return await self._ask(worker, body)
            except NotStarted:
                continue

    async def _find_worker(self, *, give_up_at: float) -> SandboxWorker:
        """The one that has the fewest of our programs; of several, the one that got none for the longest."""
        while True:
            now = time.monotonic()
            if free := [worker for worker in self.workers if worker.problem is None and worker.rests_until <= now]:
                return least_busy(free)
            if now >= give_up_at:
                raise self._none_left()
            # Not all at once: those who were sent away together would be sent away again.
            await asyncio.sleep(min(_LOOK_S * random.uniform(0.5, 1.0), give_up_at - now))

    def _none_left(self) -> SandboxUnavailable:
        resting = [worker for worker in self.workers if worker.problem is None]
        if resting:
            retry_after_s = max(0.0, min(worker.rests_until for worker in resting) - time.monotonic())
            return SandboxBusy(f"the queues of {len(resting)} workers are full", retry_after_s=retry_after_s)
        return SandboxUnavailable("; ".join(f"{worker.url}: {worker.problem}" for worker in self.workers))

    async def _ask(self, worker: SandboxWorker, body: bytes) -> ExecResult:
        """Raises NotStarted, SandboxUnavailable, ValueError."""
        worker.num_running += 1
        worker.last_used = time.monotonic()
        try:
            response = await self._http.post(f"{worker.url}{EXECUTE_PATH}", content=body)
        except UNREACHED as error:
            self._leave_out(worker, problem=f"cannot be reached: {error}")
            raise NotStarted from error
        except httpx2.RequestError as error:
            how = f"broke off: {error or type(error).__name__}"
            self._leave_out(worker, problem=how)
            raise SandboxUnavailable(f"{worker.url} {how}") from error
        finally:
            worker.num_running -= 1
        return self._understand(response, worker=worker)

    def _understand(self, response: httpx2.Response, *, worker: SandboxWorker) -> ExecResult:
        """Raises NotStarted, SandboxUnavailable, ValueError."""
        answer = _json(response)
        if response.status_code == 200:
            try:
                return result_of_body(answer)
            except (ValueError, LookupError, TypeError) as error:
                raise SandboxUnavailable(f"{worker.url} is no tirjudge sandbox, or one of another version") from error
        if response.status_code == 429:
            asked_s = retry_after_s(response.headers)
            # A proxy in front of the worker may answer instead, and name no time.
            worker.rests_until = time.monotonic() + (1.0 if asked_s is None else asked_s)
            raise NotStarted
        error = answer.get("error")
        said = str(error.get("message", "")) if isinstance(error, dict) else ""
        message = said or f"it answered {response.status_code}"
        if response.status_code == 503:
            self._leave_out(worker, problem=message)
            if answer.get("started") is False:
                raise NotStarted
        if response.status_code in (400, 413):
            raise ValueError(message)
        raise SandboxUnavailable(f"{worker.url}: {message}")

    def _leave_out(self, worker: SandboxWorker, *, problem: str) -> None:
        """No more programs for it until it says that it is ready."""
        worker.leave_out(problem, look=partial(self._look, worker))

    async def _level(self, worker: SandboxWorker) -> str | None:
        """None: it is not ready, and left out."""
        try:
            response = await self._ready(worker)
        except httpx2.RequestError as error:
            self._leave_out(worker, problem=f"cannot be reached: {error or type(error).__name__}")
            return None
        level = _json(response).get("level")
        if response.status_code == 200 and isinstance(level, str):
            return level
        self._leave_out(worker, problem=f"it answered {response.status_code} when asked whether it is ready")
        return None

    async def _look(self, worker: SandboxWorker) -> str | None:
        try:
            response = await self._ready(worker)
        except httpx2.RequestError as error:
            return f"cannot be reached: {error or type(error).__name__}"
        return None if response.status_code == 200 else worker.problem

    async def _ready(self, worker: SandboxWorker) -> httpx2.Response:
        return await self._http.get(f"{worker.url}/ready", timeout=CONNECT_S)


def _json(response: httpx2.Response) -> dict[str, Any]:
    """What it answered; empty if that is no JSON object."""
    try:
        answer = response.json()
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
