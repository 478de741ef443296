"""`RemoteSandbox`: a client of one or more sandbox services, with the same interface as a pool in this process.

    async with RemoteSandbox(["http://host-a:8090", "http://host-b:8090"], key="...") as sandbox:
        result = await sandbox.run("print(6 * 7)")

Each program is sent to the worker with the fewest of this client's programs. It is sent to another worker only if it
certainly did not start: the connection failed, the queue was full, or the worker reported it. An unreachable worker
gets no programs until it is ready again. A program with functions has a session of its own, see `remote_session`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import httpx2
import websockets

from tirjudge.errors import SandboxBusy, SandboxUnavailable
from tirjudge.http.exchange import CONNECT_S, KEEPALIVE_S, UNREACHED, retry_after_s, tls_context
from tirjudge.http.workers import Worker, least_busy
from tirjudge.tools.functions import Offer
from tirjudge.types import ExecResult
from tirjudge_sandbox.limits import Limits
from tirjudge_sandbox.remote_session import RemoteProgram, open_session
from tirjudge_sandbox.wire import EXECUTE_PATH, encoded, result_of_body, to_json

_LOOK_S = 0.25
"""Seconds between attempts to find a free worker."""


@dataclass(slots=True, eq=False)
class SandboxWorker(Worker):
    """State of one service, as seen by this client."""

    rests_until: float = 0.0
    """Time on the monotonic clock at which the worker's queue may have room again."""


class NotStarted(Exception):
    """The program did not start on a worker. It may be sent to another one."""


