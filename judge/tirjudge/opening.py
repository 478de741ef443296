"""Open a judge from an address: `vllm:URL`, `embedded:PATH`, `chat:URL#model`, or an engine of another package.

    async with open_judge("vllm:http://gpu-1:8000", tools=["python"]) as judge:
        judgment = await judge.judge(request)

Engines and tools are imported when they are opened, so that the command line starts fast.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from tirjudge.checks import Checks, open_checks
from tirjudge.formats import format_named
from tirjudge.judge import Judge
from tirjudge.kinds import Kinds
from tirjudge.model import EngineKind, EngineOptions, Model
from tirjudge.tools import TOOLS
from tirjudge.tools.base import Tool, ToolKind, ToolOptions
from tirjudge.tools.functions import FUNCTIONS, ToolFunction
from tirjudge.tools.python import PythonTool
from tirjudge.types import PYTHON

ENGINES: Kinds[EngineKind] = Kinds("tirjudge.engines", what="engine")
"""Installed engines, by the part of a model address before the colon."""

NO_ENGINE_OPTIONS, NO_TOOL_OPTIONS = EngineOptions(), ToolOptions()

BUNDLED = "embedded"
"""Address of the bundled judge."""


def address_of(
    *,
    checkpoint: Path | None = None,
    engine_urls: Sequence[str] = (),
    chat_url: str | None = None,
    chat_model: str | None = None,
) -> str:
    """Return the model address for separate command line options; the bundled judge if no option is given.

    Args:
        checkpoint: checkpoint folder for the embedded engine.
        engine_urls: URLs of vLLM servers.
        chat_url: URL of a chat endpoint.
        chat_model: name of the model at that endpoint.

    Raises:
        ValueError: a URL of a chat endpoint without the name of a model.

    >>> address_of(chat_url="https://api.openai.com/v1", chat_model="gpt-5")
    'chat:https://api.openai.com/v1#gpt-5'
    """
    if chat_url is not None:
        if chat_model is None:
            raise ValueError("--chat-url: given without --chat-model; give the name of the model at that endpoint")
        return f"chat:{chat_url}#{chat_model}"
    if engine_urls:
        return f"vllm:{','.join(engine_urls)}"
    return BUNDLED if checkpoint is None else f"{BUNDLED}:{checkpoint}"


@asynccontextmanager
async def open_model(
    model: str = BUNDLED, *, options: EngineOptions = NO_ENGINE_OPTIONS, format: str | None = None
) -> AsyncIterator[Model]:
    """Open a model and close it at the end of the block.

    Args:
        model: `KIND:ADDRESS`, such as `embedded:PATH`, `vllm:URL,URL` or `chat:URL#NAME`; `embedded`: the bundled
            judge.
        options: further options of the engine.
        format: name of the prompt format. None: the format of the profile.

    Raises:
        ValueError: unknown kind of engine, unknown format, or malformed address.
        CheckpointError: the checkpoint does not exist, cannot be loaded, or was trained for another format.
        EngineUnavailable: no server answers, or a dependency of the engine is not installed.
    """
    kind, _, address = model.partition(":")
    async with ENGINES.named(kind).open(address, options) as opened:
        yield opened if format is None else replace(opened, profile=opened.profile.asked_in(format_named(format).name))


def is_function_tool(tool: str | Tool) -> bool:
    """Whether a tool is a name of `tirjudge.functions`, with or without settings after a colon."""
    return isinstance(tool, str) and tool not in TOOLS and tool.partition(":")[0] in FUNCTIONS


def given_tools(names: Sequence[str] | None) -> list[str]:
    """Return the tools that the options `--tool` of a command name. Without a tool that the model may call, it is Python.

    >>> given_tools(None), given_tools(["run"]), given_tools(["python", "run"])
    (['python'], ['python', 'run'], ['python', 'run'])
    """
    given = list(names or ())
    return [PYTHON, *given] if all(map(is_function_tool, given)) else given


def _tool_kind(name: str) -> ToolKind:
    """Return the tool of a name.

    Raises:
        ValueError: the name is not registered, neither as a tool nor as functions.
    """
    if name in TOOLS:
        return TOOLS[name]
    raise ValueError(
        f"unknown tool {name!r}; installed: {', '.join((*TOOLS, *FUNCTIONS))}; to add one, install a package with an entry "
        f"point in the group {TOOLS.group} or {FUNCTIONS.group} (docs/adding-kinds.md)"
    )


@asynccontextmanager
async def open_functions(names: Sequence[str]) -> AsyncIterator[list[ToolFunction]]:
    """Open functions for the programs of a judge, and close them at the end of the block.

    Args:
        names: `NAME` or `NAME:SETTINGS` for each.

    Raises:
        ValueError: unknown name, invalid settings, or two functions of the same name.
        ToolUnavailable: the functions do not work here.
    """
    async with AsyncExitStack() as stack:
        found: dict[str, ToolFunction] = {}
        for each in names:
            name, _, settings = each.partition(":")
            for function in await stack.enter_async_context(FUNCTIONS.named(name).open(settings)):
                if function.name in found:
                    raise ValueError(f"--tool {each}: a second function {function.name!r}")
                found[function.name] = function
        yield list(found.values())


def with_functions(tools: Sequence[Tool], functions: Sequence[ToolFunction]) -> list[Tool]:
    """Return the tools, with functions for the programs of the Python tool.

    Raises:
        ValueError: functions were given, but there is no Python tool.
    """
    if functions and not any(isinstance(tool, PythonTool) for tool in tools):
        raise ValueError(f"--tool: {functions[0].name} is a function of programs; add --tool {PYTHON}")
    return [
        replace(tool, functions=[*tool.functions, *functions]) if isinstance(tool, PythonTool) and functions else tool
        for tool in tools
    ]


@asynccontextmanager
async def open_judge(
    model: str | Model = BUNDLED,
    *,
    tools: Sequence[str | Tool] = (PYTHON,),
    options: EngineOptions = NO_ENGINE_OPTIONS,
    tool_options: ToolOptions = NO_TOOL_OPTIONS,
    format: str | None = None,
    checks: str | Checks | None = None,
) -> AsyncIterator[Judge]:
    """Open a model and its tools, and close them at the end of the block.

    Args:
        model: an address as in `open_model`, or an open model. `options` and `format` do not apply to an open model.
        options, format: as in `open_model`.
        tools: names of tools to open, or open tools. Empty: only requests with `tools="off"` are accepted. A name of
            `tirjudge.functions`, such as `run` or `mcp:SETTINGS`, offers functions to the programs of `python`.
        tool_options: options of the tools and checks that are opened by name.
        checks: path of a settings file with checks of responses, or open checks. None: no checks, or those of a judge
            without a model.

    Raises:
        ValueError: as in `open_model`, unknown tool, functions without `python`, or invalid checks.
        CheckpointError, EngineUnavailable: as in `open_model`.
        SandboxUnavailable: a tool or a check does not work on this machine.
        ToolUnavailable: functions or checks need a library that is not installed.
    """
    kinds = [_tool_kind(tool) if isinstance(tool, str) else tool for tool in tools if not is_function_tool(tool)]
    async with AsyncExitStack() as stack:
        opening = nullcontext(model) if isinstance(model, Model) else open_model(model, options=options, format=format)
        opened = await stack.enter_async_context(opening)
        open_tools = [
            await stack.enter_async_context(kind.open(tool_options)) if isinstance(kind, ToolKind) else kind
            for kind in kinds
        ]
        names = [tool for tool in tools if isinstance(tool, str) and is_function_tool(tool)]
        functions = await stack.enter_async_context(open_functions(names))
        if isinstance(checks, str):
            checks = await stack.enter_async_context(open_checks(checks, options=tool_options))
        if checks is not None and opened.checks is not None:
            raise ValueError("--checks: given with a judge of rules, which has its checks already; remove it")
        if checks is not None and opened.engine.facts.scores:
            raise ValueError(
                "--checks: given with a scalar reward model, whose scores have no scale for the caps of checks; remove it"
            )
        yield Judge(
            engine=opened.engine,
            tools=with_functions(open_tools, functions),
            profile=opened.profile,
            weights=opened.weights,
            model=opened,
            checks=opened.checks if checks is None else checks,
        )
