"""Options that several commands of the harness share.

Groups of options are dataclasses. `asking_a_judge` turns each field of a group into a command-line option.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_type_hints

import typer

from tirjudge.http.retry_events import CONNECT_RETRY_S
from tirjudge.options import (
    AllowUnsafeSandbox,
    ChatApiKey,
    ChatModel,
    ChatTemplateKwargs,
    ChatUrl,
    Checkpoint,
    ChecksFile,
    Engines,
    FormatName,
    JudgeAddress,
    Slots,
    ToolNames,
    in_panel,
)

if TYPE_CHECKING:
    from tirjudge.prices import Prices
    from tirjudge_harness.judges import OpenJudge
    from tirjudge_harness.own_data.mapping import GivenColumns


class Tools(StrEnum):
    """Whether the model can run Python, as in a `JudgeRequest`."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class Orders(StrEnum):
    """Whether responses are shown in one order or in two opposite orders."""

    SINGLE = "single"
    BOTH = "both"


class VerdictRequirement(StrEnum):
    """What a verdict must rest on, as in a `JudgeRequest`."""

    CHECKED = "checked"


Url = Annotated[
    str | None,
    typer.Option("--url", envvar="TIRJUDGE_URL", help="URL of a tirjudge server. Default: judge in this process."),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key", envvar="TIRJUDGE_API_KEY", help="API key of the server. Prefer the environment variable."
    ),
]
ConnectRetry = Annotated[
    float,
    typer.Option("--connect-retry-s", min=0.0, help="Seconds to retry while the server at --url refuses connections."),
]
Concurrency = Annotated[
    int,
    typer.Option("--concurrency", min=1, help="Maximum number of concurrent judgments. It is reduced for slow judges."),
]
PriceIn = Annotated[
    float | None, typer.Option("--price-in", min=0.0, help="Price per million input tokens, to show the cost.")
]
PriceOut = Annotated[
    float | None, typer.Option("--price-out", min=0.0, help="Price per million output tokens, to show the cost.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="File or folder with the rows of the benchmark, or with your own rows. Default: the Hugging Face hub.",
    ),
]
Parts = Annotated[list[str] | None, typer.Option("--part", help="Part of the benchmark, such as a split; repeatable.")]
SampleSize = Annotated[
    int | None,
    typer.Option("--limit", min=1, help="Sample size. Each subset gets its proportional share. Default: all examples."),
]
Documents = Annotated[
    Path | None,
    typer.Option(
        "--documents",
        help="Folder of .txt, .md and .pdf files that come with each request as the store documents; a subfolder named as an "
        "example's id has the documents of that example. Default: no documents.",
    ),
]
MaxErrorRate = Annotated[
    float | None,
    typer.Option(
        "--max-error-rate",
        min=0.0,
        max=1.0,
        help="Maximum share of the rows that are invalid, and of the examples that are not judged. Default: 0.1 of the rows, "
        "and no example.",
    ),
]
MinAccuracy = Annotated[
    float | None,
    typer.Option("--min-accuracy", min=0.0, max=1.0, help="Exit with 1 if the main figure is lower, such as 0.8."),
]
ProtocolName = Annotated[str, typer.Option("--protocol", help="paper, official, single_game, both_orders or votes=N.")]


class OptionGroup:
    """A group of options, under a title of its own in the help."""

    panel: ClassVar[str]
    """Title of the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions(OptionGroup):
    """Options that select a model and its tools. Default: the bundled judge in this process."""

    panel: ClassVar[str] = "Judge"

    judge: JudgeAddress = None
    model: Checkpoint = None
    engine: Engines = None
    chat_url: ChatUrl = None
    chat_model: ChatModel = None
    chat_api_key: ChatApiKey = None
    slots: Slots = None
    allow_unsafe_sandbox: AllowUnsafeSandbox = False
    tool: ToolNames = None
    checks: ChecksFile = None
    format: FormatName = None
    chat_template_kwargs: ChatTemplateKwargs = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOptions(ModelOptions):
    """Options that select the judge. Default: the bundled judge in this process."""

    url: Url = None
    api_key: ApiKey = None
    connect_retry_s: ConnectRetry = CONNECT_RETRY_S

    def opened(self, *, tools: Tools) -> AbstractAsyncContextManager[OpenJudge]:
        """Return the selected judge.

        Args:
            tools: whether the judge can run programs.

        Raises:
            InputError: the options conflict.
        """
        from tirjudge.opening import given_tools
        from tirjudge_harness.judges import open_chosen_judge

        return open_chosen_judge(self, tools=() if tools is Tools.OFF else given_tools(self.tool))


BUNDLED, BUNDLED_MODEL = JudgeOptions(), ModelOptions()


@dataclass(frozen=True, kw_only=True)
class AskOptions(OptionGroup):
    """Options of each request."""

    panel: ClassVar[str] = "Requests"

    tools: Annotated[
        Tools, typer.Option(help="Whether the model can (auto), must (on) or cannot (off) run Python.")
    ] = Tools.AUTO
    max_tool_calls: Annotated[int, typer.Option(min=0, max=16, help="Maximum number of programs per rollout.")] = 3
    require: Annotated[
        VerdictRequirement | None,
        typer.Option(help="Abstain unless a program checked the verdict (--require checked). Default: any verdict."),
    ] = None
    min_confidence: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help="Abstain if the confidence is lower, such as 0.8. Default: any confidence."
        ),
    ] = None
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of orders and samples.")] = 0
    force_verdict: Annotated[
        bool,
        typer.Option(
            "--force-verdict/--no-force-verdict",
            help="Whether a verdict is forced if the model gives none. Default: it is.",
        ),
    ] = True

    @property
    def fields(self) -> dict[str, Any]:
        """Return the options that are given, as keyword arguments for settings and requests. Forced verdicts are their
        default."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        if self.force_verdict:
            del given["force_verdict"]
        return {name: value.value if isinstance(value, StrEnum) else value for name, value in given.items()}


