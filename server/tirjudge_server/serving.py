"""What `tirjudge serve` and `tirjudge worker` open, serve and close again."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.errors import SandboxUnavailable
from tirjudge.judge import Judge
from tirjudge.model import checkpoint_folder, open_model
from tirjudge.profile import load_profile
from tirjudge_sandbox import SandboxPool
from tirjudge_server.app import create_app
from tirjudge_server.process import serve_app, url_of
from tirjudge_server.service import Service
from tirjudge_server.worker import create_worker


async def serve_judge(
    bound: socket.socket,
    *,
    checkpoint: Path | None,
    engine_url: str | None,
    slots: int | None,
    max_concurrency: int,
    max_queue: int,
    max_body_bytes: int,
    grace_s: float,
    allow_unsafe_sandbox: bool,
) -> None:
    """Serve a judge until a signal comes; one line on stdout says when it is ready.

    Raises:
        CheckpointError, EngineUnavailable, SandboxUnavailable: it cannot be opened.
    """
    async with (
        open_model(checkpoint, engine_url=engine_url) as model,
        _open_sandbox(slots=slots, allow_unsafe=allow_unsafe_sandbox) as pool,
    ):
        service = Service(
            Judge(engine=model.engine, sandbox=pool, profile=model.profile),
            max_concurrency=max_concurrency,
            max_queue=max_queue,
            fingerprint=model.fingerprint,
            isolation=pool.level,
            engine_ended=lambda: model.ended,
        )
        app = create_app(service, max_body_bytes=max_body_bytes)
        listening = asyncio.Event()
        announcing = asyncio.create_task(_announce(service, url=url_of(bound), listening=listening))
        try:
            await serve_app(
                app,
                bound=bound,
                grace_s=grace_s,
                on_start=listening.set,
                on_stop=lambda: service.drain(grace_s=grace_s),
            )
        finally:
            announcing.cancel()


@asynccontextmanager
async def _open_sandbox(*, slots: int | None, allow_unsafe: bool) -> AsyncIterator[SandboxPool]:
    pool = SandboxPool(slots=slots, allow_unsafe=allow_unsafe)
    try:
        await pool.start()
    except SandboxUnavailable as error:
        raise SandboxUnavailable(f"{error}\nOr run programs without isolation: --allow-unsafe-sandbox") from error
    try:
        yield pool
    finally:
        await pool.close()


async def _announce(service: Service, *, url: str, listening: asyncio.Event) -> None:
    await listening.wait()
    await service.readiness.wait()
    name = service.judge.profile.name
    print(f"tirjudge is ready at {url} (model {name}, sandbox {service.isolation})", flush=True)


async def serve_worker(bound: socket.socket, *, checkpoint: Path | None, max_batch: int, grace_s: float) -> None:
    """Serve the mini worker until a signal comes; one line on stdout says when it is ready.

    Raises:
        CheckpointError: the checkpoint cannot be loaded.
    """
    folder = checkpoint_folder(checkpoint)
    name = load_profile(folder).name
    engine = EmbeddedEngine.load(folder, max_batch=max_batch)

    def announce() -> None:
        print(f"tirjudge worker is ready at {url_of(bound)} (model {name})", flush=True)

    try:
        app = create_worker(engine, name=name)
        await serve_app(app, bound=bound, grace_s=grace_s, on_start=announce, on_stop=lambda: None)
    finally:
        engine.close()
