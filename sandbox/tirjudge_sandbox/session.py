"""A session of the service: one program over one WebSocket, whose function calls the client answers.

    client -> service   text     the `SessionRequest`
    service -> client   binary   a message of the program (see `messages`), without its length
    client -> service   binary   the answer to it
    client -> service   text     {"pause": true}, {"resume": SECONDS} or {"hang_up": true}, see `channel.Link`
    client -> service   text     {"id": 1, "run": {...}}: run a candidate in a slot of this service; {"cancel": 1}: kill it
    service -> client   text     {"id": 1, "candidate": {...}, "value": ...} or {"id": 1, "error": {...}, "status": 400}
    service -> client   text     {"result": {...}} or {"error": {...}, "status": 503, "started": true, "headers": {...}}

The last message ends the session. The service forwards the messages of the program and checks nothing in them: budgets and
records are the client's. The program is killed when the client disconnects.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Any, Literal, NoReturn

from pydantic import Field
from starlette.websockets import WebSocket, WebSocketDisconnect

from tirjudge.concurrency import background, fail_fast_group
from tirjudge.errors import SandboxBusy, SandboxUnavailable, logged
from tirjudge.http.protocol import invalid
from tirjudge.types import ExecResult, Wire
from tirjudge_sandbox.candidates import RunArguments
from tirjudge_sandbox.channel import ForwardedCalls
from tirjudge_sandbox.guest import MAX_RUNS
from tirjudge_sandbox.messages import MAX_MESSAGE_BYTES
from tirjudge_sandbox.service import SandboxService
from tirjudge_sandbox.wire import SessionRequest, body_of, encode_result, to_json
from tirjudge_web.body import parse_body
from tirjudge_web.body_budget import HeldBody, held_body
from tirjudge_web.errors import FAILURES, Refused, ShuttingDown, problem_from

logger = logging.getLogger(__name__)

FIRST_MESSAGE_S = 20.0
"""Maximum seconds between the handshake and the request."""


class ClientMessage(Wire):
    """A message of the client after its request. It has one of the fields, `run` with `id`."""

    pause: Literal[True] | None = None
    """The wall time of the program stops."""
    resume: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """The wall time of the program runs again. Duration of all calls so far in seconds, which does not count."""
    hang_up: Literal[True] | None = None
    """No more messages of the program are wanted."""
    run: RunArguments | None = None
    """A candidate to run."""
    id: int | None = None
    """Number of the candidate, for the answer."""
    cancel: int | None = None
    """Number of a candidate to kill. It gets no answer."""


async def serve_session(socket: WebSocket, *, service: SandboxService, max_bytes: int) -> None:
    """Run the program of a session, from the handshake to the end.

    Args:
        socket: WebSocket whose handshake was not answered yet.
        service: runs the program and its candidates.
        max_bytes: maximum size of the request.

    Raises:
        ShuttingDown: the service takes no programs. The handshake was not answered.
    """
    service.draining.check()
    await socket.accept()
    try:
        try:
            asked = await _first_message(socket, service=service, max_bytes=max_bytes)
            service.check_answer([asked], param="limits")
            result = await _Session(socket, service).run(asked)
            last = b'{"result":%b}' % await encode_result(result)
        except FAILURES as error:
            last = _failure(error)
        await socket.send_text(last.decode())
        await socket.close()
    except WebSocketDisconnect:
        pass
    except Exception as error:
        logger.exception("a session failed")
        await socket.send_text(_failure(error).decode())
        await socket.close()


async def _first_message(socket: WebSocket, *, service: SandboxService, max_bytes: int) -> SessionRequest:
    """Receive the request.

    Raises:
        Refused: the request did not arrive in time, is too large or invalid.
        ShuttingDown: the grace period ended before it arrived.
    """
    async with service.draining.limit():
        try:
            async with asyncio.timeout(FIRST_MESSAGE_S):
                message = await _received(socket)
        except TimeoutError:
            problem = invalid(f"no request within {FIRST_MESSAGE_S:g} s", param=None, code="request_timeout")
            raise Refused(problem, status=408) from None
    if not isinstance(message, str):
        raise _not_understood("expected the request as a text message")
    body = message.encode()
    if len(body) > max_bytes:
        message = f"body: {len(body)} bytes given, this server takes {max_bytes}"
        raise Refused(invalid(message, param="body", code="body_too_large"), status=413)
    held_body(socket.scope).add(len(body))
    return parse_body(body, SessionRequest)


class _Session:
    """A program that runs, and what the client sends meanwhile."""

    def __init__(self, socket: WebSocket, service: SandboxService) -> None:
        self._socket, self._service = socket, service
        self._held: HeldBody = held_body(socket.scope)
        self._outgoing: asyncio.Queue[bytes | str] = asyncio.Queue()
        self._running: dict[int, asyncio.Task[None]] = {}  # candidates, by their number

    async def run(self, asked: SessionRequest) -> ExecResult:
        """Run the program.

        Raises:
            WebSocketDisconnect: the client disconnected. The program was killed.
            Refused, SandboxBusy, SandboxUnavailable, ShuttingDown: see `SandboxService.execute`. Also SandboxUnavailable:
                a message of the client is invalid. The program was killed.
        """
        calls = ForwardedCalls(self._outgoing.put_nowait, max_s=asked.calls_s)
        async with (
            background(self._service.execute_request(asked, calls=calls)) as program,
            background(self._read(calls)) as reading,
            background(self._write()) as writing,
        ):
            await asyncio.wait({program, reading, writing}, return_when=asyncio.FIRST_COMPLETED)
            if not program.done():
                try:
                    (reading if reading.done() else writing).result()
                except Refused as error:
                    raise SandboxUnavailable(f"the session ended: {error}") from error
            return program.result()

    async def _write(self) -> NoReturn:
        while True:
            message = await self._outgoing.get()
            if isinstance(message, bytes):
                await self._socket.send_bytes(message)
            else:
                await self._socket.send_text(message)

    async def _read(self, calls: ForwardedCalls) -> NoReturn:
        async with fail_fast_group() as candidates:
            while True:
                message = await _received(self._socket)
                if isinstance(message, bytes):
                    if len(message) > MAX_MESSAGE_BYTES:
                        raise _not_understood(f"an answer of {len(message)} bytes, the limit is {MAX_MESSAGE_BYTES}")
                    calls.answer(message)
                    continue
                body = message.encode()
                wanted = parse_body(body, ClientMessage)
                if wanted.run is not None and wanted.id is not None:
                    if wanted.id in self._running or len(self._running) >= MAX_RUNS:
                        raise _not_understood(f"more than {MAX_RUNS} candidates at a time, or two with the same id")
                    self._start_candidate(wanted.run, number=wanted.id, num_bytes=len(body), group=candidates)
                elif wanted.cancel in self._running:
                    self._running[wanted.cancel].cancel()
                elif wanted.pause:
                    calls.pause()
                elif wanted.resume is not None:
                    calls.resume(wanted.resume)
                elif wanted.hang_up:
                    calls.hang_up()

    def _start_candidate(self, asked: RunArguments, *, number: int, num_bytes: int, group: asyncio.TaskGroup) -> None:
        task = group.create_task(self._run_candidate(asked, number=number, num_bytes=num_bytes))
        self._running[number] = task
        task.add_done_callback(lambda _: self._running.pop(number))

    async def _run_candidate(self, asked: RunArguments, *, number: int, num_bytes: int) -> None:
        """Run a candidate and send its result, or why it could not be run."""
        answer: dict[str, Any] = {"id": number}
        try:
            self._held.add(num_bytes)
            done = await self._service.pool.run_candidate(asked.candidate())
            answer |= {"candidate": body_of(done.result), "value": done.value}
        except ValueError as error:
            answer |= _error_fields(Refused(invalid(str(error), param="run", code="invalid_value")))
        except Exception as error:
            logger.error("a candidate could not be run: %s", logged(error))
            answer |= _error_fields(error)
        finally:
            self._held.remove(num_bytes)
        self._outgoing.put_nowait(to_json(answer).decode())


async def _received(socket: WebSocket) -> str | bytes:
    """Return the next message. Raises WebSocketDisconnect."""
    event = await socket.receive()
    if event["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(event["code"])
    text = event.get("text")
    return event["bytes"] if text is None else text


def _failure(error: Exception) -> bytes:
    """Return the last message of a session without a result."""
    started = error.started if isinstance(error, ShuttingDown) else not isinstance(error, Refused | SandboxBusy)
    return to_json(_error_fields(error) | {"started": started})


def _error_fields(error: Exception) -> dict[str, Any]:
    status, problem, headers = problem_from(error)
    return {"error": problem.model_dump(), "status": status, "headers": headers}


def _not_understood(message: str) -> Refused:
    return Refused(invalid(f"session: {message}", param=None, code="invalid_message"))