@dataclass(frozen=True, kw_only=True)
class VoteOptions(AskOptions):
    """Options of each request, with orders and votes."""

    orders: Annotated[
        Orders, typer.Option(help="One order, drawn from a hash of the content, or two opposite orders.")
    ] = Orders.SINGLE
    votes: Annotated[int, typer.Option(min=1, max=64, help="Number of rollouts per order.")] = 1


@dataclass(frozen=True, kw_only=True)
class PaceOptions(OptionGroup):
    """Concurrency and prices."""

    panel: ClassVar[str] = "Speed and cost"

    concurrency: Concurrency = 64
    price_in: PriceIn = None
    price_out: PriceOut = None

    @property
    def prices(self) -> Prices:
        """Return the prices of tokens."""
        from tirjudge.prices import Prices

        return Prices(input=self.price_in, output=self.price_out)


@dataclass(frozen=True, kw_only=True)
class RowOptions(OptionGroup):
    """Options that select the examples of a benchmark."""

    panel: ClassVar[str] = "Rows"

    data: Data = None
    part: Parts = None
    limit: SampleSize = None
    documents: Documents = None
    max_error_rate: MaxErrorRate = None

    @property
    def fields(self) -> dict[str, Any]:
        """Return the options that select examples, as keyword arguments for `RunSettings`."""
        given = {"data": self.data, "parts": tuple(self.part or ()), "limit": self.limit}
        return given | {"documents": self.documents}


@dataclass(frozen=True, kw_only=True)
class ColumnOptions(OptionGroup):
    """Options that name the columns of a user's file."""

    panel: ClassVar[str] = "Columns of your own rows"

    prompt_column: Annotated[
        list[str] | None,
        typer.Option(help="Column of the prompt; repeatable, to join columns. Default: found by name."),
    ] = None
    chosen_column: Annotated[str | None, typer.Option(help="Column of the right response. Default: found.")] = None
    rejected_column: Annotated[str | None, typer.Option(help="Column of the wrong response. Default: found.")] = None
    response_column: Annotated[
        list[str] | None,
        typer.Option(help="Column of a response, or of lists of responses; repeatable. Default: found."),
    ] = None
    label_column: Annotated[
        list[str] | None,
        typer.Option(help="Column of the label or rating; repeat it for several raters. Default: found."),
    ] = None
    label_value: Annotated[
        list[str] | None,
        typer.Option(help="Meaning of a label value, such as left=A, 2=B or same=tie; repeatable. Default: found."),
    ] = None
    id_column: Annotated[
        str | None, typer.Option(help="Column of the ids. Default: found, or a hash of the texts.")
    ] = None
    subset_column: Annotated[str | None, typer.Option(help="Column of the subsets. Default: found, or none.")] = None
    reference_column: Annotated[
        str | None, typer.Option(help="Column of reference answers for the judge. Default: found, or none.")
    ] = None
    model_a_column: Annotated[
        str | None,
        typer.Option(help="Column of the model of the first response, for `bench rank`. Default: found, or none."),
    ] = None
    model_b_column: Annotated[
        str | None,
        typer.Option(help="Column of the model of the second response, for `bench rank`. Default: found, or none."),
    ] = None

    @property
    def given(self) -> GivenColumns:
        """Return the columns that are given.

        Raises:
            InputError: a `--label-value` has another form.
        """
        from tirjudge_harness.own_data.mapping import GivenColumns, label_values_of

        return GivenColumns(
            prompt=tuple(self.prompt_column or ()),
            chosen=self.chosen_column,
            rejected=self.rejected_column,
            responses=tuple(self.response_column or ()),
            labels=tuple(self.label_column or ()),
            label_values=label_values_of(self.label_value or ()),
            id=self.id_column,
            subset=self.subset_column,
            reference=self.reference_column,
            model_a=self.model_a_column,
            model_b=self.model_b_column,
        )


ASKING, VOTING, PACE, ROWS = AskOptions(), VoteOptions(), PaceOptions(), RowOptions()
COLUMNS = ColumnOptions()


def asking_a_judge(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command: replace each parameter that is a group of options by one option per field of the group.

    A parameter is a group if its default is an instance of a dataclass. The fields of this instance are the defaults of the
    options. The help lists the options under the `panel` of the group.
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
            hints = get_type_hints(type(group), include_extras=True)
            title = group.panel if isinstance(group, OptionGroup) else None
            types = {option.name: in_panel(hints[option.name], title) for option in fields(group)}
            defaults = {option.name: getattr(group, option.name) for option in fields(group)}
        parameters += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=types[name])
            for name, default in defaults.items()
        ]
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_options
