"""Opens the model and the sandbox of a server: in this process, behind URLs, or in workers that the server starts."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from tirjudge.engines.fleet_urls import EngineUrls
from tirjudge.errors import EngineBusy, SandboxUnavailable, TirjudgeError
from tirjudge.http.workers import Worker, service_url
from tirjudge.model import EngineOptions, Model, bundled_checkpoint
from tirjudge.opening import address_of, open_model
from tirjudge.profile import Profile, load_profile
from tirjudge.template_options import parse_options
from tirjudge.tools.python import Sandbox
from tirjudge.types import PYTHON
from tirjudge_sandbox import PoolStats, SandboxPool
from tirjudge_sandbox.remote import RemoteSandbox
from tirjudge_server.settings import OptionsClash, ServerSettings
from tirjudge_server.vllm_command import WorkerModel, Workers, words_of
from tirjudge_server.vllm_workers import open_workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The sandbox of a server."""

    sandbox: Sandbox | None = None
    """Runs programs; None: the judge has no Python tool."""
    level: str | None = None
    """Isolation level of the sandbox; None: no sandbox."""
    stats: Callable[[], PoolStats] | None = None
    """Returns the statistics of the local sandbox pool; None: no local pool."""
    workers: Sequence[Worker] = ()
    """Remote sandbox services; empty: no remote sandbox."""


def engine_kind(settings: ServerSettings) -> str:
    """The kind of engine that runs the model: the name of its entry point."""
    if settings.judge is not None:
        return settings.judge.partition(":")[0]
    if settings.chat_url is not None:
        return "chat"
    if settings.in_process:
        return "vllm-inprocess"
    return "vllm" if settings.engine or settings.engines_file or settings.workers else "embedded"


@contextmanager
def refusing_names() -> Iterator[None]:
    """Turn a `ValueError` inside the block into an error about the command-line options.

    Raises:
        OptionsClash: the engine, format or tool does not exist, or the address is malformed.
    """
    try:
        yield
    except TirjudgeError:
        raise
    except ValueError as error:
        raise OptionsClash(str(error)) from error


@asynccontextmanager
async def open_judging(settings: ServerSettings) -> AsyncIterator[Model]:
    """Open the model: in this process, behind URLs, or in workers that run for the length of the block.

    Raises:
        CheckpointError, EngineUnavailable, BadUrl, WorkersRefused: the model cannot be opened.
        OptionsClash: the settings contradict each other.
    """
    _check_options(settings)
    kwargs = _template_options(settings)
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
                    profile=profile,
                    urls=lambda: started.urls,
                    key=started.key,
                    on_hung=started.restart,
                    chat_template_kwargs=kwargs,
                ),
                format=settings.format,
            ) as model,
        ):
            yield model
    elif settings.engine or settings.engines_file:
        if settings.engine_wait_s:
            print(f"waiting up to {settings.engine_wait_s:g} s for an engine", file=sys.stderr, flush=True)
        urls = EngineUrls(tuple(settings.engine or ()), file=settings.engines_file)
        options = EngineOptions(
            profile=settings.profile or settings.model,
            urls=urls,
            key=settings.engine_key,
            wait_s=settings.engine_wait_s,
            chat_template_kwargs=kwargs,
        )
        async with open_model("vllm", options=options, format=settings.format) as model:
            yield model
    else:
        kind = engine_kind(settings)
        if settings.profile is not None and kind not in ("vllm", "chat"):
            raise OptionsClash("--profile: given without an engine behind a URL; give --model alone")
        options = _options_of(settings, kind=kind, kwargs=kwargs)
        address = f"{kind}:{settings.model or ''}"
        if settings.chat_url is not None:
            address = address_of(chat_url=settings.chat_url, chat_model=settings.chat_model)
        async with open_model(settings.judge or address, options=options, format=settings.format) as model:
            await _check(model, wait_s=settings.engine_wait_s)
            yield model


