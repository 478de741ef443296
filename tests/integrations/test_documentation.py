"""The page on integrations: every adapter has its section, every example compiles, and every name in it is there."""

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
"""What adapters and reward dialects are made of; no adapters themselves."""
ADAPTERS = sorted(file.stem for file in FOLDER.glob("*.py") if file.stem not in SHARED)
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)

NEEDS_ITS_HOST = {"inspect": "inspect_ai", "verifiers": "verifiers"}


def imported(source: str) -> list[tuple[str, str]]:
    """The names that an example takes from us, with their modules."""
    froms = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    ours = [node for node in froms if node.module and node.module.partition(".")[0] == "tirjudge"]
    return [(str(node.module), alias.name) for node in ours for alias in node.names]


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_every_adapter_has_an_example(adapter: str) -> None:
    assert f"tirjudge.integrations.{adapter}" in PAGE


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_the_docstring_of_every_adapter_holds_an_example(adapter: str) -> None:
    docstring = ast.get_docstring(ast.parse((FOLDER / f"{adapter}.py").read_text(encoding="utf-8")))
    assert docstring is not None
    assert re.search(r"^ {4}\S", docstring, flags=re.MULTILINE)
    assert f"tirjudge.integrations.{adapter}" in docstring


@pytest.mark.parametrize("example", EXAMPLES)
def test_names_in_the_examples_are_there(example: str) -> None:
    for module, name in imported(example):
        host = NEEDS_ITS_HOST.get(module.rpartition(".")[2], "json")
        if host != "json":
            pytest.importorskip(host)
        assert hasattr(import_module(module), name), f"{module}.{name}"


@pytest.mark.parametrize("section", PAGE.split("\n## ")[2:])
def test_every_section_says_what_failure_looks_like(section: str) -> None:
    assert "\nFailure: " in section, section.partition("\n")[0]


def test_every_method_of_the_clients_is_named_and_both_have_them() -> None:
    methods = {name for name in vars(Client) if not name.startswith("_")} - {"close"}
    assert methods == {name for name in vars(AsyncClient) if not name.startswith("_")} - {"close"}
    assert all(f"`{name}`" in PAGE for name in methods)
    for name in methods:
        assert [*inspect.signature(getattr(Client, name)).parameters] == [
            *inspect.signature(getattr(AsyncClient, name)).parameters
        ]


@pytest.mark.parametrize("field", sorted(set(Scorer.__dataclass_fields__) - {"url"}))
def test_every_setting_that_adapters_share_is_named(field: str) -> None:
    assert f"`{field}`" in PAGE


@pytest.mark.parametrize("text", re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL))
def test_configuration_in_the_examples_can_be_read(text: str) -> None:
    assert tomllib.loads(text)
