"""Command line options shared by several commands, and commands generated from the fields of a settings dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

T = TypeVar("T")


def options_of(
    settings: type[T], *, panels: Mapping[str, Sequence[str]]
) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Return a decorator that turns a function of one settings object into a command with one option per field.

    Args:
        settings: dataclass whose fields all have a default and a type of the form `Annotated[TYPE, typer.Option(...)]`.
            An option without an environment variable reads `TIRJUDGE_<FIELD NAME>`.
        panels: title of a group of options in the help -> names of its fields.
    """
    titles = {name: title for title, names in panels.items() for name in names}
    hints = get_type_hints(settings, include_extras=True)
    parameters = []
    for field in fields(settings):  # type: ignore[arg-type]
        kind = in_panel(hints[field.name], titles.get(field.name))
        kind.__metadata__[0].envvar = kind.__metadata__[0].envvar or f"TIRJUDGE_{field.name.upper()}"
        parameters.append(
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=kind)
        )

    def decorate(run: Callable[[T], None]) -> Callable[..., None]:
        def command(**given: Any) -> None:
            run(settings(**given))

        command.__name__, command.__doc__ = run.__name__, run.__doc__
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return command

    return decorate


def in_panel(annotation: Any, title: str | None) -> Any:
    """Return the annotation of an option with the group under which the help lists the option. None: without a group."""
    option = copy(annotation.__metadata__[0])
    option.rich_help_panel = option.rich_help_panel or title
    return Annotated[annotation.__origin__, option]


class LogLevel(StrEnum):
    """Minimum severity of log messages."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


Checkpoint = Annotated[
    Path | None, typer.Option("--model", envvar="TIRJUDGE_MODEL", help="Checkpoint folder; default: the bundled judge.")
]
JudgeAddress = Annotated[
    str | None,
    typer.Option(
        "--judge",
        envvar="TIRJUDGE_JUDGE",
        help="KIND:ADDRESS of a model: embedded:PATH, vllm:URL[,URL], chat:URL#MODEL, classify:URL[#MODEL], sequence:FOLDER, "
        "rules:FILE, or another engine.",
    ),
]
FormatName = Annotated[
    str | None,
    typer.Option(
        "--format",
        envvar="TIRJUDGE_FORMAT",
        help="Prompt format: a name from `tirjudge formats list`, or a file; default: the checkpoint's, or tirjudge/2.",
    ),
]
ChatTemplateKwargs = Annotated[
    str | None,
    typer.Option(
        "--chat-template-kwargs",
        envvar="TIRJUDGE_CHAT_TEMPLATE_KWARGS",
        metavar="JSON",
        help="""Options of the model's chat template, such as '{"enable_thinking": true}'; default: no thinking.""",
    ),
]
ToolNames = Annotated[
    list[str] | None,
    typer.Option(
        "--tool",
        envvar="TIRJUDGE_TOOL",
        help="A tool that the model may call, default: python; or functions for its programs, such as run; repeatable.",
    ),
]
ChecksFile = Annotated[
    str | None,
    typer.Option(
        "--checks",
        envvar="TIRJUDGE_CHECKS",
        help="Settings file with checks of responses, whose gates change verdicts (docs/rules.md).",
    ),
]
Engines = Annotated[
    list[str] | None,
    typer.Option(
        "--engine",
        envvar="TIRJUDGE_ENGINE",
        help="URL of a vLLM server that runs the model; repeatable. --model then names the checkpoint folder with the "
        "judge's profile. Default: the folder that the server names, if this machine has it.",
    ),
]
EnginesFile = Annotated[
    Path | None,
    typer.Option(
        "--engines-file",
        envvar="TIRJUDGE_ENGINES_FILE",
        help="File with one vLLM server URL per line; changes take effect without a restart.",
    ),
]
EngineKey = Annotated[
    str | None,
    typer.Option(
        "--engine-key",
        envvar="TIRJUDGE_ENGINE_KEY",
        help="API key of the vLLM servers; safer in the environment than on the command line.",
    ),
]
AllowedHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed-host",
        envvar="TIRJUDGE_ALLOWED_HOST",
        help="Host name under which clients reach the server; repeatable. localhost and IP addresses are always allowed.",
    ),
]
MaxConnections = Annotated[
    int | None,
    typer.Option(
        "--max-connections",
        envvar="TIRJUDGE_MAX_CONNECTIONS",
        min=1,
        help="Maximum number of open connections; default: derived from the limit of open files, at most 2048.",
    ),
]
HeaderTimeout = Annotated[
    float,
    typer.Option(
        "--header-timeout-s",
        envvar="TIRJUDGE_HEADER_TIMEOUT_S",
        min=0.1,
        help="Timeout of a request's header and of a TLS handshake, in seconds.",
    ),
]
Slots = Annotated[
    int | None,
    typer.Option(
        "--slots",
        envvar="TIRJUDGE_SLOTS",
        min=1,
        help="Maximum number of concurrent programs; default: the number of CPU cores.",
    ),
]
AllowUnsafeSandbox = Annotated[
    bool,
    typer.Option(
        "--allow-unsafe-sandbox/--no-allow-unsafe-sandbox",
        envvar="TIRJUDGE_ALLOW_UNSAFE_SANDBOX",
        help="Run programs even if this machine offers no isolation.",
    ),
]
ChatUrl = Annotated[
    str | None,
    typer.Option(
        "--chat-url",
        envvar="TIRJUDGE_CHAT_URL",
        help="URL of an OpenAI-compatible chat endpoint to judge with, such as https://api.openai.com/v1.",
    ),
]
ChatModel = Annotated[
    str | None,
    typer.Option("--chat-model", envvar="TIRJUDGE_CHAT_MODEL", help="Name of the model at that endpoint."),
]
ChatApiKey = Annotated[
    str | None,
    typer.Option(
        "--chat-api-key",
        envvar="TIRJUDGE_CHAT_API_KEY",
        help="API key of that endpoint; safer in the environment than on the command line.",
    ),
]
ChatTimeout = Annotated[
    float | None,
    typer.Option(
        "--chat-timeout-s",
        envvar="TIRJUDGE_CHAT_TIMEOUT_S",
        min=0.1,
        help="Maximum seconds of one answer of that endpoint; default: 600.",
    ),
]
ChatConcurrency = Annotated[
    int | None,
    typer.Option(
        "--chat-concurrency",
        envvar="TIRJUDGE_CHAT_CONCURRENCY",
        min=1,
        help="Maximum number of concurrent requests to that endpoint; default: 8. Further requests queue in order.",
    ),
]
ChatContext = Annotated[
    int | None,
    typer.Option(
        "--chat-context-tokens",
        envvar="TIRJUDGE_CHAT_CONTEXT_TOKENS",
        min=1024,
        help="Context of that model in tokens, to which texts are shortened; default: 100000.",
    ),
]
