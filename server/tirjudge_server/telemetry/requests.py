"""Middleware that observes HTTP requests and their responses, by the path template of the route."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from time import perf_counter

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tirjudge_web.connection import HUNG_UP

UNKNOWN_ROUTE = "unknown"
"""Route of requests for an unknown path. Bounds the number of label values."""

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Known HTTP methods."""

OTHER_METHOD = "_OTHER"
"""Method of requests with an unknown method, as in OpenTelemetry's conventions."""

QUIET_ROUTES = frozenset({"/health", "/ready", "/metrics"})
"""Routes that load balancers and Prometheus call every few seconds. Not traced, and logged at `debug`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredRequest:
    """A finished HTTP request."""

    method: str
    """HTTP method, or `OTHER_METHOD`."""
    route: str
    """Path template, such as `/v1/judgments/{judgment_id}`, or `UNKNOWN_ROUTE`."""
    status: int
    """HTTP status. 499: the client disconnected before a response."""
    seconds: float
    """Seconds until the last byte of the response."""
    caller: str | None
    """Name of the API key. None: no key."""
    judgment_id: str | None
    """Id of the judgment in the response. None: no judgment, or several."""

    @property
    def is_quiet(self) -> bool:
        """Whether the route is one of `QUIET_ROUTES`."""
        return self.route in QUIET_ROUTES


OnRequest = Callable[[AnsweredRequest], None]
"""Called after each request."""

AroundRequest = Callable[[Scope], AbstractContextManager[object]]
"""Returns a context manager that is entered before a request, and exited after all `OnRequest` functions were called."""


class Requests:
    """ASGI middleware. Add `tirjudge_web.identity.CallerIdentity` after this middleware, so that it runs first.

    Args:
        app: The application.
        around: Context managers to enter for each request.
        on_request: Functions to call after each request.
    """

    def __init__(self, app: ASGIApp, *, around: Sequence[AroundRequest], on_request: Sequence[OnRequest]) -> None:
        self.app = app
        self._around = around
        self._on_request = on_request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = perf_counter()
        starts: list[Message] = []

        async def send_and_record(message: Message) -> None:
            if message["type"] == "http.response.start":
                starts.append(message)
            await send(message)

        with ExitStack() as opened:
            for around in self._around:
                opened.enter_context(around(scope))
            failed_with = HUNG_UP
            try:
                await self.app(scope, receive, send_and_record)
            except Exception:
                failed_with = 500  # an outer middleware sends this response
                raise
            finally:
                start = starts[0] if starts else {"status": failed_with, "headers": ()}
                answered = _answered(scope, start=start, seconds=perf_counter() - started)
                for callback in self._on_request:
                    callback(answered)


def _answered(scope: Scope, *, start: Message, seconds: float) -> AnsweredRequest:
    return AnsweredRequest(
        method=scope["method"] if scope["method"] in METHODS else OTHER_METHOD,
        route=getattr(scope.get("route"), "path", UNKNOWN_ROUTE),
        status=start["status"],
        seconds=seconds,
        caller=scope.get("state", {}).get("caller"),
        judgment_id=Headers(raw=list(start["headers"])).get("x-judgment-id"),
    )
