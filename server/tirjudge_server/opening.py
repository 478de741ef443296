"""Opens the model and the sandbox of a server as its settings say: in this process, behind URLs, or started."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tirjudge.engines.fleet_urls import EngineUrls
from tirjudge.errors import SandboxUnavailable, TirjudgeError
from tirjudge.http.workers import Worker, service_url
from tirjudge.model import EngineOptions, Model, bundled_checkpoint
from tirjudge.opening import open_model
from tirjudge.profile import Profile, load_profile
from tirjudge.tools.python import Sandbox
from tirjudge_sandbox import PoolStats, SandboxPool
from tirjudge_sandbox.remote import RemoteSandbox
from tirjudge_server.settings import OptionsClash, ServerSettings
from tirjudge_server.vllm_command import WorkerModel, Workers, words_of
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


def engine_kind(settings: ServerSettings) -> str:
    """The kind of engine that runs the model, as entry points name it."""
    if settings.judge is not None:
        return settings.judge.partition(":")[0]
    if settings.in_process:
        return "vllm-inprocess"
    return "vllm" if settings.engine or settings.engines_file or settings.workers else "embedded"


@contextmanager
def refusing_names() -> Iterator[None]:
    """What is opened inside is named by options, and a name or an address that is none is a mistake in these.

    Raises:
        OptionsClash: there is no such engine, format or tool, or the address is malformed.
    """
    try:
        yield
    except TirjudgeError:
        raise
    except ValueError as error:
        raise OptionsClash(str(error)) from error


@asynccontextmanager
async def open_judging(settings: ServerSettings) -> AsyncIterator[Model]:
    """The model, in this process or behind URLs; workers that are to be started are, and ended afterwards.

    Raises:
        CheckpointError, EngineUnavailable, BadUrl, WorkersRefused: it cannot be opened.
        OptionsClash: it is to be in two places.
    """
    given = settings.engine or settings.engines_file
    elsewhere = bool(given or settings.workers or settings.in_process)
    if settings.judge is not None and (elsewhere or settings.model is not None):
        raise OptionsClash(
            "--judge: given with --model, --engine, --engines-file, --workers or --in-process; it names the model and its "
            "engine"
        )
    if bool(given) + bool(settings.workers) + settings.in_process > 1:
        raise OptionsClash("--workers, --in-process, and --engine or --engines-file: give only one of them")
    if settings.engine_wait_s and not given:
        raise OptionsClash("--engine-wait-s: given without --engine or --engines-file, which it waits for")
    if settings.workers:
        served, profile = _to_serve(settings)
        workers = Workers(
            num_workers=settings.workers,
            tensor_parallel=settings.tensor_parallel,
            command=settings.worker_command,
            arguments=settings.worker_args,
        )
        async with (
            open_workers(served, workers=workers) as started,
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
        urls = EngineUrls(tuple(settings.engine or ()), file=settings.engines_file)
        options = EngineOptions(
            profile=settings.profile or settings.model,
            urls=urls,
            key=settings.engine_key,
            wait_s=settings.engine_wait_s,
        )
        async with open_model("vllm", options=options, format=settings.format) as model:
            yield model
    else:
        kind = engine_kind(settings)
        if settings.profile is not None and kind != "vllm":
            raise OptionsClash("--profile: given without an engine behind a URL; give --model alone")
        options = EngineOptions(
            profile=settings.profile,
            key=settings.engine_key,
            vllm_arguments=words_of(settings.worker_args) if kind == "vllm-inprocess" else (),
        )
        address = settings.judge or f"{kind}:{settings.model or ''}"
        async with open_model(address, options=options, format=settings.format) as model:
            yield model


def _to_serve(settings: ServerSettings) -> tuple[WorkerModel, Path | None]:
    """What workers serve, and the folder of its profile; None: the default one."""
    model = settings.model or bundled_checkpoint()
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
    if settings.sandbox:
        urls = [service_url(url) for url in settings.sandbox]
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
