"""The judge that a command asks: behind a server of ours, or a model that `tirjudge.opening` opens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from tirjudge.http.retry_events import on_retry
from tirjudge.opening import BUNDLED, address_of, open_judge
from tirjudge.tools.base import ToolOptions
from tirjudge_harness.items import InputError
from tirjudge_harness.runner import JudgeOne

if TYPE_CHECKING:
    from tirjudge_harness.options import JudgeOptions

KINDS = {"embedded": "local", "vllm": "engine"}
"""Kind of engine -> what runs call it that were begun before engines had kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenJudge:
    """A judge ready for requests."""

    judge: JudgeOne
    kind: str
    """`server`, `local` (in this process), `engine` (vLLM servers), or the name of another kind of engine."""
    url: str | None
    """Where it is; None: in this process."""
    model: str
    fingerprint: str | None
    """A hash of the model; None if it is not known."""

    @property
    def identity(self) -> dict[str, Any]:
        """What tells it from others. A model that is known by its fingerprint is the same wherever it runs."""
        if self.fingerprint is not None:
            return {"model": self.model, "fingerprint": self.fingerprint}
        return {"kind": self.kind, "url": self.url, "model": self.model}


def open_chosen_judge(options: JudgeOptions, *, tools: Sequence[str]) -> AbstractAsyncContextManager[OpenJudge]:
    """The judge that the options of a command name; without any, the bundled one in this process.

    Args:
        options: of the command.
        tools: that a judge in this process may call; none: nothing runs.

    Raises:
        InputError: options that do not go together, or an address that is none.
    """
    named = {
        "--judge": options.judge, "--model": options.model, "--engine": options.engine,
        "--chat-url": options.chat_url, "--chat-model": options.chat_model,
    }  # fmt: skip
    if options.url is not None:
        local = {"--slots": options.slots, "--allow-unsafe-sandbox": options.allow_unsafe_sandbox}
        local |= {"--tool": options.tool, "--format": options.format}
        _refuse(named | local, beside="--url, whose server has a model and a sandbox")
        _check_address(options.url, option="--url")
        return _behind_server(options.url, api_key=options.api_key)
    if options.judge is not None:
        _refuse({**named, "--judge": None}, beside="--judge, which names a model")
    if options.chat_url is not None:
        _refuse({"--model": options.model, "--engine": options.engine}, beside="--chat-url, which has a model")
        if options.chat_model is None:
            raise InputError("--chat-url given without --chat-model, the name of its model")
        _check_address(options.chat_url, option="--chat-url")
    elif options.chat_model is not None:
        raise InputError("--chat-model given without --chat-url, the endpoint that serves it")
    for engine_url in options.engine or ():
        _check_address(engine_url, option="--engine")
    return _opened(options, tools=tools)


def _check_address(url: str, *, option: str) -> None:
    if not url.lower().startswith(("http://", "https://")):
        raise InputError(f"{option}: {url!r} given; an address that begins with http:// or https:// is needed")


def _refuse(options: dict[str, Any], *, beside: str) -> None:
    unheeded = [name for name, value in options.items() if value]
    if unheeded:
        raise InputError(f"{', '.join(unheeded)} given with {beside}; leave out one")


def _once(message: str) -> Callable[[float], None]:
    """Says something on the standard error, at the first of many occasions."""
    messages = iter([message])

    def heard(pause_s: float) -> None:
        for line in messages:
            typer.echo(line, err=True)

    return heard


@asynccontextmanager
async def _behind_server(url: str, *, api_key: str | None) -> AsyncIterator[OpenJudge]:
    from tirjudge.client import AsyncClient

    async with AsyncClient(url, api_key=api_key) as client:
        with on_retry(_once(f"{client.base_url} does not answer yet; waiting for it")):
            card = (await client.models())[0]
        yield OpenJudge(
            judge=client.judge, kind="server", url=client.base_url, model=card.id, fingerprint=card.fingerprint
        )


@asynccontextmanager
async def _opened(options: JudgeOptions, *, tools: Sequence[str]) -> AsyncIterator[OpenJudge]:
    from tirjudge.model import EngineOptions

    engines = sorted(options.engine or ())
    address = options.judge or address_of(
        checkpoint=options.model, engine_urls=engines, chat_url=options.chat_url, chat_model=options.chat_model
    )
    kind, _, place = address.partition(":")
    opening = open_judge(
        address,
        tools=tools,
        options=EngineOptions(profile=options.model if engines else None, key=options.chat_api_key),
        tool_options=ToolOptions(slots=options.slots, allow_unsafe_sandbox=options.allow_unsafe_sandbox),
        format=options.format,
    )
    async with AsyncExitStack() as stack:
        try:
            judge = await stack.enter_async_context(opening)
        except ValueError as error:
            raise InputError(str(error)) from error
        yield OpenJudge(
            judge=judge.judge,
            kind=KINDS.get(kind, kind),
            url=None if kind == BUNDLED else place.rpartition("#")[0] or place.replace(",", " ") or None,
            model=judge.profile.name,
            fingerprint=judge.weights.version,
        )
