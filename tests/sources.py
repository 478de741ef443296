"""The source files of the rooms and their syntax trees, which the tests of one process share."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = {
    "tirjudge": "judge",
    "tirjudge_web": "web",
    "tirjudge_pages": "pages",
    "tirjudge_sandbox": "sandbox",
    "tirjudge_evidence": "evidence",
    "tirjudge_server": "server",
    "tirjudge_harness": "harness",
    "tirjudge_training": "training",
}
"""Package -> folder of its room."""


@cache
def trees_of(package: str) -> dict[Path, ast.Module]:
    """Return path, relative to the repository -> syntax tree of all files of a package."""
    return {
        path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / ROOMS[package] / package).rglob("*.py"))
    }
