"""Pages that are made from the code: the help of all commands, the variables of the environment, and the HTTP API."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from typer.core import TyperOption

from tirjudge.cli import app as commands
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.help import leaves
from tirjudge.judge import Judge
from tirjudge_server.app import create_app
from tirjudge_server.service import JudgeService
from tirjudge_web.reference import reference_page

WIDTH = "100"
"""Width of help texts, in columns."""


@contextlib.contextmanager
def _terminal() -> Iterator[None]:
    """A terminal of a fixed width, so that each build gives the same pages."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDTH
    yield
    os.environ.pop("COLUMNS")
    if before is not None:
        os.environ["COLUMNS"] = before


def _commands() -> list[tuple[str, Any]]:
    """The name and the context of each command."""
    found = leaves(typer.main.get_command(commands), path=("tirjudge",))
    return sorted((" ".join(path), context) for path, context in found)


class CommandHelp(SphinxDirective):
    """`commands`: one section per command, with its help."""

    def run(self) -> list[nodes.Node]:
        with _terminal():
            return [self._section(name, context) for name, context in _commands()]

    def _section(self, name: str, context: Any) -> nodes.section:
        section = nodes.section(ids=[nodes.make_id(name)], names=[name])
        section += nodes.title(name, "", nodes.literal(name, name))
        section += nodes.literal_block(text := context.get_help(), text, language="text")
        return section


class EnvironmentVariables(SphinxDirective):
    """`environment`: a list of the variables, each with its option and the commands that read it."""

    def run(self) -> list[nodes.Node]:
        readers: dict[tuple[str, str, str], list[str]] = {}
        for name, context in _commands():
            for option in context.command.params:
                if isinstance(option, TyperOption) and option.envvar:
                    key = (str(option.envvar), option.opts[0], option.help or "")
                    readers.setdefault(key, []).append(name.removeprefix("tirjudge "))
        listed = nodes.definition_list()
        for (variable, option, text), names in sorted(readers.items()):
            item = nodes.definition_list_item()
            item += nodes.term("", "", nodes.literal(variable, variable))
            said = f"{text} ({option} of {', '.join(names)})"
            item += nodes.definition("", nodes.paragraph(said, said))
            listed += item
        return [listed]


def write_api_page(app: Sphinx, error: Exception | None) -> None:
    """Write the page that servers offer at `/docs` beside the other pages."""
    if error is None and app.builder.format == "html":
        service = JudgeService(Judge(engine=ScriptedEngine([])))
        schema = create_app(service, files=Path(app.outdir) / "files").openapi()
        (Path(app.outdir) / "api.html").write_text(reference_page(schema), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("commands", CommandHelp)
    app.add_directive("environment", EnvironmentVariables)
    app.connect("build-finished", write_api_page)
    return {"parallel_read_safe": True}
