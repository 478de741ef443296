"""Options that several commands of this room take."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, fields, is_dataclass
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
    from tirjudge_harness.prices import Prices


class Tools(StrEnum):
    AUTO = "auto"
    ON = "on"
    OFF = "off"


class Orders(StrEnum):
    SINGLE = "single"
    BOTH = "both"


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


@dataclass(frozen=True, kw_only=True)
class AskOptions:
    """How a judge is asked."""

    tools: Annotated[Tools, typer.Option(help="Whether the model may, must or cannot run Python.")] = Tools.AUTO
    max_tool_calls: Annotated[int, typer.Option(min=0, max=16, help="Programs per rollout.")] = 3
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of orders and samples.")] = 0

    @property
    def fields(self) -> dict[str, Any]:
        """By name, as settings and requests take them."""
        return {name: value.value if isinstance(value, StrEnum) else value for name, value in asdict(self).items()}


@dataclass(frozen=True, kw_only=True)
class VoteOptions(AskOptions):
    """How a judge is asked several times."""

    orders: Annotated[Orders, typer.Option(help="One order drawn from the content, or two opposite ones.")] = (
        Orders.SINGLE
    )
    votes: Annotated[int, typer.Option(min=1, max=64, help="Rollouts per order.")] = 1


@dataclass(frozen=True, kw_only=True)
class PaceOptions:
    """How many judgments are under way, and what they cost."""

    concurrency: Concurrency = 64
    price_in: PriceIn = None
    price_out: PriceOut = None

    @property
    def prices(self) -> Prices:
        from tirjudge_harness.prices import Prices

        return Prices(input=self.price_in, output=self.price_out)


ASKING, VOTING, PACE = AskOptions(), VoteOptions(), PaceOptions()


def asking_a_judge(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameters may be groups of options: each field of a group becomes an option of its own.

    A group is a parameter whose default is one of the dataclasses above; its values there are the defaults.
    """
    own = inspect.signature(command, eval_str=True).parameters.values()
    groups = {parameter.name: parameter.default for parameter in own if is_dataclass(parameter.default)}

    @wraps(command)
    def with_options(**given: Any) -> None:
        filled = {
            name: type(group)(**{option.name: given.pop(option.name) for option in fields(group)})
            for name, group in groups.items()
        }
        command(**given, **filled)

    parameters: list[inspect.Parameter] = []
    for parameter in own:
        group = groups.get(parameter.name)
        types = {parameter.name: parameter.annotation}
        defaults = {parameter.name: parameter.default}
        if group is not None:
            types = get_type_hints(type(group), include_extras=True)
            defaults = {option.name: getattr(group, option.name) for option in fields(group)}
        parameters += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=types[name])
            for name, default in defaults.items()
        ]
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_options
