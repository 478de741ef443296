"""Open the judge of a command: a tirjudge server, or a model that `tirjudge.opening` opens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import typer
from pydantic import JsonValue

from tirjudge.formats import FIRST_FORMAT
from tirjudge.http.retry_events import on_retry
from tirjudge.opening import BUNDLED, address_of, open_judge
from tirjudge.template_options import parse_options
from tirjudge.tools.base import ToolOptions
from tirjudge_harness.items import InputError, as_input_error
from tirjudge_harness.protocols import OfficialSampling
from tirjudge_harness.runner import JudgeOne

if TYPE_CHECKING:
    from tirjudge.judge import Judge
    from tirjudge_harness.options import JudgeOptions, ModelOptions

KINDS = {"embedded": "local", "vllm": "engine"}
"""Kind of engine -> its name in run manifests. Other kinds have the same name in both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenJudge:
    """A judge ready for requests."""

    judge: JudgeOne
    """Makes one judgment."""
    kind: str
    """`server`, `local` (in this process), `engine` (vLLM servers), or another kind of engine."""
    url: str | None
    """URL of the judge. None: in this process."""
    model: str
    """Name of the model."""
    fingerprint: str | None
    """Hash of the model. None: unknown."""
    local: Judge | None = None
    """The judge object, if the loop runs in this process. None: behind a server."""
    address: str | None = None
    """Address of the model, such as `vllm:URL`. None: behind a server."""
    format: str | None = None
    """Name of the prompt format. None: `tirjudge/1`, the only format of older runs and servers."""
    chat_template_kwargs: Mapping[str, JsonValue] | None = None
    """Options of the model's chat template. None: unknown."""
    functions: Mapping[str, str] = field(default_factory=dict)
    """Name -> version of the functions that programs may call."""
    checks: Mapping[str, str] = field(default_factory=dict)
    """Name -> SHA-256 of the checks of responses."""
    sampling: OfficialSampling | None = None
    """Sampling of the official code of a benchmark, which replaces that of the profile. None: not replaced."""

    def sampled_as(self, sampling: OfficialSampling | None) -> OpenJudge:
        """Return the judge with the sampling of official code. It is unchanged without one, behind a server, and if its model
        writes no text."""
        if sampling is None or self.local is None or not self.local.engine.facts.generates:
            return self
        limits = (
            {}
            if sampling.max_tokens is None
            else dict.fromkeys(("rollout_tokens", "thinking_tokens"), sampling.max_tokens)
        )
        profile = self.local.profile.model_copy(update={"top_p": sampling.top_p, **limits})
        local = replace(self.local, profile=profile)
        return replace(self, local=local, judge=local.judge, sampling=sampling)

    @property
    def identity(self) -> dict[str, Any]:
        """JSON data that identifies the judge. With a fingerprint, it does not contain the location of the model."""
        known: dict[str, Any] = {} if self.format is None else {"format": self.format}
        if self.chat_template_kwargs:
            known["chat_template_kwargs"] = dict(self.chat_template_kwargs)
        if self.functions:
            known["functions"] = dict(self.functions)
        if self.checks:
            known["checks"] = dict(self.checks)
        if self.sampling is not None:
            known["sampling"] = asdict(self.sampling)
        if self.fingerprint is not None:
            return {"model": self.model, "fingerprint": self.fingerprint, **known}
        return {"kind": self.kind, "url": self.url, "model": self.model, **known}


def open_chosen_judge(options: JudgeOptions, *, tools: Sequence[str]) -> AbstractAsyncContextManager[OpenJudge]:
    """Return the judge that the options of a command select. Default: the bundled judge in this process.

    Args:
        options: options of the command.
        tools: tools that a judge in this process can call. Empty: no tools.

    Raises:
        InputError: the options conflict, or an address is invalid.
    """
    if options.url is None:
        return open_chosen_model(options, tools=tools)
    local = {"--slots": options.slots, "--allow-unsafe-sandbox": options.allow_unsafe_sandbox}
    local |= {"--tool": options.tool, "--checks": options.checks, "--format": options.format}
    local |= {"--chat-template-kwargs": options.chat_template_kwargs}
    _reject(_addresses(options) | local, other="--url, because the server has its own model and sandbox")
    _check_address(options.url, option="--url")
    return _open_server(options.url, api_key=options.api_key, connect_retry_s=options.connect_retry_s)


