"""The judge that a command asks: behind a server of ours, a chat endpoint, an engine, or in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import typer

from tirjudge.http.retry_events import on_retry
from tirjudge_harness.items import InputError
from tirjudge_harness.runner import JudgeOne

Kind = Literal["server", "chat", "engine", "local"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenJudge:
    """A judge ready for requests."""

    judge: JudgeOne
    kind: Kind
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


def open_judge(
    *,
    url: str | None = None,
    api_key: str | None = None,
    checkpoint: Path | None = None,
    engine_urls: Sequence[str] = (),
    chat_url: str | None = None,
    chat_model: str | None = None,
    chat_api_key: str | None = None,
    slots: int | None = None,
    allow_unsafe_sandbox: bool = False,
    tools: bool = True,
) -> AbstractAsyncContextManager[OpenJudge]:
    """The judge that the options of a command name; without any, the bundled one in this process.

    Args:
        url: of a server of ours.
        api_key: of that server.
        checkpoint: folder of a model that the embedded engine runs, or the profile of the one behind `engine_urls`.
        engine_urls: of vLLM servers.
        chat_url: of an endpoint of OpenAI's chat completions.
        chat_model: its model.
        chat_api_key: its key.
        slots: programs side by side in the sandbox of this process; None: one a core.
        allow_unsafe_sandbox: run programs even where nothing isolates them.
        tools: whether programs may run at all.

    Raises:
        InputError: options that do not go together, or an address that is none.
    """
    if url is not None:
        _refuse(
            {"--model": checkpoint, "--engine": engine_urls, "--slots": slots}
            | {"--allow-unsafe-sandbox": allow_unsafe_sandbox, "--chat-url": chat_url, "--chat-model": chat_model},
            beside="--url, whose server has a model and a sandbox",
        )
        _check_address(url, option="--url")
        return _behind_server(url, api_key=api_key)
    if chat_url is not None:
        _refuse({"--model": checkpoint, "--engine": engine_urls}, beside="--chat-url, which has a model")
        if chat_model is None:
            raise InputError("--chat-url given without --chat-model, the name of its model")
        _check_address(chat_url, option="--chat-url")
        return _behind_chat(
            chat_url,
            model=chat_model,
            api_key=chat_api_key,
            slots=slots,
            allow_unsafe=allow_unsafe_sandbox,
            tools=tools,
        )
    if chat_model is not None:
        raise InputError("--chat-model given without --chat-url, the endpoint that serves it")
    for engine_url in engine_urls:
        _check_address(engine_url, option="--engine")
    return _in_this_process(
        checkpoint, engine_urls=engine_urls, slots=slots, allow_unsafe=allow_unsafe_sandbox, tools=tools
    )


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
async def _behind_chat(
    url: str, *, model: str, api_key: str | None, slots: int | None, allow_unsafe: bool, tools: bool
) -> AsyncIterator[OpenJudge]:
    from tirjudge.engines.chat import open_chat_model

    async with (
        open_chat_model(url, model=model, api_key=api_key) as opened,
        _judging(opened, slots=slots, allow_unsafe=allow_unsafe, tools=tools) as judge,
    ):
        yield OpenJudge(judge=judge, kind="chat", url=url, model=model, fingerprint=None)


@asynccontextmanager
async def _in_this_process(
    checkpoint: Path | None, *, engine_urls: Sequence[str], slots: int | None, allow_unsafe: bool, tools: bool
) -> AsyncIterator[OpenJudge]:
    from tirjudge.opening import open_model

    async with (
        open_model(checkpoint, engine_urls=engine_urls or None) as opened,
        _judging(opened, slots=slots, allow_unsafe=allow_unsafe, tools=tools) as judge,
    ):
        yield OpenJudge(
            judge=judge,
            kind="engine" if engine_urls else "local",
            url=" ".join(sorted(engine_urls)) or None,
            model=opened.profile.name,
            fingerprint=opened.fingerprint,
        )


@asynccontextmanager
async def _judging(model: Any, *, slots: int | None, allow_unsafe: bool, tools: bool) -> AsyncIterator[JudgeOne]:
    """A judge over an opened model; the sandbox is opened only if programs may run."""
    from tirjudge.judge import Judge

    if not tools:
        yield Judge(engine=model.engine, sandbox=None, profile=model.profile).judge
        return
    from tirjudge_sandbox import SandboxPool

    async with SandboxPool(slots=slots, allow_unsafe=allow_unsafe) as pool:
        yield Judge(engine=model.engine, sandbox=pool, profile=model.profile).judge
