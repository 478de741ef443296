"""What `tirjudge sandbox serve` opens, serves and closes again."""

from __future__ import annotations

import json
import socket
from collections.abc import Collection

from tirjudge_sandbox.app import create_app
from tirjudge_sandbox.pool import SandboxPool
from tirjudge_sandbox.service import SandboxService
from tirjudge_web.browser_check import AllowedHosts
from tirjudge_web.limits import ConnectionLimits
from tirjudge_web.process import serve_app, url_of


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
    """Serve programs until a signal comes; one line of JSON on stdout says when they can come, and where to.

    Raises:
        SandboxUnavailable: nothing that is allowed isolates here.
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
        )
