"""The page on training names every command, every option, every recipe and every section there is."""

import re
from pathlib import Path

import pytest
import typer

from tirjudge_training.cli import app
from tirjudge_training.config import Recipe, recipe_names

PAGE = (Path(__file__).parents[2] / "docs" / "training-rl.md").read_text(encoding="utf-8")
COMMAND = typer.main.get_command(app)
STAGED = ("sft", "rl", "sample", "distill", "zero", "ttrl")


def commands() -> list[str]:
    assert isinstance(COMMAND, typer.core.TyperGroup)
    return COMMAND.list_commands(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", commands())
def test_every_command_is_named(name: str) -> None:
    assert f"`tirjudge train {name}" in PAGE


@pytest.mark.parametrize("name", STAGED)
def test_every_option_of_a_stage_is_explained(name: str) -> None:
    assert isinstance(COMMAND, typer.core.TyperGroup)
    command = COMMAND.get_command(None, name)  # type: ignore[arg-type]
    assert command is not None
    for parameter in command.params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            if option.startswith("--") and option != "--help":
                assert f"`{option}`" in PAGE, option


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_is_named(name: str) -> None:
    assert re.search(rf"^\|[^|]*`{name}`", PAGE, re.MULTILINE)


@pytest.mark.parametrize("name", Recipe.model_fields)
def test_every_section_of_a_recipe_is_named(name: str) -> None:
    assert re.search(rf"^\|[^|]*`{name}`", PAGE, re.MULTILINE)
