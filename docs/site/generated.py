"""Pages that are made from the code: the help of all commands, the variables of the environment, and the HTTP API."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.ext.napoleon import GoogleDocstring
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


INCLUDED = {
    "measurements/bundled-card": "judge/tirjudge/checkpoints/tiny/README.md",
    "measurements/scripts": "benchmarks/README.md",
}
"""Page of the site -> the page of the repository that it shows."""

LINK = re.compile(r"\]\((?!https?:|#)([^()\s#]+)")
"""A link to a file."""


def connect_pages(app: Sphinx, docname: str, source: list[str]) -> None:
    """Fill pages with the pages of the repository that they show, and point links to those at the site.

    Only a page of this folder is part of the site. Sphinx copies any other file that a page links to.
    """
    root, folder = Path(app.srcdir).parent, Path(app.srcdir, docname).parent
    place = folder
    if docname in INCLUDED:
        given = root / INCLUDED[docname]
        source[0], place = given.read_text(encoding="utf-8"), given.parent
    shown = {root / path: Path(app.srcdir, page).with_suffix(".md") for page, path in INCLUDED.items()}

    def moved(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(place / link[1]))
        return f"]({os.path.relpath(shown.get(target, target), folder)}"

    source[0] = LINK.sub(moved, source[0])


API_PAGE = "api.html"
"""The page that servers offer at `/docs`."""


def make_api_page(app: Sphinx) -> None:
    """Render the API page before autodoc imports our modules, because it changes the annotations of classes."""
    service = JudgeService(Judge(engine=ScriptedEngine([])))
    schema = create_app(service, files=Path(app.outdir) / "files").openapi()
    app.tirjudge_api_page = reference_page(schema)  # type: ignore


def write_api_page(app: Sphinx, error: Exception | None) -> None:
    """Write the API page beside the other pages."""
    if error is None and app.builder.format == "html":
        (Path(app.outdir) / API_PAGE).write_text(app.tirjudge_api_page, encoding="utf-8")  # type: ignore


def to_restructured_text(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Translate a docstring of ours: sections in Google's style, and code between single backticks.

    The extension napoleon is not used itself, because it takes a text before a colon as the type of an attribute.
    """
    lines[:] = [line.replace("`", "``") for line in lines]
    if what != "attribute":
        lines[:] = GoogleDocstring(lines, what=what, name=name, obj=obj, options=options).lines()


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("commands", CommandHelp)
    app.add_directive("environment", EnvironmentVariables)
    app.connect("builder-inited", make_api_page)
    app.connect("source-read", connect_pages)
    app.connect("autodoc-process-docstring", to_restructured_text)
    app.connect("build-finished", write_api_page)
    return {"parallel_read_safe": True}
