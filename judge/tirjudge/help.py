"""The help of commands: plain text, in the width of the terminal, with groups of options and with examples.

A docstring ends with its examples, one command per line, which are printed as they are:

    Examples:
        tirjudge judge "Write two words." a.txt b.txt    # print the verdict with its programs

`rich_help_panel` of an option names its group. The environment variables that follow from the names of their options are
named together at the end.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

MAX_WIDTH = 110
"""Maximum width of help texts, in columns."""

EXAMPLES = "Examples:"
"""Line of a docstring after which its examples follow."""

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": MAX_WIDTH}
"""Settings of the outermost command. Its subcommands inherit them."""


def split_examples(text: str) -> tuple[str, list[str]]:
    """Split the docstring of a command into its prose and its examples, one command per element."""
    prose, _, examples = f"\n{inspect.cleandoc(text)}\n".partition(f"\n{EXAMPLES}\n")
    return prose.strip(), [line.strip() for line in examples.splitlines() if line.strip()]


def with_plain_help(app: typer.Typer) -> typer.Typer:
    """Make all commands of an app print their help as this module says, and return the app."""
    app.rich_markup_mode = None
    if not (isinstance(app.info.cls, type) and issubclass(app.info.cls, HelpfulGroup)):
        app.info.cls = HelpfulGroup
    for command in app.registered_commands:
        command.cls = HelpfulCommand
    for group in app.registered_groups:
        if group.typer_instance is not None:
            with_plain_help(group.typer_instance)
    return app


class _PlainHelp:
    """The parts of the help that commands and groups share."""

    help: str | None

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        prose, _ = split_examples(self.help or "")
        formatter.write_paragraph()
        formatter.write_text(prose)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _, examples = split_examples(self.help or "")
        if examples:
            with formatter.section(EXAMPLES.rstrip(":")):
                for example in examples:
                    formatter.write(f"{'':{formatter.current_indent}}{example}\n")

    def _write_parameters(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        variables: list[str] = []
        for parameter in self.get_params(ctx):  # type: ignore[attr-defined]
            is_option = isinstance(parameter, TyperOption)
            if is_option and parameter.envvar == _variable_of(parameter):
                parameter.show_envvar = False
                variables.append(_variable_of(parameter))
            record = parameter.get_help_record(ctx)
            if record is not None:
                title = parameter.rich_help_panel or ("Options" if is_option else "Arguments")
                groups.setdefault(title, []).append((_without_python_types(record[0]), record[1]))
        for title in sorted(groups, key=lambda title: (title != "Arguments", title == "Options")):
            with formatter.section(title):
                formatter.write_dl(groups[title])
        if variables:
            with formatter.section("Environment variables of options"):
                formatter.write_text(", ".join(variables))


def _variable_of(option: Any) -> str:
    """Name of the environment variable of an option: `--max-queue` is `TIRJUDGE_MAX_QUEUE`."""
    return "TIRJUDGE_" + option.opts[0].removeprefix("--").replace("-", "_").upper()


def _without_python_types(name: str) -> str:
    """`--slots <int range>` is `--slots <int>`, and `--tool <list[str]>` is `--tool <str>`. Flags have no type."""
    return name.replace("<bool>", "").replace(" range>", ">").replace("<list[", "<").replace("]>", ">").strip()


def _value_error(error: typer.BadParameter) -> str | None:
    """Return the message for a value that pydantic refused; None: the error has another cause."""
    from pydantic import ValidationError

    if not isinstance(error.__cause__, ValidationError):
        return None
    first = error.__cause__.errors(include_url=False)[0]
    if first["type"] == "value_error":
        return first["msg"].removeprefix("Value error, ")
    expected = first["msg"].removeprefix("Input should be ").partition(", unable to")[0]
    return f"{repr(first['input'])[:MAX_WIDTH]} given; expected: {expected}"


class HelpfulCommand(_PlainHelp, TyperCommand):
    """A command whose help is plain text. An error of a value names the value and what is expected."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = _value_error(error) or error.message
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        self._write_parameters(ctx, formatter)


class HelpfulGroup(_PlainHelp, TyperGroup):
    """A command with subcommands. A misspelt subcommand is an error that names similar ones."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary(each)) for name, each in commands if each is not None])
        self._write_parameters(ctx, formatter)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            similar = get_close_matches(name, self.list_commands(ctx))
            hint = f"Did you mean {' or '.join(similar)}?" if similar else f"See {ctx.command_path} --help."
            ctx.fail(f"No such command: {name}. {hint}")
        return super().resolve_command(ctx, args)


def summary(command: Any) -> str:
    """Return the first paragraph of a command's help, on one line."""
    return " ".join(split_examples(command.help or "")[0].partition("\n\n")[0].split())


def leaves(command: Any, *, path: tuple[str, ...], parent: Any = None) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the path and the context of each command below a command that has no subcommands itself."""
    context = command.make_context(path[-1], [], parent=parent, resilient_parsing=True)
    if not isinstance(command, TyperGroup):
        yield path, context
        return
    for name in command.list_commands(context):
        yield from leaves(command.get_command(context, name), path=(*path, name), parent=context)
