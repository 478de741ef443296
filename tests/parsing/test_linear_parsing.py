"""Parsing takes linear time on untrusted text: all places that search text are listed and tested."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.parsing.inventory import FIXED, INVENTORY, Case, Shape
from tests.parsing.sites import sites, trees
from tests.parsing.work import growth_of

LARGE = 1 << 20
"""Cases whose smallest text is longer than this are marked slow."""

CASES = [
    pytest.param(case, shape, id=f"{name} {label}", marks=[pytest.mark.slow] if case.first_size > LARGE else [])
    for name, case in INVENTORY.items()
    if isinstance(case, Case)
    for label, shape in case.shapes.items()
]


@pytest.mark.parametrize(("case", "shape"), CASES)
def test_parsing_takes_linear_time(case: Case, shape: Shape) -> None:
    growth = growth_of(case.feed, shape, first_size=case.first_size)
    assert growth.is_linear, (
        f"a text {growth.factor} times as long as {growth.size} characters takes {growth.ratio:.0f} times the CPU time "
        f"({growth.small_s:.3f} s, {growth.large_s:.3f} s); read the text in one pass, or limit its size"
    )


def test_every_place_that_searches_text_is_listed() -> None:
    missing = [
        f"{site.path}, line {site.line}: the {site.kind} {site.name}"
        for site in sites()
        if _entry_of(site.name) is None
    ]
    assert not missing, (
        f"INVENTORY of tests/parsing/inventory.py lacks {len(missing)} places that search text; for each add a Case with the "
        "public function that calls it and shapes that could make it slow, or the reason why untrusted text cannot reach it: "
        f"{'; '.join(missing)}"
    )


def test_every_listed_place_exists() -> None:
    found = {site.name for site in sites()}
    assert [name for name in INVENTORY if name not in found and not _exists(name)] == []


def test_re_is_imported_without_an_alias() -> None:
    """The scan recognizes patterns by the name `re`."""
    for path, tree in trees().items():
        for node in ast.walk(tree):
            assert not (isinstance(node, ast.ImportFrom) and node.module == "re"), path
            assert not (isinstance(node, ast.alias) and node.name == "re" and node.asname), path


@pytest.mark.parametrize("name", [name for name, entry in INVENTORY.items() if entry == FIXED])
def test_patterns_listed_as_fixed_have_no_unbounded_repeats(name: str) -> None:
    patterns = list(_patterns_at(name))
    assert patterns, f"{name}: no pattern found"
    assert not any(_repeats_without_bound(re._parser.parse(each.pattern, each.flags)) for each in patterns)  # type: ignore[attr-defined]


def _entry_of(name: str) -> Case | str | None:
    return INVENTORY.get(name) or INVENTORY.get(f"{name.partition(':')[0]}:*")


def _exists(name: str) -> bool:
    """Whether a module has an object of a name. `module:*` needs only the module."""
    module, _, inside = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in [] if inside == "*" else inside.split("."):
        found = getattr(found, part, None)
    return found is not None


def _patterns_at(name: str) -> Iterator[re.Pattern[str]]:
    module, _, inside = name.partition(":")
    found = getattr(importlib.import_module(module), inside)
    for each in found.values() if isinstance(found, dict) else [found]:
        assert isinstance(each, re.Pattern)
        yield each


def _repeats_without_bound(parsed: Any) -> bool:
    """Whether a pattern, as parsed by `re`, contains `*` or `+`."""
    for part in parsed:
        if isinstance(part, tuple | list | re._parser.SubPattern):  # type: ignore[attr-defined]
            if _repeats_without_bound(part):
                return True
        elif part is re._parser.MAXREPEAT:  # type: ignore[attr-defined]
            return True
    return False
