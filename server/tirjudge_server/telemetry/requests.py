"""Observes each HTTP request and its answer, by the template of its route."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from time import perf_counter

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tirjudge_web.connection import HUNG_UP

UNKNOWN_ROUTE = "unknown"
"""Of a path that is none of ours: what strangers make up is no name of a route."""

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

OTHER_METHOD = "_OTHER"
"""In place of a method that strangers make up."""

QUIET_ROUTES = frozenset({"/health", "/ready", "/metrics"})
"""Asked for by machines, every few seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredRequest:
    """One request, and how it was answered."""

    method: str
    route: str
    """Its template, such as `/v1/judgments/{judgment_id}`."""
    status: int
    """499: the caller hung up before there was one."""
    seconds: float
    """Until the last byte of the answer."""
    caller: str | None
    """Name of the key it came with; None: there was none."""
    judgment_id: str | None
    """The one that the answer holds; None: it holds none, or several."""

    @property
    def is_quiet(self) -> bool:
        return self.route in QUIET_ROUTES


OnRequest = Callable[[AnsweredRequest], None]

AroundRequest = Callable[[Scope], AbstractContextManager[object]]
"""Opened before a request is answered, and closed after every `OnRequest`."""


class Requests:
    """ASGI middleware inside of `tirjudge_web.identity.Identity`.

    Args:
        app: what answers.
        around: what is open meanwhile.
        on_request: told of each.
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

        async def send_seen(message: Message) -> None:
            if message["type"] == "http.response.start":
                starts.append(message)
            await send(message)

        with ExitStack() as opened:
            for around in self._around:
                opened.enter_context(around(scope))
            failed_with = HUNG_UP
            try:
                await self.app(scope, receive, send_seen)
            except Exception:
                failed_with = 500  # what is outside of us answers it
                raise
            finally:
                start = starts[0] if starts else {"status": failed_with, "headers": ()}
                answered = _answered(scope, start=start, seconds=perf_counter() - started)
                for tell in self._on_request:
                    tell(answered)


def _answered(scope: Scope, *, start: Message, seconds: float) -> AnsweredRequest:
    return AnsweredRequest(
        method=scope["method"] if scope["method"] in METHODS else OTHER_METHOD,
        route=getattr(scope.get("route"), "path", UNKNOWN_ROUTE),
        status=start["status"],
        seconds=seconds,
        caller=scope.get("state", {}).get("caller"),
        judgment_id=Headers(raw=list(start["headers"])).get("x-judgment-id"),
    )
