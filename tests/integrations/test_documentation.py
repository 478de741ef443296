"""The page on integrations: every adapter has an example, and every imported name exists."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from tirjudge.client import AsyncClient, Client
from tirjudge.integrations.scoring import Scorer

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
FOLDER = ROOT / "judge" / "tirjudge" / "integrations"
SHARED = {"__init__", "detemplate", "scoring"}
"""Modules that adapters share; they are not adapters."""
ADAPTERS = sorted(file.stem for file in FOLDER.glob("*.py") if file.stem not in SHARED)
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def imported(source: str) -> list[tuple[str, str]]:
    """Return the modules and names that an example imports from tirjudge."""
    froms = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    ours = [node for node in froms if node.module and node.module.partition(".")[0] == "tirjudge"]
    return [(str(node.module), alias.name) for node in ours for alias in node.names]


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_every_adapter_has_an_example(adapter: str) -> None:
    assert f"tirjudge.integrations.{adapter}" in PAGE


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_the_docstring_of_every_adapter_has_an_example(adapter: str) -> None:
    docstring = ast.get_docstring(ast.parse((FOLDER / f"{adapter}.py").read_text(encoding="utf-8")))
    assert docstring is not None
    assert re.search(r"^ {4}\S", docstring, flags=re.MULTILINE)
    assert f"tirjudge.integrations.{adapter}" in docstring


@pytest.mark.parametrize("example", EXAMPLES)
def test_imported_names_of_the_examples_exist(example: str) -> None:
    for module, name in imported(example):
        if module.startswith("tirjudge.integrations."):  # read the source, because the import may need the host package
            source = FOLDER / f"{module.rpartition('.')[2]}.py"
            assert name in defined_in(source), f"{module}.{name}"
        else:
            assert hasattr(import_module(module), name), f"{module}.{name}"


def defined_in(source: Path) -> set[str]:
    """Return the names of the top-level functions and classes of a file, also of conditional ones."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))) if isinstance(node, kinds)}


@pytest.mark.parametrize("section", PAGE.split("\n## ")[2:])
def test_every_section_describes_failures(section: str) -> None:
    assert "\nFailure: " in section, section.partition("\n")[0]


def test_both_clients_have_the_same_methods_and_the_page_names_them() -> None:
    methods = {name for name in vars(Client) if not name.startswith("_")} - {"close"}
    assert methods == {name for name in vars(AsyncClient) if not name.startswith("_")} - {"close"}
    assert all(f"`{name}`" in PAGE for name in methods)
    for name in methods:
        assert [*inspect.signature(getattr(Client, name)).parameters] == [
            *inspect.signature(getattr(AsyncClient, name)).parameters
        ]


@pytest.mark.parametrize("field", sorted(set(Scorer.__dataclass_fields__) - {"url"}))
def test_every_shared_setting_of_adapters_is_on_the_page(field: str) -> None:
    assert f"`{field}`" in PAGE


@pytest.mark.parametrize("text", re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL))
def test_toml_examples_are_valid(text: str) -> None:
    assert tomllib.loads(text)
