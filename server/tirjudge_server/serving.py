"""Runs `tirjudge serve` and `tirjudge worker`: opens the model, sandbox and records, serves, and closes them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
from fastapi import FastAPI

from tirjudge.concurrency import background
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.errors import TirjudgeError
from tirjudge.model import checkpoint_folder
from tirjudge.opening import open_judge
from tirjudge.profile import load_profile
from tirjudge.tools.base import ToolOptions
from tirjudge.tools.python import python_tools
from tirjudge.types import PYTHON
from tirjudge_server.access import Access, check_bind
from tirjudge_server.app import create_app
from tirjudge_server.chat_models import ChatModels, open_chat_models
from tirjudge_server.cost import CostLimits
from tirjudge_server.dialects import DIALECTS, DialectSettings
from tirjudge_server.openai.filestore import FileQuota
from tirjudge_server.opening import engine_kind, open_judging, open_programs, refusing_names
from tirjudge_server.records.database import default_path
from tirjudge_server.records.options import NONE
from tirjudge_server.records.record import versions_of
from tirjudge_server.records.store import RecordPolicy, open_records
from tirjudge_server.scoring import Scoring
from tirjudge_server.service import JudgeService
from tirjudge_server.settings import OptionsClash, ServerSettings
from tirjudge_server.telemetry.instrumenting import TracingUnavailable, instrument
from tirjudge_server.telemetry.metrics import ServerMetrics
from tirjudge_server.worker import create_worker
from tirjudge_web.browser_check import AllowedHosts
from tirjudge_web.limits import ConnectionLimits
from tirjudge_web.process import serve_app, url_of

if TYPE_CHECKING:  # needs OpenTelemetry
    from tirjudge_server.telemetry.tracing import Tracing


class UnknownDialect(TirjudgeError, ValueError):
    """The name of a dialect that does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """An open server that does not listen yet."""

    app: FastAPI
    """The HTTP application."""
    service: JudgeService
    """The judge service behind the application."""
    database: str | None
    """The database of the records, without its password. None: nothing is recorded."""


async def serve_judge(bound: socket.socket, *, settings: ServerSettings) -> None:
    """Serve a judge until SIGTERM or SIGINT. A line on stdout reports when the server is ready.

    Args:
        bound: the socket to listen on.
        settings: the settings of the server.

    Raises:
        CheckpointError, EngineUnavailable, SandboxUnavailable, RecordsError, RecordsUnavailable: the server cannot be
            opened.
        UnknownDialect, OpenBind: as for `open_application`.
    """
    url = url_of(bound, scheme="http" if settings.tls_cert is None else "https")
    listening = asyncio.Event()
    limits = ConnectionLimits(max_connections=settings.max_connections, header_s=settings.header_timeout_s)
    async with (
        open_application(settings) as opened,
        background(_announce(opened, url=url, listening=listening)),
    ):
        await serve_app(
            opened.app,
            bound=bound,
            grace_s=settings.grace_s,
            on_start=listening.set,
            on_stop=lambda: opened.service.draining.begin(grace_s=settings.grace_s),
            certificate=settings.tls_cert,
            private_key=settings.tls_key,
            limits=limits,
        )


async def _announce(opened: Application, *, url: str, listening: asyncio.Event) -> None:
    await listening.wait()
    service = opened.service
    await service.readiness.wait()
    name = service.judge.profile.name
    records = "no records" if opened.database is None else f"records in {opened.database}"
    parts = f"model {name}, sandbox {service.isolation or NONE}, {records}"
    print(f"tirjudge is ready at {url} ({parts}); playground for a browser: {url}/", flush=True)


@asynccontextmanager
async def open_application(settings: ServerSettings) -> AsyncIterator[Application]:
    """Open the judge, the records and the application; close them at the end of the block.

    Raises:
        CheckpointError, EngineUnavailable, SandboxUnavailable, RecordsError, RecordsUnavailable: a part of the server
            cannot be opened.
        UnknownDialect: a dialect in the settings does not exist.
        OptionsClash: --public-url is not the URL of a server.
        OpenBind: the address is not a loopback address, and callers would need no key.
    """
    names, policy, dialect_settings = dialects_named(settings.dialects), _policy(settings), _dialect_settings(settings)
    public_url = None if settings.public_url is None else checked_public_url(settings.public_url)
    async with AsyncExitStack() as opened:
        with refusing_names():
            model = await opened.enter_async_context(open_judging(settings))
        programs = await opened.enter_async_context(open_programs(settings))
        python = python_tools(programs.sandbox)
        tools = [*python, *(name for name in settings.tool_names if name != PYTHON)]
        options = ToolOptions(slots=settings.slots, allow_unsafe_sandbox=settings.allow_unsafe_sandbox)
        with refusing_names():
            judge = await opened.enter_async_context(
                open_judge(model, tools=tools, tool_options=options, checks=settings.checks)
            )
        records = access = tracing = None
        if settings.records != NONE:
            versions = versions_of(judge, fingerprint=model.fingerprint, isolation=programs.level)
            storing = open_records(settings.records, versions=versions, policy=policy)
            records = await opened.enter_async_context(storing)
            access = Access(records.database)
            await access.load()
        has_keys = access is not None and access.is_guarded
        check_bind(settings.host, has_keys=has_keys, insecure_open=settings.insecure_open)
        if settings.otlp is not None:
            tracing = await opened.enter_async_context(_open_tracing(settings, model=model.profile.name))
            judge = instrument(judge, tracing)
        service = JudgeService(
            judge,
            max_concurrency=settings.concurrency,
            max_queue=settings.max_queue,
            cost_limits=CostLimits(rollouts=settings.max_rollouts, chars=settings.max_prompt_chars),
            max_deadline_s=settings.deadline_s,
            max_running_of=lambda caller: None if access is None else access.concurrency_of(caller),
            records=records,
            isolation=programs.level,
            engine_ended=lambda: model.ended,
            calls_per_minute=settings.function_calls_per_minute,
            workers=lambda: {"engine": model.engine.workers, "sandbox": programs.workers},
        )
        metrics = ServerMetrics(service, pool=programs.stats, fallbacks=dialect_settings.fallbacks)
        service.judge = instrument(judge, metrics)
        chat_models = await opened.enter_async_context(_open_chat_models(settings))
        app = create_app(
            service,
            max_body_bytes=settings.max_body_bytes,
            names=names,
            settings=dialect_settings,
            access=access,
            records=records,
            files=_files_folder(settings.files),
            quota=_quota(settings),
            chat_models=chat_models,
            model=model,
            metrics=metrics,
            tracing=tracing,
            hosts=AllowedHosts(given=tuple(settings.allowed_host or ()), bound=settings.host),
            runs=settings.runs,
            public_url=public_url,
        )
        yield Application(app=app, service=service, database=None if records is None else str(records.database))


