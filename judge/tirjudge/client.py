"""A client of the server: requests go out, judgments come back; a busy server is asked again when it said to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType

import httpx2
from pydantic import ValidationError

from tirjudge.errors import TirjudgeError
from tirjudge.protocol import (
    JUDGE_PATH,
    MODELS_PATH,
    ErrorBody,
    Event,
    ModelCard,
    ModelList,
    Problem,
    decode_event,
)
from tirjudge.types import JudgeRequest, Judgment

BUSY = (429, 503)
"""What the server answers when the same request may do better later."""

KEEPALIVE_S = 2.0
"""Idle connections are closed before the server, at 5 s, would close them under a request."""


class RequestRefused(TirjudgeError, ValueError):
    """The server will not judge this request, however often it is sent.

    Attributes:
        problem: what it says is wrong.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class ServerUnavailable(TirjudgeError):
    """The server could not be reached, stayed busy, or failed; or something else is at that URL."""


class JudgeClient:
    """Talks to one server; use it as `async with`.

    Args:
        base_url: such as `http://127.0.0.1:8400`.
        timeout_s: longest wait for an answer, the queue included.
        max_attempts: how often one request is sent at most.
        max_wait_s: longest pause between two attempts, whatever the server asks for.
        transport: another way to the server than a socket.

    Raises:
        ServerUnavailable: `base_url` is no URL.
    """

    def __init__(
        self,
        base_url: str,
        *,
        timeout_s: float = 600.0,
        max_attempts: int = 8,
        max_wait_s: float = 30.0,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._max_attempts = max_attempts
        self._max_wait_s = max_wait_s
        try:
            self._http = httpx2.AsyncClient(
                base_url=self.base_url,
                timeout=httpx2.Timeout(timeout_s, connect=10.0),
                limits=httpx2.Limits(max_connections=None, keepalive_expiry=KEEPALIVE_S),
                transport=transport,
            )
        except httpx2.InvalidURL as error:
            raise ServerUnavailable(f"{base_url} is no URL: {error}") from error

    async def __aenter__(self) -> JudgeClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def judge(self, request: JudgeRequest) -> Judgment:
        """One judgment.

        Raises:
            RequestRefused: the request is at fault.
            ServerUnavailable: the server is, after `max_attempts`.
        """
        body = request.model_copy(update={"stream": False}).model_dump_json()
        async with self._answered("POST", JUDGE_PATH, content=body) as response:
            content = await response.aread()
        with self._understood():
            return Judgment.model_validate_json(content)

    async def stream(self, request: JudgeRequest) -> AsyncIterator[Event]:
        """The events of one judgment as they happen; the last one is the `Judgment`.

        Raises:
            RequestRefused, ServerUnavailable: as `judge`; also when the stream ends in an error or breaks off.
        """
        body = request.model_copy(update={"stream": True}).model_dump_json()
        async with self._answered("POST", JUDGE_PATH, content=body) as response:
            async for event in self._events(response):
                if isinstance(event, ErrorBody):
                    raise _failure(event.error)
                yield event
                if isinstance(event, Judgment):
                    return
        raise ServerUnavailable(f"{self.base_url} ended the stream before the judgment")

    async def models(self) -> list[ModelCard]:
        """The judges that the server offers, one at least.

        Raises:
            ServerUnavailable: as `judge`.
        """
        async with self._answered("GET", MODELS_PATH) as response:
            content = await response.aread()
        with self._understood():
            return ModelList.model_validate_json(content).data

    async def _events(self, response: httpx2.Response) -> AsyncIterator[Event]:
        with self._understood():
            async for sent in httpx2.EventSource(response, max_event_size=None):
                yield decode_event(sent.event, data=sent.data)

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """An answer that makes no sense was not given by one of our servers."""
        try:
            yield
        except (ValueError, httpx2.SSEError) as error:
            raise ServerUnavailable(f"{self.base_url} is no tirjudge server, or one of another version") from error

    @asynccontextmanager
    async def _answered(self, method: str, path: str, *, content: str | None = None) -> AsyncIterator[httpx2.Response]:
        """A successful response, its body unread; asks again while the server is busy or cannot be reached."""
        for attempt in range(1, self._max_attempts + 1):
            is_last = attempt == self._max_attempts
            pause_s = min(self._max_wait_s, 0.25 * 2**attempt)
            try:
                async with self._http.stream(method, path, content=content) as response:
                    if response.is_success:
                        yield response
                        return
                    await response.aread()
                    problem = _problem(response)
                    if response.status_code not in BUSY or is_last:
                        raise _failure(problem)
                    pause_s = min(self._max_wait_s, _retry_after_s(response.headers) or pause_s)
            except httpx2.ConnectError as error:
                if is_last:
                    raise ServerUnavailable(f"{self.base_url} cannot be reached: {error}") from error
            except httpx2.RequestError as error:
                raise ServerUnavailable(f"{self.base_url} broke off: {error or type(error).__name__}") from error
            await asyncio.sleep(pause_s)


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """How long the server asks to wait; None if it does not say."""
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        if headers.get(name, "").isdecimal():
            return int(headers[name]) * scale
    return None


def _problem(response: httpx2.Response) -> Problem:
    """What the server says is wrong, or the head of whatever answered in its place."""
    try:
        return ErrorBody.model_validate_json(response.content).error
    except ValidationError:
        head = " ".join(response.text[:200].split())
        return Problem(message=f"{response.url} answered {response.status_code}: {head}", type="server_error")


def _failure(problem: Problem) -> RequestRefused | ServerUnavailable:
    if problem.type == "invalid_request_error":
        return RequestRefused(problem)
    return ServerUnavailable(problem.message)
