"""How a judge is opened, everywhere: `vllm:URL`, `embedded:PATH`, `chat:URL#model`, or an engine of another package.

    async with open_judge("vllm:http://gpu-1:8000", tools=["python"]) as judge:
        judgment = await judge.judge(request)

Engines and tools are imported when one is opened, so that the command line starts without them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from tirjudge.formats import format_named
from tirjudge.judge import Judge
from tirjudge.kinds import Kinds
from tirjudge.model import EngineKind, EngineOptions, Model
from tirjudge.tools import TOOLS
from tirjudge.tools.base import Tool, ToolKind, ToolOptions
from tirjudge.types import PYTHON

ENGINES: Kinds[EngineKind] = Kinds("tirjudge.engines", what="engine")
"""By the name before the colon of a model's address."""

NO_ENGINE_OPTIONS, NO_TOOL_OPTIONS = EngineOptions(), ToolOptions()

BUNDLED = "embedded"
"""The judge that comes with the package."""


def address_of(
    *,
    checkpoint: Path | None = None,
    engine_urls: Sequence[str] = (),
    chat_url: str | None = None,
    chat_model: str | None = None,
) -> str:
    """The address of a model that options name one by one; without any, of the bundled judge.

    >>> address_of(chat_url="https://api.openai.com/v1", chat_model="gpt-5")
    'chat:https://api.openai.com/v1#gpt-5'
    """
    if chat_url is not None:
        return f"chat:{chat_url}#{chat_model}"
    if engine_urls:
        return f"vllm:{','.join(engine_urls)}"
    return BUNDLED if checkpoint is None else f"{BUNDLED}:{checkpoint}"


@asynccontextmanager
async def open_model(
    model: str = BUNDLED, *, options: EngineOptions = NO_ENGINE_OPTIONS, format: str | None = None
) -> AsyncIterator[Model]:
    """Open a model, and close it afterwards.

    Args:
        model: `KIND:ADDRESS`, such as `embedded:PATH`, `vllm:URL,URL` or `chat:URL#NAME`; `embedded`: the bundled judge.
        options: what else is said of it.
        format: how it is asked; None: as its profile says.

    Raises:
        ValueError: there is no such kind of engine or format, or the address is malformed.
        CheckpointError: there is no such checkpoint, it cannot be loaded, or it was trained for another format.
        EngineUnavailable: no server answers, or what the engine needs is not installed.
    """
    kind, _, address = model.partition(":")
    async with ENGINES.named(kind).open(address, options) as opened:
        yield opened if format is None else replace(opened, profile=opened.profile.asked_in(format_named(format).name))


@asynccontextmanager
async def open_judge(
    model: str | Model = BUNDLED,
    *,
    tools: Sequence[str | Tool] = (PYTHON,),
    options: EngineOptions = NO_ENGINE_OPTIONS,
    tool_options: ToolOptions = NO_TOOL_OPTIONS,
    format: str | None = None,
) -> AsyncIterator[Judge]:
    """Open a model and its tools, and close them afterwards.

    Args:
        model: as in `open_model`; or one that is open already, to which `options` and `format` no longer apply.
        options, format: as in `open_model`.
        tools: names of tools to open, or tools that are open already; none: requests have to say `tools="off"`.
        tool_options: for those that are opened.

    Raises:
        ValueError, CheckpointError, EngineUnavailable: as in `open_model`, or there is no such tool.
        SandboxUnavailable: a tool cannot work on this machine.
    """
    kinds = [TOOLS.named(tool) if isinstance(tool, str) else tool for tool in tools]
    async with AsyncExitStack() as stack:
        opening = nullcontext(model) if isinstance(model, Model) else open_model(model, options=options, format=format)
        opened = await stack.enter_async_context(opening)
        at_hand = [
            await stack.enter_async_context(kind.open(tool_options)) if isinstance(kind, ToolKind) else kind
            for kind in kinds
        ]
        yield Judge(engine=opened.engine, tools=at_hand, profile=opened.profile, weights=opened.weights, model=opened)
