"""Run the service of `tirjudge sandbox serve`."""

from __future__ import annotations

import json
import socket
from collections.abc import Collection

from tirjudge_sandbox.app import create_app
from tirjudge_sandbox.messages import MAX_MESSAGE_BYTES
from tirjudge_sandbox.pool import SandboxPool
from tirjudge_sandbox.service import SandboxService
from tirjudge_web.browser_check import AllowedHosts
from tirjudge_web.limits import ConnectionLimits
from tirjudge_web.process import serve_app, url_of

WRAPPER_BYTES = 65_536
"""Size that a message of a session may have in addition to the message or request in it."""


async def serve_pool(
    pool: SandboxPool,
    *,
    bound: socket.socket,
    keys: Collection[str],
    max_body_bytes: int,
    max_answer_bytes: int,
    grace_s: float,
    hosts: AllowedHosts | None = None,
    limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008 (frozen)
) -> None:
    """Serve programs until a signal arrives. Once ready, print one line of JSON with the URL to standard output.

    Args:
        pool: a pool that is not started yet.
        bound: listening socket.
        keys: API keys that may run programs. Empty: no key is needed.
        max_body_bytes: maximum size of a request body.
        max_answer_bytes: maximum total output and files of the programs of one request.
        grace_s: seconds that running programs have to finish after the signal.
        hosts: allowed values of the Host header. None: any.
        limits: limits of connections.

    Raises:
        SandboxUnavailable: no allowed isolation level works on this machine.
    """
    async with pool:
        service = SandboxService(pool, max_answer_bytes=max_answer_bytes)

        def announce() -> None:
            ready = {
                "event": "ready",
                "url": url_of(bound),
                "level": pool.level,
                "slots": pool.stats().num_slots,
                "keys": len(keys),
            }
            print(json.dumps(ready), flush=True)

        await serve_app(
            create_app(service, keys=keys, max_body_bytes=max_body_bytes, hosts=hosts),
            bound=bound,
            grace_s=grace_s,
            on_start=announce,
            on_stop=lambda: service.draining.begin(grace_s=grace_s),
            limits=limits,
            websocket_bytes=max(max_body_bytes, MAX_MESSAGE_BYTES) + WRAPPER_BYTES,
        )
