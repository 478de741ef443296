"""One request to a server: what each attempt carries, what its answer means, and whether another attempt follows.

Both clients send through this; what is left to them is the waiting. An attempt follows another one only where the server
did not begin, or where it knows the two for the same request: all that is posted carries an `Idempotency-Key`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from math import inf
from ssl import SSLContext
from time import monotonic
from typing import Any

import httpx2
from pydantic import ValidationError

from tirjudge.errors import DeadlineExceeded, TirjudgeError
from tirjudge.http.protocol import ErrorBody, Event, Problem, decode_event
from tirjudge.http.retry_events import CONNECT_RETRY_S, tell_of_pause

BUSY = (429, 502, 503)
"""What is answered, by the server or a proxy before it, when the same request may do better later."""

KEEPALIVE_S = 2.0
"""Idle connections are closed before the server, at 5 s, would close them under a request."""

CONNECT_S = 10.0
"""Longest wait for a connection."""

ANSWERING_S = 5.0
"""How long after its deadline a server may still answer that it was missed."""

FIRST_PAUSE_S = 0.5
"""Before the second attempt, where the server does not say; it doubles with each one."""

UNREACHED = (httpx2.ConnectError, httpx2.ConnectTimeout)
BROKEN = (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)
"""What a connection ends with when a server, or something on the way to it, is started anew."""

MAX_RETRY_DIGITS = 9
"""Of a `retry-after`; a longer one is not read."""

REFUSALS = ("invalid_request_error", "authentication_error", "permission_error")
"""Types of problems that are the same however often the request is sent."""


class RequestRefused(TirjudgeError, ValueError):
    """The server will not answer this request, however often it is sent.

    Attributes:
        problem: what it says is wrong.
    """

    def __init__(self, problem: Problem) -> None:
        # What an exception is made of is what it is pickled with; processes hand these to one another.
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return self.problem.message


class ServerUnavailable(TirjudgeError):
    """The server could not be reached, stayed busy, or failed; or something else is at that URL.

    Attributes:
        problem: what it says is wrong; None if it said nothing.
    """

    def __init__(self, message: str, *, problem: Problem | None = None) -> None:
        super().__init__(message)
        self.problem = problem


class ServerNotListening(ServerUnavailable):
    """The server refused every connection: no process listens at its URL."""


class HTTPExchange:
    """The attempts at one request.

    Args:
        base_url: of the server, for messages.
        headers: what every attempt carries.
        timeout_s: longest wait for an answer.
        max_attempts: how often it is sent at most.
        max_wait_s: longest pause between two attempts, whatever the server asks for.
        connect_retry_s: seconds during which a refused connection is retried. These attempts send nothing, so they do not
            count as one of `max_attempts`. 0: fail at the first refusal.
        deadline_s: seconds from now in which it must be answered; None: it can wait.
    """

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
        max_attempts: int,
        max_wait_s: float,
        deadline_s: float | None,
        connect_retry_s: float = CONNECT_RETRY_S,
    ) -> None:
        self.base_url = base_url
        self._headers = headers
        self._timeout_s = timeout_s
        self._max_wait_s = max_wait_s
        self._connect_retry_s = connect_retry_s
        self._refused_since: float | None = None
        self._num_left = max_attempts
        self._pause_s = FIRST_PAUSE_S
        self._deadline = None if deadline_s is None else monotonic() + deadline_s

    def attempt(self) -> dict[str, Any]:
        """What the next attempt is sent with: `headers` and `timeout`.

        Raises:
            DeadlineExceeded: there is no time left for one.
        """
        self._num_left -= 1
        headers, timeout_s = dict(self._headers), self._timeout_s
        if self._deadline is not None:
            left_s = self._deadline - monotonic()
            if left_s <= 0:
                raise DeadlineExceeded(f"{self.base_url} was not asked in time")
            headers["x-judge-deadline-ms"] = str(max(1, round(left_s * 1000)))
            timeout_s = min(timeout_s, left_s + ANSWERING_S)
        return {"headers": headers, "timeout": httpx2.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s))}

    def pause_after(self, response: httpx2.Response) -> float:
        """How long to wait before the next attempt, in seconds, after an answer that is no success; it must be read.

        Raises:
            RequestRefused, ServerUnavailable, DeadlineExceeded: no other attempt would help, or none is left.
        """
        self._refused_since = None
        failure = failure_of(_problem(response))
        if response.status_code not in BUSY:
            raise failure
        return self._pause(failure, asked_s=retry_after_s(response.headers))

    def pause_after_error(self, error: httpx2.RequestError) -> float:
        """The same after an attempt without an answer.

        Raises:
            ServerUnavailable, DeadlineExceeded: no other attempt would help, or none is left.
            ServerNotListening: every connection was refused for `connect_retry_s`.
        """
        if isinstance(error, httpx2.ConnectError) and _is_refused(error):
            return self._pause_after_refusal(error)
        self._refused_since = None
        if isinstance(error, UNREACHED + BROKEN):
            how = "cannot be reached" if isinstance(error, UNREACHED) else "broke off"
            try:
                return self._pause(ServerUnavailable(f"{self.base_url} {how}: {error or type(error).__name__}"))
            except ServerUnavailable as failure:
                raise failure from error
        if self._deadline is not None and monotonic() >= self._deadline:
            raise DeadlineExceeded(f"{self.base_url} did not answer in time") from error
        if isinstance(error, httpx2.ReadTimeout):
            raise ServerUnavailable(f"{self.base_url} did not answer within {self._timeout_s:g} s") from error
        raise ServerUnavailable(f"{self.base_url}: {error or type(error).__name__}") from error

    def pause_after_failure(self, failure: TirjudgeError, *, headers: Mapping[str, str]) -> float:
        """The same after an answer that another attempt may better, as the caller knows.

        Args:
            failure: raised if none is left.
            headers: of the answer, which may say how long to wait.
        """
        return self._pause(failure, asked_s=retry_after_s(headers))

    @contextmanager
    def understood(self) -> Iterator[None]:
        """Around the reading of an answer: one that makes no sense was not given by one of our servers."""
        try:
            yield
        except TirjudgeError:
            raise
        except (ValueError, httpx2.SSEError) as error:
            message = f"{self.base_url} is no tirjudge server, or one of another version"
            raise ServerUnavailable(message) from error

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """Around the reading of events."""
        try:
            with self.understood():
                yield
        except httpx2.RequestError as error:
            raise ServerUnavailable(f"{self.base_url} broke off: {error or type(error).__name__}") from error

    def cut_off(self) -> ServerUnavailable:
        """The failure of a stream that ended before its judgment."""
        return ServerUnavailable(f"{self.base_url} ended the stream before the judgment")

    def event(self, sent: httpx2.ServerSentEvent) -> Event:
        """What the server tells of.

        Raises:
            RequestRefused, ServerUnavailable, DeadlineExceeded: it tells of an error.
        """
        event = decode_event(sent.event, data=sent.data)
        if isinstance(event, ErrorBody):
            raise failure_of(event.error)
        return event

    def _pause_after_refusal(self, error: httpx2.RequestError) -> float:
        """Return the pause before the next attempt, in seconds: at most a quarter of `connect_retry_s`.

        Raises:
            ServerNotListening: `connect_retry_s` has passed since the first refusal.
        """
        now = monotonic()
        self._num_left += 1
        self._refused_since = now if self._refused_since is None else self._refused_since
        tried_s = now - self._refused_since
        tried = f" for {tried_s:.1f} s" if tried_s else ""
        failure = ServerNotListening(
            f"{self.base_url} cannot be reached: connection refused{tried}; start the server there, or check the URL"
        )
        failure.__cause__ = error
        if tried_s >= self._connect_retry_s:
            raise failure
        return self._pause(failure, longest_s=min(self._connect_retry_s / 4, self._connect_retry_s - tried_s))

    def _pause(self, failure: TirjudgeError, *, longest_s: float = inf, asked_s: float | None = None) -> float:
        """A little longer than asked for, so that those who were sent away together do not come back together."""
        wanted_s, self._pause_s = asked_s or self._pause_s, 2 * self._pause_s
        pause_s = min(self._max_wait_s, longest_s, wanted_s * random.uniform(1.0, 1.25))
        late = self._deadline is not None and monotonic() + pause_s >= self._deadline
        if self._num_left <= 0 or late:
            raise failure
        tell_of_pause(pause_s)
        return pause_s


def failure_of(problem: Problem) -> RequestRefused | ServerUnavailable | DeadlineExceeded:
    """The exception for what a server says is wrong."""
    if problem.code == "deadline_exceeded":
        return DeadlineExceeded(problem.message)
    if problem.type in REFUSALS:
        return RequestRefused(problem)
    return ServerUnavailable(problem.message, problem=problem)


@cache
def tls_context() -> SSLContext:
    """The certificates that are trusted. Loading them takes 30 ms, so clients share them."""
    return httpx2.create_ssl_context()


def _is_refused(error: BaseException | None) -> bool:
    """Whether an error, or an error that led to it, is a refused connection."""
    if error is None or isinstance(error, ConnectionRefusedError):
        return error is not None
    if isinstance(error, BaseExceptionGroup) and any(map(_is_refused, error.exceptions)):
        return True
    return _is_refused(error.__cause__ or error.__context__)


def _problem(response: httpx2.Response) -> Problem:
    """What the server says is wrong, or the head of whatever answered in its place."""
    try:
        return ErrorBody.model_validate_json(response.content).error
    except ValidationError:
        head = " ".join(response.text[:200].split())
        return Problem(message=f"{response.url} answered {response.status_code}: {head}", type="server_error")


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """How long the server asks to wait; None if it does not say."""
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        asked = headers.get(name, "")
        if asked.isdecimal() and len(asked) <= MAX_RETRY_DIGITS:
            return int(asked) * scale
    return None
