"""The client's side of a session: the program runs in a service, and its function calls are answered here.

The `Exchange` of the program is here, so budgets and records do not depend on the service. A candidate that a call runs is
sent to the service of the program. The messages are described in `session`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from itertools import count
from ssl import SSLContext
from typing import Any, NoReturn

from websockets.asyncio.client import ClientConnection, connect

from tirjudge.concurrency import background
from tirjudge.errors import SandboxUnavailable
from tirjudge.http.exchange import CONNECT_S
from tirjudge.tools.functions import Candidate, CandidateResult, Offer
from tirjudge.types import ExecResult
from tirjudge_sandbox.exchange import Exchange
from tirjudge_sandbox.messages import MAX_MESSAGE_BYTES
from tirjudge_sandbox.wire import MAX_CALLS_S, SESSION_PATH, result_of_body

MAX_RESULT_BYTES = 512 << 20
"""Maximum size of a message from a service. The limits of the service keep results below it."""

CLOSE_S = 2.0
"""Maximum seconds to close a session in order."""


class _Connect(connect):
    """Opens a WebSocket and follows no redirects: the program must not get to another server."""

    def process_redirect(self, exc: Exception) -> Exception:
        return exc


@asynccontextmanager
async def open_session(url: str, *, headers: Mapping[str, str], tls: SSLContext) -> AsyncIterator[ClientConnection]:
    """Open a session of the service at a URL, and close it at the end of the block.

    Raises:
        OSError, TimeoutError, websockets.InvalidHandshake: the session was not opened. `InvalidStatus` has the response of
            the service.
    """
    scheme, _, rest = url.partition("://")
    is_secure = scheme == "https"
    opening = _Connect(
        f"{'wss' if is_secure else 'ws'}://{rest}{SESSION_PATH}",
        additional_headers=dict(headers),
        ssl=tls if is_secure else None,
        compression=None,
        max_size=MAX_RESULT_BYTES,
        open_timeout=CONNECT_S,
        close_timeout=CLOSE_S,
    )
    async with opening as socket:
        yield socket


class RemoteProgram:
    """A program of a session.

    Args:
        socket: the session. No message was sent yet.
        offer: functions that the program may call, at least one.
    """

    def __init__(self, socket: ClientConnection, *, offer: Offer) -> None:
        self._socket = socket
        self._exchange = Exchange(offer, run_candidate=self._run_candidate)
        self._offer = offer
        self._outgoing: asyncio.Queue[bytes | str] = asyncio.Queue()
        self._numbers = count(1)
        self._candidates: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._has_hung_up = False

    async def run(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run the program and answer its calls. Return the last message of the service.

        Args:
            request: the fields of an `ExecuteRequest`.

        Raises:
            websockets.ConnectionClosed: the session broke off.
            ValueError: the service sent a message that is not JSON.
        """
        functions = [{"name": each.name, "parameters": list(each.parameters)} for each in self._offer.functions]
        self._outgoing.put_nowait(
            _text({**request, "functions": functions, "calls_s": min(self._exchange.max_s, MAX_CALLS_S)})
        )
        self._exchange.begin(self)
        async with background(self._write()):
            try:
                while True:
                    message = await self._socket.recv()
                    if isinstance(message, bytes):
                        self._receive(message)
                        continue
                    fields = json.loads(message)
                    if not isinstance(fields, dict):
                        raise ValueError("not an object")
                    if "id" not in fields:
                        return fields
                    waiting = self._candidates.pop(fields["id"], None)
                    if waiting is not None and not waiting.done():
                        waiting.set_result(fields)
            finally:
                await self._exchange.end()

    def completed(self, result: ExecResult) -> ExecResult:
        """Return the result of the program with its calls. Raises SandboxUnavailable if the sandbox failed in a call."""
        return self._exchange.completed(result)

    async def _write(self) -> NoReturn:
        while True:
            await self._socket.send(await self._outgoing.get())

    def _receive(self, message: bytes) -> None:
        """Take a message of the program. After an invalid one, no more are wanted."""
        if self._has_hung_up:
            return
        try:
            if len(message) > MAX_MESSAGE_BYTES:
                raise ValueError("the message is too long")
            self._exchange.receive(message)
        except ValueError:
            self.close()

    async def _run_candidate(self, candidate: Candidate) -> CandidateResult:
        """Run a candidate in the service. Raises SandboxUnavailable, ValueError."""
        number = next(self._numbers)
        message = _text({"id": number, "run": asdict(candidate)})
        if len(message) > MAX_MESSAGE_BYTES:
            raise ValueError(f"the candidate with its inputs has more than {MAX_MESSAGE_BYTES:,} characters as JSON")
        answer = asyncio.get_running_loop().create_future()
        self._candidates[number] = answer
        self._outgoing.put_nowait(message)
        try:
            fields = await answer
        except asyncio.CancelledError:
            self._outgoing.put_nowait(_text({"cancel": number}))
            raise
        finally:
            self._candidates.pop(number, None)
        try:
            if "candidate" in fields:
                return CandidateResult(result=result_of_body(fields["candidate"]), value=fields["value"])
            status, problem = fields["status"], fields["error"]["message"]
        except (ValueError, LookupError, TypeError) as error:
            raise SandboxUnavailable("the sandbox has an incompatible version") from error
        if status == 400:
            raise ValueError(problem)
        raise SandboxUnavailable(f"a candidate could not be run: {problem}")

    # What the exchange can do with the program, see `channel.Link`.

    def send(self, message: bytes) -> None:
        self._outgoing.put_nowait(message)

    def close(self) -> None:
        self._has_hung_up = True
        self._outgoing.put_nowait(_text({"hang_up": True}))

    def pause(self) -> None:
        self._outgoing.put_nowait(_text({"pause": True}))

    def resume(self, calls_s: float) -> None:
        self._outgoing.put_nowait(_text({"resume": calls_s}))


def _text(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"))
