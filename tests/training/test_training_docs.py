"""The training pages document every command, option, recipe and section."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
import typer
import yaml
from typer.core import TyperGroup

from tirjudge_training.cli import app
from tirjudge_training.config import Recipe, parse_recipe, recipe_names
from tirjudge_training.items import TrainingItem

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "training-rl.md").read_text(encoding="utf-8")
ENTRY = (DOCS / "training.md").read_text(encoding="utf-8")
COMMAND = typer.main.get_command(app)
STAGED = ("sft", "rl", "sample", "distill", "zero", "ttrl")


def commands() -> list[str]:
    assert isinstance(COMMAND, TyperGroup)
    return COMMAND.list_commands(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", commands())
def test_every_command_is_documented(name: str) -> None:
    assert f"`tirjudge train {name}" in PAGE


@pytest.mark.parametrize("name", STAGED)
def test_every_option_of_a_stage_is_documented(name: str) -> None:
    assert isinstance(COMMAND, TyperGroup)
    command = COMMAND.get_command(None, name)  # type: ignore[arg-type]
    assert command is not None
    for parameter in command.params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            if option.startswith("--") and option != "--help":
                assert f"`{option}`" in PAGE, option


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_is_documented(name: str) -> None:
    assert re.search(rf"^\|[^|]*`{name}`", PAGE, re.MULTILINE)


@pytest.mark.parametrize("name", Recipe.model_fields)
def test_every_section_of_a_recipe_is_documented(name: str) -> None:
    assert re.search(rf"^\|[^|]*`{name}`", PAGE, re.MULTILINE)


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("training-*.md")))
def test_entry_page_links_to_every_page(page: str) -> None:
    assert f"]({page})" in ENTRY


def test_recipe_on_the_entry_page_is_valid() -> None:
    shown = re.search(r"```yaml\n(.*?)```", ENTRY, re.DOTALL)
    assert shown is not None
    assert parse_recipe(yaml.safe_load(shown[1]), source="training.md").rl.steps == 2


@pytest.mark.parametrize("column", [field.name for field in fields(TrainingItem)])
def test_every_column_of_an_item_is_documented(column: str) -> None:
    assert re.search(rf"^\|[^|]*`{column}`", ENTRY, re.MULTILINE)
