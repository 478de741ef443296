"""Give each request an id: the caller's if it is valid, else a new one. Responses include the id and the elapsed
time."""

from __future__ import annotations

import re
import uuid
from time import perf_counter

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SANE_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")


_STARTS = ("http.response.start", "websocket.http.response.start", "websocket.accept")
"""Types of the messages with the header of a response."""


class CallerIdentity:
    """ASGI middleware that assigns request ids. It must be the outermost one."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        scope["tirjudge.request_id"] = given if _SANE_ID.fullmatch(given) else f"req_{uuid.uuid4().hex}"
        scope["tirjudge.arrived"] = perf_counter()

        async def send_identified(message: Message) -> None:
            if message["type"] in _STARTS:
                MutableHeaders(scope=message).update(identity_headers(scope))
            await send(message)

        await self.app(scope, receive, send_identified)


def identity_headers(scope: Scope) -> dict[str, str]:
    """Return response headers with the request's id and the time until the first byte of the response."""
    elapsed_ms = (perf_counter() - scope["tirjudge.arrived"]) * 1000
    return {"x-request-id": scope["tirjudge.request_id"], "openai-processing-ms": str(round(elapsed_ms))}
