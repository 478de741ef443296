"""One HTTP request with its retries: the headers and the timeout of each attempt, the pause between attempts, and
errors.

The sync and the async client share this module. Each client implements only the waiting. A request is retried only if
the server did not start it, or if the server recognizes the retry: every POST carries an `Idempotency-Key`.
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

from tirjudge.errors import DeadlineExceeded, EngineUnavailable, TirjudgeError
from tirjudge.http.protocol import ErrorBody, Event, Problem, decode_event
from tirjudge.http.retry_events import CONNECT_RETRY_S, tell_of_pause

BUSY = (429, 502, 503)
"""Status codes of temporary failures, sent by the server or by a proxy in front of it."""

KEEPALIVE_S = 2.0
"""Seconds until an idle connection is closed. The server closes idle connections after 5 s, possibly during a
request."""

CONNECT_S = 10.0
"""Timeout for opening a connection, in seconds."""

ANSWERING_S = 5.0
"""Extra seconds after the deadline in which the server can still report that the deadline passed."""

FIRST_PAUSE_S = 0.5
"""Pause before the second attempt, in seconds, if the server does not name one. It doubles with each attempt."""

UNREACHED = (httpx2.ConnectError, httpx2.ConnectTimeout)
"""Errors of a connection that could not be opened."""
BROKEN = (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)
"""Errors of a connection that was closed, such as by the restart of a server or a proxy."""

MAX_RETRY_DIGITS = 9
"""Maximum number of digits in a `retry-after` header. A longer value is ignored."""

REFUSALS = ("invalid_request_error", "authentication_error", "permission_error")
"""Error types that a retry cannot fix."""


class RequestRefused(TirjudgeError, ValueError):
    """The server rejects this request. A retry would be rejected too.

    Attributes:
        problem: error reported by the server.
    """

    def __init__(self, problem: Problem) -> None:
        # `args` must equal the constructor's arguments, because these exceptions are pickled between processes.
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return self.problem.message


class EngineRefused(RequestRefused, EngineUnavailable):
    """The server of the model rejects a request: its key, its model, its account, or one of its fields.

    Callers of a judge server see it as a failure of the server (502), because their own request may be valid.
    """

    @property
    def is_about_request(self) -> bool:
        """Whether only this request is rejected. Otherwise every request is: the key, the model or the account."""
        return self.problem.type == "invalid_request_error"


class ServerUnavailable(TirjudgeError):
    """The server could not be reached, stayed busy, or failed, or the URL is not that of a judge server.

    Attributes:
        problem: error reported by the server. None: the server did not report one.
    """

    def __init__(self, message: str, *, problem: Problem | None = None) -> None:
        super().__init__(message)
        self.problem = problem


class ServerNotListening(ServerUnavailable):
    """The server refused every connection: no process listens at its URL."""


class HTTPExchange:
    """State of one request over all its attempts.

    Args:
        base_url: URL of the server, for error messages.
        headers: headers of every attempt.
        timeout_s: maximum time to wait for an answer, in seconds.
        max_attempts: maximum number of attempts.
        max_wait_s: maximum pause between two attempts, in seconds, even if the server asks for a longer one.
        connect_retry_s: time for which a refused connection is retried, in seconds. These attempts send nothing, so they
            do not count as one of `max_attempts`. 0: fail at the first refusal.
        deadline_s: time limit for the answer, in seconds from now. None: no limit.
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
        """Start the next attempt and return its keyword arguments: `headers` and `timeout`.

        Raises:
            DeadlineExceeded: the deadline has passed.
        """
        self._num_left -= 1
        headers, timeout_s = dict(self._headers), self._timeout_s
        if self._deadline is not None:
            left_s = self._deadline - monotonic()
            if left_s <= 0:
                raise DeadlineExceeded(f"{self.base_url}: the deadline passed before the request was sent")
            headers["x-judge-deadline-ms"] = str(max(1, round(left_s * 1000)))
            timeout_s = min(timeout_s, left_s + ANSWERING_S)
        return {"headers": headers, "timeout": httpx2.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s))}

    def pause_after(self, response: httpx2.Response) -> float:
        """Return the pause before the next attempt, in seconds, after an error response whose body has been read.

        Raises:
            RequestRefused, ServerUnavailable, DeadlineExceeded: a retry would not help, or no attempt is left.
        """
        self._refused_since = None
        failure = failure_of(_problem(response))
        if response.status_code not in BUSY:
            raise failure
        return self._pause(failure, asked_s=retry_after_s(response.headers))

    def pause_after_error(self, error: httpx2.RequestError) -> float:
        """Return the pause before the next attempt, in seconds, after an attempt without a response.

        Raises:
            ServerUnavailable, DeadlineExceeded: a retry would not help, or no attempt is left.
            ServerNotListening: every connection was refused for `connect_retry_s`.
        """
        if isinstance(error, httpx2.ConnectError) and is_refused(error):
            return self._pause_after_refusal()
        self._refused_since = None
        if isinstance(error, UNREACHED + BROKEN):
            how = "cannot be reached" if isinstance(error, UNREACHED) else "closed the connection"
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
        """Return the pause before the next attempt, in seconds, after a failure that is temporary according to the
        caller.

        Args:
            failure: raised if no attempt is left.
            headers: headers of the response, which may contain a `retry-after`.
        """
        return self._pause(failure, asked_s=retry_after_s(headers))

    @contextmanager
    def understood(self) -> Iterator[None]:
        """Context for parsing a response: an unreadable one raises ServerUnavailable."""
        try:
            yield
        except TirjudgeError:
            raise
        except (ValueError, httpx2.SSEError) as error:
            message = f"{self.base_url} is not a tirjudge server, or has a different version"
            raise ServerUnavailable(message) from error

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """Context for reading events: a closed connection or an unreadable event raises ServerUnavailable."""
        try:
            with self.understood():
                yield
        except httpx2.RequestError as error:
            message = f"{self.base_url} closed the connection: {error or type(error).__name__}"
            raise ServerUnavailable(message) from error

    def cut_off(self) -> ServerUnavailable:
        """Return the error for a stream that ended before its judgment."""
        return ServerUnavailable(f"{self.base_url} ended the stream before the judgment")

    def event(self, sent: httpx2.ServerSentEvent) -> Event:
        """Parse an event.

        Raises:
            RequestRefused, ServerUnavailable, DeadlineExceeded: it is an error event.
        """
        event = decode_event(sent.event, data=sent.data)
        if isinstance(event, ErrorBody):
            raise failure_of(event.error)
        return event

    def _pause_after_refusal(self) -> float:
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
        failure.__suppress_context__ = True  # the message says all; the trace of the HTTP client is fifty lines
        if tried_s >= self._connect_retry_s:
            raise failure
        return self._pause(failure, longest_s=min(self._connect_retry_s / 4, self._connect_retry_s - tried_s))

    def _pause(self, failure: TirjudgeError, *, longest_s: float = inf, asked_s: float | None = None) -> float:
        """Return the pause before the next attempt: the requested one plus up to 25 % of jitter, so that clients that
        were rejected together do not retry together."""
        requested_s, self._pause_s = asked_s or self._pause_s, 2 * self._pause_s
        pause_s = min(self._max_wait_s, longest_s, requested_s * random.uniform(1.0, 1.25))
        late = self._deadline is not None and monotonic() + pause_s >= self._deadline
        if self._num_left <= 0 or late:
            raise failure
        tell_of_pause(pause_s)
        return pause_s


