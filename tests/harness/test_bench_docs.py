"""The documentation has every command of `tirjudge bench`, and every option of `tirjudge bench run`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from tirjudge_harness.bench_cli import app

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
GROUP = typer.main.get_command(app)
RUN = GROUP.commands["run"]  # type: ignore[attr-defined]
REPORT = GROUP.commands["report"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("option", [name for option in RUN.params for name in option.opts if name.startswith("--")])
def test_every_option_of_run_is_documented(option: str) -> None:
    assert re.search(rf"^\|[^|]*`{option}`", PAGE, re.MULTILINE)


@pytest.mark.parametrize("command", sorted(GROUP.commands))  # type: ignore[attr-defined]
def test_every_command_is_documented(command: str) -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    assert f"tirjudge bench {command} " in pages


def test_the_page_of_reports_names_every_protocol_that_the_help_names() -> None:
    (option,) = [option for option in REPORT.params if "--protocol" in option.opts]
    named = re.findall(r"[a-z_]+(?==N|,| or )", option.help.partition(" Default")[0])
    (row,) = re.findall(r"^\| `--protocol` \|.*", (DOCS / "reports.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {"paper", "single_game", "votes"} <= set(named)
    assert [name for name in named if f"`{name}" not in row] == []
