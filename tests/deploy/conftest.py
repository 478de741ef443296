"""Fixtures for the tests of deployment files: the settings of the server, and external tools."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
import typer

from tirjudge_server.cli import serve

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    """Root folder of the project."""
    return ROOT


@pytest.fixture(scope="session")
def settings_of_serve() -> set[str]:
    """The environment variables that `tirjudge serve` reads."""
    app = typer.Typer(add_completion=False)
    app.command()(serve)
    named = {option.envvar for option in typer.main.get_command(app).params}
    return {name for name in named if isinstance(name, str)}


@pytest.fixture(scope="session")
def tool():
    """Return a function that finds a program next to this Python or on PATH. It skips the test if the program is missing."""

    def find(name: str) -> str:
        beside = str(Path(sys.executable).parent)
        found = shutil.which(name, path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")
        return found or pytest.skip(f"{name} is not installed; run `pip install --group deploy`")

    return find