def open_chosen_model(options: ModelOptions, *, tools: Sequence[str]) -> AbstractAsyncContextManager[OpenJudge]:
    """Return the judge in this process that the options of a command select. Default: the bundled judge.

    Raises:
        InputError: the options conflict, or an address is invalid.
    """
    if options.judge is not None:
        _reject({**_addresses(options), "--judge": None}, other="--judge, which selects the model")
    if options.chat_url is not None:
        _reject({"--model": options.model, "--engine": options.engine}, other="--chat-url, which selects the model")
        if options.chat_model is None:
            raise InputError("--chat-url needs --chat-model, the name of the model")
        _check_address(options.chat_url, option="--chat-url")
    elif options.chat_model is not None:
        raise InputError("--chat-model needs --chat-url, the endpoint of the model")
    for engine_url in options.engine or ():
        _check_address(engine_url, option="--engine")
    return _open_model(options, tools=tools)


def _addresses(options: ModelOptions) -> dict[str, Any]:
    """Return the options that name a model."""
    return {
        "--judge": options.judge, "--model": options.model, "--engine": options.engine,
        "--chat-url": options.chat_url, "--chat-model": options.chat_model,
    }  # fmt: skip


def _check_address(url: str, *, option: str) -> None:
    if not url.lower().startswith(("http://", "https://")):
        raise InputError(f"{option}: the URL must start with http:// or https://, got {url!r}")


def _reject(options: dict[str, Any], *, other: str) -> None:
    conflicting = [name for name, value in options.items() if value]
    if conflicting:
        raise InputError(f"{', '.join(conflicting)} cannot be combined with {other}")


def _once(message: str) -> Callable[[float], None]:
    """Return a listener that prints a message to stderr at its first call only."""
    messages = iter([message])

    def on_pause(pause_s: float) -> None:
        for line in messages:
            typer.echo(line, err=True)

    return on_pause


@asynccontextmanager
async def _open_server(url: str, *, api_key: str | None, connect_retry_s: float) -> AsyncIterator[OpenJudge]:
    from tirjudge.client import AsyncClient

    async with AsyncClient(url, api_key=api_key, connect_retry_s=connect_retry_s) as client:
        with on_retry(_once(f"{client.base_url} does not answer yet; retrying")):
            card = (await client.models())[0]
        yield OpenJudge(
            judge=client.judge,
            kind="server",
            url=client.base_url,
            model=card.id,
            fingerprint=card.fingerprint,
            format=_recorded(card.format),
            functions=card.functions,
        )


def _recorded(format: str | None) -> str | None:
    return None if format == FIRST_FORMAT else format


@asynccontextmanager
async def _open_model(options: ModelOptions, *, tools: Sequence[str]) -> AsyncIterator[OpenJudge]:
    from tirjudge.model import EngineOptions

    engines = sorted(options.engine or ())
    address = options.judge or address_of(
        checkpoint=options.model, engine_urls=engines, chat_url=options.chat_url, chat_model=options.chat_model
    )
    kind, _, place = address.partition(":")
    with as_input_error():
        kwargs = parse_options(options.chat_template_kwargs)
    opening = open_judge(
        address,
        tools=tools,
        options=EngineOptions(
            profile=options.model if engines else None,
            key=options.chat_api_key,
            chat_template_kwargs=kwargs,
            slots=options.slots,
            allow_unsafe_sandbox=options.allow_unsafe_sandbox,
        ),
        tool_options=ToolOptions(slots=options.slots, allow_unsafe_sandbox=options.allow_unsafe_sandbox),
        format=options.format,
        checks=options.checks,
    )
    async with AsyncExitStack() as stack:
        with as_input_error():
            judge = await stack.enter_async_context(opening)
        yield OpenJudge(
            judge=judge.judge,
            kind=KINDS.get(kind, kind),
            url=None if kind == BUNDLED else place.rpartition("#")[0] or place.replace(",", " ") or None,
            model=judge.profile.name,
            fingerprint=judge.weights.version,
            local=judge,
            address=address,
            format=_recorded(judge.format.name),
            chat_template_kwargs=judge.profile.chat_template_kwargs,
            functions=judge.function_versions,
            checks={} if judge.checks is None else {card.name: card.sha256 for card in judge.checks.cards},
        )