class RemoteSandbox:
    """Client of one or more sandbox services. Use it with `async with`.

    Args:
        urls: URLs of the services, such as `http://127.0.0.1:8090`.
        key: API key of the services. None: they need no key.
        timeout_s: maximum seconds for one program, including its time in the worker's queue.
        max_wait_s: maximum seconds to wait for a worker that accepts the program.
        transport: httpx transport for programs without functions. None: sockets.

    Raises:
        ValueError: `urls` is empty.
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
            raise ValueError("urls: expected at least one URL, got none")
        self._max_wait_s, self._timeout_s = max_wait_s, timeout_s
        self._headers = {} if key is None else {"authorization": f"Bearer {key}"}
        self._http = httpx2.AsyncClient(
            headers=self._headers,
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
        """Close all connections."""
        await asyncio.gather(*(worker.stop_checking() for worker in self.workers))
        await self._http.aclose()

    async def level(self) -> str:
        """Return the isolation level of the ready workers. Several levels are separated by commas.

        Raises:
            SandboxUnavailable: no worker is ready.
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
        offer: Offer | None = None,
    ) -> ExecResult:
        """Run one program. The arguments are those of `SandboxPool.run`. Cancelling the call kills the program.

        Raises:
            SandboxBusy: the queues of all workers stayed full for `max_wait_s`.
            SandboxUnavailable: no worker could be reached, or a worker lost the program.
            ValueError: a worker rejected an argument, or attachments were given.
        """
        if attachments:
            raise ValueError("attachments: a remote sandbox cannot read paths of this machine; send `files` instead")
        offer = offer or Offer()
        request = {
            "code": code,
            "bindings": {
                name: value if isinstance(value, str) else dict(value) for name, value in (bindings or {}).items()
            },
            "stdin": stdin,
            "files": encoded(files or {}),
            "fetch": list(fetch),
            "limits": None if limits is None else asdict(limits),
            "watched": list(offer.watched),
            "candidate_code": offer.candidate_code,
        }
        ask = partial(self._converse, request=request, offer=offer)
        if not offer.functions:
            ask = partial(self._ask, body=to_json(request))
        give_up_at = time.monotonic() + self._max_wait_s
        while True:
            worker = await self._find_worker(give_up_at=give_up_at)
            try:
                worker.num_running += 1
                worker.last_used = time.monotonic()
                return await ask(worker)
            except NotStarted:
                continue
            finally:
                worker.num_running -= 1

    async def _find_worker(self, *, give_up_at: float) -> SandboxWorker:
        """Return the worker with the fewest of our programs. Ties are broken by the least recently used."""
        while True:
            now = time.monotonic()
            if free := [worker for worker in self.workers if worker.problem is None and worker.rests_until <= now]:
                return least_busy(free)
            if now >= give_up_at:
                raise self._none_left()
            # Random jitter: programs that were rejected together should not retry together.
            await asyncio.sleep(min(_LOOK_S * random.uniform(0.5, 1.0), give_up_at - now))

    def _none_left(self) -> SandboxUnavailable:
        resting = [worker for worker in self.workers if worker.problem is None]
        if resting:
            retry_after_s = max(0.0, min(worker.rests_until for worker in resting) - time.monotonic())
            return SandboxBusy(f"the queues of {len(resting)} workers are full", retry_after_s=retry_after_s)
        return SandboxUnavailable("; ".join(f"{worker.url}: {worker.problem}" for worker in self.workers))

    async def _ask(self, worker: SandboxWorker, *, body: bytes) -> ExecResult:
        """Send the program to a worker. Raises NotStarted, SandboxUnavailable, ValueError."""
        try:
            response = await self._http.post(f"{worker.url}{EXECUTE_PATH}", content=body)
        except UNREACHED as error:
            self._leave_out(worker, problem=f"cannot be reached: {error}")
            raise NotStarted from error
        except httpx2.RequestError as error:
            raise self._broke_off(worker, error) from error
        answer = _json(response)
        if response.status_code == 200:
            return _result(answer, worker=worker)
        raise self._failure(worker, response.status_code, answer=answer, headers=response.headers)

    async def _converse(self, worker: SandboxWorker, *, request: Mapping[str, Any], offer: Offer) -> ExecResult:
        """Run the program in a session of a worker. Raises NotStarted, SandboxUnavailable, ValueError."""
        has_opened = False
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                open_session(worker.url, headers=self._headers, tls=tls_context()) as socket,
            ):
                has_opened = True
                program = RemoteProgram(socket, offer=offer)
                last = await program.run(request)
        except websockets.InvalidStatus as refusal:
            response = refusal.response
            answer = _object(bytes(response.body or b"")) | {"started": False}
            raise self._failure(worker, response.status_code, answer=answer, headers=response.headers) from refusal
        except (OSError, websockets.WebSocketException) as error:  # a TimeoutError is an OSError
            if not has_opened:
                self._leave_out(worker, problem=f"cannot be reached: {error or type(error).__name__}")
                raise NotStarted from error
            if isinstance(error, websockets.ConnectionClosed) and error.rcvd is not None and error.rcvd.code == 1009:
                raise ValueError("the program with its inputs is larger than the service accepts") from error
            raise self._broke_off(worker, error) from error
        except ValueError as error:
            raise SandboxUnavailable(
                f"{worker.url} is not a tirjudge sandbox, or has an incompatible version"
            ) from error
        if "result" in last:
            return program.completed(_result(last["result"], worker=worker))
        raise self._failure(worker, last.get("status", 500), answer=last, headers=last.get("headers", {}))

    def _broke_off(self, worker: SandboxWorker, error: Exception) -> SandboxUnavailable:
        """Leave a worker out that lost a program. Return the error to raise."""
        how = f"broke off: {str(error) or type(error).__name__}"
        self._leave_out(worker, problem=how)
        return SandboxUnavailable(f"{worker.url} {how}")

    def _failure(
        self, worker: SandboxWorker, status: int, *, answer: Mapping[str, Any], headers: Mapping[str, str]
    ) -> NotStarted | SandboxUnavailable | ValueError:
        """Return the exception for a worker's answer without a result."""
        if status == 429:
            asked_s = retry_after_s(headers)
            # A proxy in front of the worker may send a 429 without retry-after.
            worker.rests_until = time.monotonic() + (1.0 if asked_s is None else asked_s)
            return NotStarted()
        error = answer.get("error")
        own_message = str(error.get("message", "")) if isinstance(error, dict) else ""
        message = own_message or f"it answered {status}"
        if status == 503:
            self._leave_out(worker, problem=message)
            if answer.get("started") is False:
                return NotStarted()
        if status in (400, 413):
            return ValueError(message)
        return SandboxUnavailable(f"{worker.url}: {message}")

    def _leave_out(self, worker: SandboxWorker, *, problem: str) -> None:
        """Send no programs to a worker until it is ready again."""
        worker.leave_out(problem, look=partial(self._look, worker))

    async def _level(self, worker: SandboxWorker) -> str | None:
        """Return the worker's level. None: the worker is not ready, and gets no programs until it is."""
        try:
            response = await self._ready(worker)
        except httpx2.RequestError as error:
            self._leave_out(worker, problem=f"cannot be reached: {error or type(error).__name__}")
            return None
        level = _json(response).get("level")
        if response.status_code == 200 and isinstance(level, str):
            return level
        self._leave_out(worker, problem=f"its readiness check answered {response.status_code}")
        return None

    async def _look(self, worker: SandboxWorker) -> str | None:
        """Return why the worker is not ready. None: it is ready."""
        try:
            response = await self._ready(worker)
        except httpx2.RequestError as error:
            return f"cannot be reached: {error or type(error).__name__}"
        return None if response.status_code == 200 else worker.problem

    async def _ready(self, worker: SandboxWorker) -> httpx2.Response:
        return await self._http.get(f"{worker.url}/ready", timeout=CONNECT_S)


def _json(response: httpx2.Response) -> dict[str, Any]:
    """Return the body of a response. Empty if it is not a JSON object."""
    return _object(response.content)


def _object(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _result(body: Any, *, worker: SandboxWorker) -> ExecResult:
    """Decode a result. Raises SandboxUnavailable."""
    try:
        return result_of_body(body)
    except (ValueError, LookupError, TypeError) as error:
        raise SandboxUnavailable(f"{worker.url} is not a tirjudge sandbox, or has an incompatible version") from error