def _options_of(settings: ServerSettings, *, kind: str, kwargs: dict[str, JsonValue] | None) -> EngineOptions:
    """The options of a model that is named by its address."""
    return EngineOptions(
        profile=settings.profile,
        key=settings.chat_api_key or settings.engine_key if kind == "chat" else settings.engine_key,
        vllm_arguments=words_of(settings.worker_args) if kind == "vllm-inprocess" else (),
        chat_template_kwargs=kwargs,
        timeout_s=settings.chat_timeout_s,
        max_concurrency=settings.chat_concurrency,
        context_tokens=settings.chat_context_tokens,
        prices=settings.chat_prices,
        slots=settings.slots,
        allow_unsafe_sandbox=settings.allow_unsafe_sandbox,
    )


def _template_options(settings: ServerSettings) -> dict[str, JsonValue] | None:
    """The options of the chat template; None: not given.

    Raises:
        OptionsClash: they are not a JSON object.
    """
    try:
        return parse_options(settings.chat_template_kwargs)
    except ValueError as error:
        raise OptionsClash(str(error)) from error


def _check_options(settings: ServerSettings) -> None:
    """
    Raises:
        OptionsClash: the options name no model, or several, or belong to another kind of engine.
    """
    given = settings.engine or settings.engines_file
    elsewhere = bool(given or settings.workers or settings.in_process)
    _check_chat(settings)
    for option, value in (("--judge", settings.judge), ("--chat-url", settings.chat_url)):
        if value is not None and (elsewhere or settings.model is not None):
            raise OptionsClash(
                f"{option}: given with --model, --engine, --engines-file, --workers or --in-process; {option} already "
                "names the model and its engine, remove the other options"
            )
    if bool(given) + bool(settings.workers) + settings.in_process > 1:
        raise OptionsClash("--workers, --in-process, and --engine or --engines-file: give only one of them")
    if settings.engine_wait_s and not given and engine_kind(settings) != "chat":
        raise OptionsClash("--engine-wait-s: given without --engine, --engines-file or --chat-url; add one of them")


def _check_chat(settings: ServerSettings) -> None:
    """
    Raises:
        OptionsClash: options of a chat endpoint without the endpoint, or only one of two prices.
    """
    if settings.judge is not None and settings.chat_url is not None:
        raise OptionsClash("--judge, --chat-url: both given; each names a model, remove one")
    if settings.chat_model is not None and settings.chat_url is None:
        raise OptionsClash("--chat-model: given without --chat-url, the URL of its endpoint; add it")
    prices = (settings.chat_price_input, settings.chat_price_output)
    if prices.count(None) == 1 or (settings.chat_price_cached is not None and None in prices):
        raise OptionsClash(
            "--chat-price-input, --chat-price-output: only one of them given; give both (0 if a token is free)"
        )


async def _check(model: Model, *, wait_s: float) -> None:
    """Check a model whose trial judgments would cost money, before the server listens.

    Raises:
        EngineUnavailable: the model cannot be used. The message says how to fix it.
    """
    engine = model.engine
    if not engine.facts.checks:
        return
    name = model.profile.name
    print(f"asking {name} for a first answer", file=sys.stderr, flush=True)
    try:
        await engine.check(wait_s=wait_s)
    except EngineBusy as error:
        print(f"{name} is busy, the server starts anyway: {error}", file=sys.stderr, flush=True)


def _to_serve(settings: ServerSettings) -> tuple[WorkerModel, Path | None]:
    """The model that workers serve, and the folder of its profile; None: the default profile."""
    model = settings.model or bundled_checkpoint()
    folder = settings.profile or (model if model.is_dir() else None)
    profile = Profile(name=str(model)) if folder is None else load_profile(folder)
    return WorkerModel(model=str(model), name=profile.name, context_tokens=profile.context_tokens), folder


@asynccontextmanager
async def open_programs(settings: ServerSettings) -> AsyncIterator[Programs]:
    """Open the sandbox: on this machine or behind URLs; no sandbox if the judge has no Python tool.

    Raises:
        SandboxUnavailable: the sandbox cannot be started or reached.
        BadUrl: a given address is not a URL.
    """
    if PYTHON not in settings.tool_names:
        yield Programs()
        return
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
