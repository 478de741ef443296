"""What a server judges with, opened as its settings say: the engine, here, elsewhere or started, and where programs run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tirjudge.engines.fleet_urls import EngineUrls
from tirjudge.errors import SandboxUnavailable
from tirjudge.http.workers import Worker, service_url
from tirjudge.model import EngineOptions, Model, bundled_checkpoint
from tirjudge.opening import open_model
from tirjudge.profile import Profile, load_profile
from tirjudge.tools.python import Sandbox
from tirjudge_sandbox import PoolStats, SandboxPool
from tirjudge_sandbox.remote import RemoteSandbox
from tirjudge_server.settings import OptionsClash, ServerSettings
from tirjudge_server.vllm_command import WorkerModel
from tirjudge_server.vllm_workers import open_workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """Where programs run."""

    sandbox: Sandbox
    level: str
    """Of their isolation."""
    stats: Callable[[], PoolStats] | None = None
    """How the pool stands; None: it is elsewhere."""
    workers: Sequence[Worker] = ()
    """Where it is then."""


def is_run_by_vllm(settings: ServerSettings) -> bool:
    """Not by the embedded engine."""
    elsewhere = settings.engine_urls or settings.engines_file or settings.workers
    return bool(elsewhere) or settings.vllm_arguments is not None


@asynccontextmanager
async def open_judging(settings: ServerSettings) -> AsyncIterator[Model]:
    """The model, in this process or behind URLs; workers that are to be started are, and ended afterwards.

    Raises:
        CheckpointError, EngineUnavailable, BadUrl, WorkersRefused: it cannot be opened.
        OptionsClash: it is to be in two places.
    """
    given = settings.engine_urls or settings.engines_file
    if bool(given) + (settings.workers is not None) + (settings.vllm_arguments is not None) > 1:
        raise OptionsClash("--workers, --in-process, and --engine or --engines-file: one of them would do")
    if settings.engine_wait_s and not given:
        raise OptionsClash("--engine-wait-s: given without --engine or --engines-file, which it waits for")
    checkpoint = settings.profile or settings.checkpoint
    if settings.workers is not None:
        served, profile = _to_serve(settings)
        async with (
            open_workers(served, workers=settings.workers) as started,
            open_model(
                "vllm",
                options=EngineOptions(
                    profile=profile, urls=lambda: started.urls, key=started.key, on_hung=started.restart
                ),
                format=settings.format,
            ) as model,
        ):
            yield model
    elif given:
        urls = EngineUrls(settings.engine_urls, file=settings.engines_file)
        options = EngineOptions(profile=checkpoint, urls=urls, key=settings.engine_key, wait_s=settings.engine_wait_s)
        async with open_model("vllm", options=options, format=settings.format) as model:
            yield model
    else:
        if settings.profile is not None:
            raise OptionsClash("--profile: given without an engine behind a URL; --model alone would do")
        kind = "embedded" if settings.vllm_arguments is None else "vllm-inprocess"
        address = settings.judge or f"{kind}:{checkpoint or ''}"
        options = EngineOptions(vllm_arguments=settings.vllm_arguments or ())
        async with open_model(address, options=options, format=settings.format) as model:
            yield model


def _to_serve(settings: ServerSettings) -> tuple[WorkerModel, Path | None]:
    """What workers serve, and the folder of its profile; None: the default one."""
    model = settings.checkpoint or bundled_checkpoint()
    folder = settings.profile or (model if model.is_dir() else None)
    profile = Profile(name=str(model)) if folder is None else load_profile(folder)
    return WorkerModel(model=str(model), name=profile.name, context_tokens=profile.context_tokens), folder


@asynccontextmanager
async def open_programs(settings: ServerSettings) -> AsyncIterator[Programs]:
    """Where programs run: on this machine, or behind URLs.

    Raises:
        SandboxUnavailable: nowhere.
        BadUrl: something given is no URL.
    """
    if settings.sandbox_urls:
        urls = [service_url(url) for url in settings.sandbox_urls]
        async with RemoteSandbox(urls, key=settings.sandbox_key) as remote:
            yield Programs(sandbox=remote, level=await remote.level(), workers=remote.workers)
        return
    pool = SandboxPool(slots=settings.slots, allow_unsafe=settings.allow_unsafe_sandbox)
    try:
        await pool.start()
    except SandboxUnavailable as error:
        raise SandboxUnavailable(f"{error}\nOr run programs without isolation: --allow-unsafe-sandbox") from error
    try:
        yield Programs(sandbox=pool, level=pool.level, stats=pool.stats)
    finally:
        await pool.close()
