"""What `tirjudge serve` and `tirjudge worker` open, serve and close again."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI

from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.model import checkpoint_folder
from tirjudge.opening import open_judge
from tirjudge.profile import load_profile
from tirjudge.tools.python import PythonTool
from tirjudge.types import PYTHON
from tirjudge_server.access import Access, check_bind
from tirjudge_server.app import create_app
from tirjudge_server.opening import is_run_by_vllm, open_judging, open_programs
from tirjudge_server.records.database import default_path
from tirjudge_server.records.record import versions_of
from tirjudge_server.records.store import open_records
from tirjudge_server.service import JudgeService
from tirjudge_server.settings import NONE, ServerSettings
from tirjudge_server.telemetry.instrumenting import TracingProbe, TracingUnavailable
from tirjudge_server.telemetry.metrics import ServerMetrics
from tirjudge_server.telemetry.probing import instrument
from tirjudge_server.worker import create_worker
from tirjudge_web.browser_check import AllowedHosts
from tirjudge_web.process import serve_app, url_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """A server that is open, and not listening yet."""

    app: FastAPI
    service: JudgeService


async def serve_judge(bound: socket.socket, *, settings: ServerSettings) -> None:
    """Serve a judge until a signal comes; one line on stdout says when it is ready.

    Raises:
        CheckpointError, EngineUnavailable, SandboxUnavailable, RecordsError, RecordsUnavailable: it cannot be opened.
        OpenBind: others could reach it without a key.
    """
    async with open_application(settings) as opened:
        await _serve(opened.app, service=opened.service, bound=bound, settings=settings)


@asynccontextmanager
async def open_application(settings: ServerSettings) -> AsyncIterator[Application]:
    """Open the judge, and all that its server needs; closed afterwards.

    Raises:
        CheckpointError, EngineUnavailable, SandboxUnavailable, RecordsError, RecordsUnavailable: it cannot be opened.
        OpenBind: others could reach it without a key.
    """
    async with AsyncExitStack() as opened:
        model = await opened.enter_async_context(open_judging(settings))
        programs = await opened.enter_async_context(open_programs(settings))
        python = PythonTool(programs.sandbox)
        tools = [python if name == PYTHON else name for name in settings.tools]
        judge = await opened.enter_async_context(open_judge(model, tools=tools))
        versions = versions_of(judge, fingerprint=model.fingerprint, isolation=programs.level)
        records = access = None
        if settings.records != NONE:
            storing = open_records(settings.records, versions=versions, policy=settings.policy)
            records = await opened.enter_async_context(storing)
            access = Access(records.database)
            await access.load()
        has_keys = access is not None and access.is_guarded
        check_bind(settings.host, has_keys=has_keys, insecure_open=settings.insecure_open)
        tracing = None
        if settings.otlp is not None:
            tracing = await opened.enter_async_context(_open_tracing(settings, model=model.profile.name))
            judge = instrument(judge, tracing)
        service = JudgeService(
            judge,
            max_concurrency=settings.max_concurrency,
            max_queue=settings.max_queue,
            cost_limits=settings.cost_limits,
            max_deadline_s=settings.max_deadline_s,
            max_running_of=lambda caller: None if access is None else access.concurrency_of(caller),
            memory=records,
            isolation=programs.level,
            engine_ended=lambda: model.ended,
            workers=lambda: {"engine": model.engine.workers, "sandbox": programs.workers},
        )
        metrics = ServerMetrics(service, pool=programs.stats, fallbacks=settings.dialect_settings.fallbacks)
        service.judge = instrument(judge, metrics)
        app = create_app(
            service,
            max_body_bytes=settings.max_body_bytes,
            names=settings.dialects,
            settings=settings.dialect_settings,
            access=access,
            records=records,
            files=_files_folder(settings.files),
            quota=settings.quota,
            model=model,
            metrics=metrics,
            tracing=tracing,
            hosts=AllowedHosts(given=settings.allowed_hosts, bound=settings.host),
        )
        yield Application(app=app, service=service)


def _open_tracing(settings: ServerSettings, *, model: str) -> AbstractAsyncContextManager[TracingProbe]:
    """To the collector that the settings name.

    Raises:
        TracingUnavailable: OpenTelemetry is not installed.
    """
    assert settings.otlp is not None
    try:
        from tirjudge_server.telemetry.tracing import open_tracing
    except ModuleNotFoundError as error:
        raise TracingUnavailable(f"--otlp needs OpenTelemetry: pip install 'tirjudge[otel]' ({error})") from error
    provider = "vllm" if is_run_by_vllm(settings) else "tirjudge"
    return open_tracing(settings.otlp, model=model, provider=provider, has_content=settings.trace_content)


async def _serve(app: FastAPI, *, service: JudgeService, bound: socket.socket, settings: ServerSettings) -> None:
    url = url_of(bound, scheme="http" if settings.certificate is None else "https")
    listening = asyncio.Event()
    announcing = asyncio.create_task(_announce(service, url=url, listening=listening))
    try:
        await serve_app(
            app,
            bound=bound,
            grace_s=settings.grace_s,
            on_start=listening.set,
            on_stop=lambda: service.draining.begin(grace_s=settings.grace_s),
            certificate=settings.certificate,
            private_key=settings.private_key,
            limits=settings.connections,
        )
    finally:
        announcing.cancel()


def _files_folder(given: str | None) -> Path | None:
    """Where files and batches lie; None: there are none."""
    if given is None:
        return default_path().parent / "files"
    return None if given == NONE else Path(given).expanduser()


async def _announce(service: JudgeService, *, url: str, listening: asyncio.Event) -> None:
    await listening.wait()
    await service.readiness.wait()
    name = service.judge.profile.name
    print(f"tirjudge is ready at {url} (model {name}, sandbox {service.isolation})", flush=True)


async def serve_worker(
    bound: socket.socket,
    *,
    checkpoint: Path | None,
    max_batch: int,
    grace_s: float,
    api_key: str | None,
    hosts: AllowedHosts | None = None,
) -> None:
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
        app = create_worker(engine, name=name, api_key=api_key, hosts=hosts)
        await serve_app(app, bound=bound, grace_s=grace_s, on_start=announce, on_stop=lambda: None)
    finally:
        engine.close()
