"""The `tirjudge` command. Rooms add their commands to it as entry points, and it imports no room by name.

A room's command line imports what is heavy inside its commands, so that `tirjudge --help` is quick and works without
the extras.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tirjudge.errors import TirjudgeError

COMMANDS = "tirjudge.commands"
"""The entry point group in which rooms register a function or a typer app."""


class RoomCommands(TyperGroup):
    """The commands of all installed rooms, each imported when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(metadata.entry_points(group=COMMANDS).names)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = metadata.entry_points(group=COMMANDS, name=cmd_name)
        return load_command(next(iter(found))) if found else None


def load_command(entry_point: metadata.EntryPoint) -> Any:
    """The command behind an entry point; where its module cannot be imported, one that says so."""
    try:
        loaded = entry_point.load()
    except ModuleNotFoundError as error:
        loaded = _unavailable(error, command=entry_point.name)
    if not isinstance(loaded, typer.Typer):
        room = typer.Typer(add_completion=False)
        room.command(entry_point.name)(loaded)
        loaded = room
    command = typer.main.get_command(loaded)
    command.name = entry_point.name
    return command


def _unavailable(error: ModuleNotFoundError, *, command: str) -> Callable[[], None]:
    def unavailable() -> None:
        raise error

    unavailable.__doc__ = missing_module(error, command=command)
    return unavailable


app = typer.Typer(cls=RoomCommands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tirjudge {metadata.version('tirjudge')}")
        raise typer.Exit


@app.callback()
def tirjudge(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True)] = False,
) -> None:
    """A judge that checks: a model reasons, writes Python, the code runs in a sandbox, and a verdict follows."""


def main() -> None:
    """Run the command line. What went wrong outside of our code ends in one line: status 2 if the user can mend it."""
    command = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), "")
    try:
        app()
    except ModuleNotFoundError as error:
        _end(missing_module(error, command=command), status=2)
    except TirjudgeError as error:
        _end(f"tirjudge {command}: {error}", status=2 if isinstance(error, ValueError) else 1)


def _end(message: str, *, status: int) -> None:
    typer.echo(message, err=True)
    raise SystemExit(status)


def missing_module(error: ModuleNotFoundError, *, command: str) -> str:
    """What to install, as far as our own metadata know which extra brings the module."""
    module = (error.name or "").partition(".")[0]
    for requirement in metadata.requires("tirjudge") or []:
        found = re.match(r"([\w-]+).*extra == ['\"](\w+)['\"]", requirement)
        if found and found[1].replace("-", "_") == module:
            return f"tirjudge {command} needs: pip install 'tirjudge[{found[2]}]'"
    return f"tirjudge {command} cannot be loaded: {error}"
