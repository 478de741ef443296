"""`tirjudge formats`: list prompt formats, show one, and test a format file."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tirjudge.errors import TirjudgeError
from tirjudge.formats import FORMATS, format_named
from tirjudge.formats.declaration import SLOT, PromptPart
from tirjudge.formats.declared import DeclaredFormat, shipped_names
from tirjudge.types import MODEL_MODES

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Name = Annotated[str, typer.Argument(metavar="NAME|FILE", help="Name from `tirjudge formats list`, or a format file.")]

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Prompt formats of this package and of other judges."
)


class FormatError(TirjudgeError, ValueError):
    """A format is unknown, or its file is wrong."""


@app.command("list")
def list_formats(json: AsJson = False) -> None:
    """List the installed formats and the formats of other judges.

    Examples:
        tirjudge formats list
    """
    cards = [_card(name) for name in (*FORMATS, *shipped_names())]
    if json:
        _print_json(cards)
        return
    table = Table("name", "judge", "modes", "sections", "licence", box=None)
    for card in cards:
        modes, sections = ", ".join(card["modes"]), ", ".join(card["sections"])
        table.add_row(card["name"], card["title"], modes, sections, card["licence"] or "")
    Console(width=None if Console().is_terminal else 140).print(table)


@app.command("show")
def show(name: Name, json: AsJson = False) -> None:
    """Show the source, the prompts and the forms of the verdicts of a format.

    Examples:
        tirjudge formats show prometheus-2
    """
    format = _format(name)
    if json:
        content = format.file.model_dump(mode="json", exclude_none=True) if isinstance(format, DeclaredFormat) else {}
        _print_json(_card(name) | content)
        return
    for field, value in _card(name).items():
        typer.echo(f"{field}: {', '.join(value) if isinstance(value, list) else value}")
    if not isinstance(format, DeclaredFormat):
        return
    file = format.file
    if file.source is not None:
        typer.echo(f"source: {file.source.repository} at {file.source.commit}: {', '.join(file.source.files)}")
    typer.echo(f"sampling: temperature {file.sampling.temperature:g}, top-p {file.sampling.top_p:g}")
    joined = "the most points win" if file.join == "points" else "orders that disagree are a tie"
    typer.echo(f"orders of the authors: {file.orders}; opposite orders: {joined}")
    if file.notes:
        typer.echo(f"notes: {file.notes}")
    for mode, part in file.modes.items():
        for prompt in part.prompt:
            for message in prompt.message:
                text = "(the messages of the conversation)" if message.content is None else message.content
                only = f", only with {message.only_with}" if message.only_with else ""
                typer.echo(f"\n--- {mode}, {message.role}{only}\n{text}")
        forms = [form.model_dump(exclude_defaults=True) for form in part.verdict]
        typer.echo(f"\n--- {mode}, verdict\n" + "\n".join(_dumped(form) for form in forms))


@app.command("test")
def test(name: Name) -> None:
    """Check a format file: its fields, its placeholders, and the verdicts of its examples. The exit status is 2 if something
    is wrong.

    Examples:
        tirjudge formats test mine.toml
    """
    format = _format(name)
    if not isinstance(format, DeclaredFormat):
        raise FormatError(
            f"{name}: a format of a package, which has its own tests; give a format file, or the name of another judge"
        )
    for mode, part in format.file.modes.items():
        prompts = "; ".join(_summary(prompt) for prompt in part.prompt)
        typer.echo(f"{mode}: {len(part.prompt)} prompts ({prompts}), {len(part.example)} examples read as expected")
    typer.echo(f"{format.name}: ok, sha256 {format.sha256}")


def _summary(prompt: PromptPart) -> str:
    slots = dict.fromkeys(match[0] for message in prompt.message for match in SLOT.finditer(message.content or ""))
    return " ".join(slots)


def _format(name: str) -> Any:
    try:
        return format_named(name)
    except ValueError as error:
        raise FormatError(str(error)) from error


def _card(name: str) -> dict[str, Any]:
    """Return the facts of a format for lists."""
    format = format_named(name)
    card: dict[str, Any] = {"name": format.name, "title": "tirjudge", "modes": list(map(str, MODEL_MODES))}
    if not isinstance(format, DeclaredFormat):
        return card | {"sections": ["reference", "rubric", "criteria"], "licence": None, "sha256": format.sha256}
    file = format.file
    sections = {name for part in file.modes.values() for prompt in part.prompt for name in prompt.sections}
    facts = {
        "title": file.title,
        "modes": list(map(str, file.modes)),
        "sections": sorted(sections),
        "licence": None if file.source is None else file.source.licence,
        "sha256": format.sha256,
    }
    return card | facts | ({"unverified": True} if file.unverified else {})


def _print_json(value: Any) -> None:
    typer.echo(_dumped(value))


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