def checked_public_url(given: str) -> str:
    """Return the URL of a server without a slash at its end.

    Raises:
        OptionsClash: it is not a URL with a scheme and a host alone.
    """
    refused = OptionsClash(f"--public-url: {given!r} given; use a scheme and a host such as https://judge.example")
    try:
        url = httpx2.URL(given)
    except httpx2.InvalidURL:
        raise refused from None
    origin = f"{url.scheme}://{url.netloc.decode('ascii')}"
    if url.scheme not in ("http", "https") or not url.host or str(url) not in (origin, f"{origin}/"):
        raise refused
    return origin


def dialects_named(given: str) -> tuple[str, ...]:
    """The names of the dialects to serve.

    Args:
        given: `all`, `none`, or names separated by commas.

    Raises:
        UnknownDialect: a name is not a dialect.
    """
    if given in ("all", NONE):
        return tuple(DIALECTS) if given == "all" else ()
    names = tuple(name.strip() for name in given.split(",") if name.strip())
    if not names or not set(names) <= set(DIALECTS):
        raise UnknownDialect(f"--dialects: {given!r} given; valid are all, none, or some of {', '.join(DIALECTS)}")
    return names


def _policy(settings: ServerSettings) -> RecordPolicy:
    return RecordPolicy(
        cache=settings.cache,
        required=settings.require_records,
        withheld=frozenset(settings.withhold or ()),
        retention_days=settings.retention_days,
    )


def _dialect_settings(settings: ServerSettings) -> DialectSettings:
    return DialectSettings(
        scoring=Scoring(mode=settings.reward_mode),
        fallback=settings.fallback,
        response_view=settings.response_view,
        cohort_size=settings.cohort_size,
    )


def _files_folder(given: str | None) -> Path | None:
    """Folder of files and batches; None: the server has no files and batches."""
    if given is None:
        return default_path().parent / "files"
    return None if given == NONE else Path(given).expanduser()


def _open_chat_models(settings: ServerSettings) -> AbstractAsyncContextManager[ChatModels]:
    """Open the models besides the judge.

    Raises:
        OptionsClash, EngineUnavailable: see `open_chat_models`.
    """
    return open_chat_models(
        settings.sample_url or (),
        keys=settings.sample_key or (),
        timeout_s=settings.chat_timeout_s,
        max_concurrency=settings.chat_concurrency,
    )


def _quota(settings: ServerSettings) -> FileQuota:
    num_bytes = settings.max_files_mb * 1024 * 1024
    return FileQuota(num_bytes=num_bytes, num_files=settings.max_files, num_batches=settings.max_batches)


def _open_tracing(settings: ServerSettings, *, model: str) -> AbstractAsyncContextManager[Tracing]:
    """Open tracing to the collector at `settings.otlp`.

    Raises:
        TracingUnavailable: OpenTelemetry is not installed.
    """
    assert settings.otlp is not None
    try:
        from tirjudge_server.telemetry.tracing import open_tracing
    except ModuleNotFoundError as error:
        raise TracingUnavailable(f"--otlp needs OpenTelemetry: pip install 'tirjudge[otel]' ({error})") from error
    kind = engine_kind(settings)
    provider = {"embedded": "tirjudge", "vllm-inprocess": "vllm"}.get(kind, kind)
    return open_tracing(settings.otlp, model=model, provider=provider, has_content=settings.trace_content)


async def serve_worker(
    bound: socket.socket,
    *,
    checkpoint: Path | None,
    max_batch: int,
    grace_s: float,
    api_key: str | None,
    hosts: AllowedHosts | None = None,
) -> None:
    """Serve the mini worker until SIGTERM or SIGINT. A line on stdout reports when the worker is ready.

    Args:
        bound: the socket to listen on.
        checkpoint: folder of the checkpoint; None: the bundled judge.
        max_batch: maximum number of sequences per step.
        grace_s: seconds that running requests get after the signal.
        api_key: API key of callers; None: no key is needed.
        hosts: host names by which callers may reach the worker; None: any.

    Raises:
        CheckpointError: the checkpoint cannot be loaded.
    """
    folder = checkpoint_folder(checkpoint)
    name = load_profile(folder).name
    engine = EmbeddedEngine.load(folder, max_batch=max_batch)

    def announce() -> None:
        print(f"tirjudge worker is ready at {url_of(bound)} (model {name})", flush=True)

    try:
        app = create_worker(engine, name=name, root=folder.resolve(), api_key=api_key, hosts=hosts)
        await serve_app(app, bound=bound, grace_s=grace_s, on_start=announce, on_stop=lambda: None)
    finally:
        engine.close()
