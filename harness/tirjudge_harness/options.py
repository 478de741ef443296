"""Options that several commands of this room take."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from tirjudge.options import (
    AllowUnsafeSandbox,
    ChatApiKey,
    ChatModel,
    ChatUrl,
    Checkpoint,
    Engines,
    FormatName,
    JudgeAddress,
    Slots,
    ToolNames,
)
from tirjudge.types import PYTHON

if TYPE_CHECKING:
    from tirjudge_harness.judges import OpenJudge


class Tools(StrEnum):
    AUTO = "auto"
    ON = "on"
    OFF = "off"


Url = Annotated[
    str | None,
    typer.Option("--url", envvar="TIRJUDGE_URL", help="A server to ask; default: judge in this process."),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key", envvar="TIRJUDGE_API_KEY", help="Key of that server; better in the environment than here."
    ),
]
ToolUse = Annotated[Tools, typer.Option("--tools", help="Whether the model may, must or cannot run Python.")]
ToolCalls = Annotated[int, typer.Option("--max-tool-calls", min=0, max=16, help="Programs per rollout.")]
Seed = Annotated[int, typer.Option("--seed", min=0, max=2**63 - 1, help="Of orders and samples.")]
Concurrency = Annotated[
    int,
    typer.Option("--concurrency", min=1, help="Most judgments under way at a time; fewer where the judge is slower."),
]
PriceIn = Annotated[
    float | None, typer.Option("--price-in", min=0.0, help="Of a million tokens read, to show what the run costs.")
]
PriceOut = Annotated[
    float | None, typer.Option("--price-out", min=0.0, help="Of a million tokens written, to show what the run costs.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Data = Annotated[
    Path | None, typer.Option("--data", help="File or folder with the benchmark's rows; default: the Hugging Face hub.")
]
Parts = Annotated[
    list[str] | None, typer.Option("--part", help="A part of the benchmark, such as a split; repeatable.")
]
ProtocolName = Annotated[str, typer.Option("--protocol", help="paper, official, both_orders or votes=N.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOptions:
    """Who judges; without any of them, the bundled judge in this process."""

    url: Url = None
    api_key: ApiKey = None
    judge: JudgeAddress = None
    model: Checkpoint = None
    engine: Engines = None
    chat_url: ChatUrl = None
    chat_model: ChatModel = None
    chat_api_key: ChatApiKey = None
    slots: Slots = None
    allow_unsafe_sandbox: AllowUnsafeSandbox = False
    tool: ToolNames = None
    format: FormatName = None

    def opened(self, *, tools: Tools) -> AbstractAsyncContextManager[OpenJudge]:
        """That judge.

        Args:
            tools: whether programs may run at all.

        Raises:
            InputError: options that do not go together.
        """
        from tirjudge_harness.judges import open_chosen_judge

        return open_chosen_judge(self, tools=() if tools is Tools.OFF else self.tool or (PYTHON,))


BUNDLED = JudgeOptions()


def asking_a_judge(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of `JudgeOptions`, which it gets as one, in its parameter `judge_options`."""
    types = get_type_hints(JudgeOptions, include_extras=True)
    options = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=types[each.name])
        for each in fields(JudgeOptions)
    ]

    @wraps(command)
    def with_options(**given: Any) -> None:
        judge_options = JudgeOptions(**{option.name: given.pop(option.name) for option in options})
        command(judge_options=judge_options, **given)

    own = list(inspect.signature(command, eval_str=True).parameters.values())
    place = next(number for number, parameter in enumerate(own) if parameter.name == "judge_options")
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    parameters[place : place + 1] = options
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_options