def failure_of(problem: Problem) -> RequestRefused | ServerUnavailable | DeadlineExceeded:
    """Return the exception for an error reported by a server."""
    if problem.code == "deadline_exceeded":
        return DeadlineExceeded(problem.message)
    if problem.type in REFUSALS:
        return RequestRefused(problem)
    return ServerUnavailable(problem.message, problem=problem)


@cache
def tls_context() -> SSLContext:
    """Return the TLS context with the trusted certificates. Loading it takes 30 ms, so all clients share one."""
    return httpx2.create_ssl_context()


def is_refused(error: BaseException | None) -> bool:
    """Whether an error, or an error that led to it, is a refused connection."""
    if error is None or isinstance(error, ConnectionRefusedError):
        return error is not None
    if isinstance(error, BaseExceptionGroup) and any(map(is_refused, error.exceptions)):
        return True
    return is_refused(error.__cause__ or error.__context__)


def _problem(response: httpx2.Response) -> Problem:
    """Parse the error in a response. Otherwise the message is the start of the response text."""
    try:
        return ErrorBody.model_validate_json(response.content).error
    except ValidationError:
        head = " ".join(response.text[:200].split())
        return Problem(message=f"{response.url} answered {response.status_code}: {head}", type="server_error")


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the pause that the server asks for, in seconds; None if it does not ask for one."""
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        asked = headers.get(name, "")
        if asked.isdecimal() and len(asked) <= MAX_RETRY_DIGITS:
            return int(asked) * scale
    return None
