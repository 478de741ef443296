"""The `tirjudge` command. Other packages register subcommands as entry points.

A subcommand's module imports heavy dependencies inside its functions, so that `tirjudge --help` is fast and works
without the extras.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import metadata
from typing import Annotated, Any

import typer

from tirjudge.errors import TirjudgeError
from tirjudge.extras import extras_with
from tirjudge.help import CONTEXT_SETTINGS, HelpfulGroup, with_plain_help

COMMANDS = "tirjudge.commands"
"""Entry point group of the subcommands. An entry point names a function or a typer app."""


class RoomCommands(HelpfulGroup):
    """All installed subcommands. Each is imported when it is used or listed in the help."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(metadata.entry_points(group=COMMANDS).names)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = metadata.entry_points(group=COMMANDS, name=cmd_name)
        return load_command(next(iter(found))) if found else None


def load_command(entry_point: metadata.EntryPoint) -> Any:
    """Load the command of an entry point. If its module cannot be imported, return a command that raises that error."""
    try:
        loaded = entry_point.load()
    except ModuleNotFoundError as error:
        loaded = _unavailable(error, command=entry_point.name)
    if not isinstance(loaded, typer.Typer):
        room = typer.Typer(add_completion=False)
        room.command(entry_point.name)(loaded)
        loaded = room
    command = typer.main.get_command(with_plain_help(loaded))
    command.name = entry_point.name
    return command


def _unavailable(error: ModuleNotFoundError, *, command: str) -> Callable[[], None]:
    def unavailable() -> None:
        raise error

    unavailable.__doc__ = missing_module(error, command=command)
    return unavailable


app = typer.Typer(
    cls=RoomCommands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=CONTEXT_SETTINGS,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tirjudge {metadata.version('tirjudge')}")
        raise typer.Exit


@app.callback()
def tirjudge(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True)] = False,
) -> None:
    """A judge that checks: a model reasons, writes Python, the code runs in a sandbox, and a verdict follows.

    The exit status is 0 if everything succeeded, 1 if something failed, and 2 if the command cannot run as it is given.

    Examples:
        tirjudge judge "Write two words." a.txt b.txt
        tirjudge bench run --data mine.csv --out runs/mine
        tirjudge serve
    """


def main() -> None:
    """Run the command line. A `TirjudgeError` or a missing module is printed as one line on stderr.

    Exit status: 2 if the user can fix the cause, 1 for any other `TirjudgeError`.
    """
    command = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), "")
    try:
        app(prog_name="tirjudge")
    except ModuleNotFoundError as error:
        _end(missing_module(error, command=command), status=2)
    except TirjudgeError as error:
        _end(f"tirjudge {command}: {error}", status=2 if isinstance(error, ValueError) else 1)


def _end(message: str, *, status: int) -> None:
    typer.echo(message, err=True)
    raise SystemExit(status)


def missing_module(error: ModuleNotFoundError, *, command: str) -> str:
    """Return the error message for a missing module: the extra to install, if an extra of this package provides it."""
    extras = extras_with(error.name or "")
    if not extras:
        return f"tirjudge {command} cannot be loaded: {error}"
    extra = command if command in extras else extras[0]
    return f"tirjudge {command} needs the module {error.name}: pip install 'tirjudge[{extra}]'"
