"""The structure of the project: imports point one way, and `import tirjudge` loads nothing heavy."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.sources import ROOMS, trees_of

MAY_IMPORT = {
    "tirjudge": set[str](),
    "tirjudge_web": {"tirjudge"},
    "tirjudge_pages": {"tirjudge"},
    "tirjudge_sandbox": {"tirjudge", "tirjudge_web"},
    "tirjudge_evidence": {"tirjudge", "tirjudge_sandbox"},
    "tirjudge_server": {"tirjudge", "tirjudge_web", "tirjudge_pages", "tirjudge_sandbox", "tirjudge_evidence"},
    "tirjudge_harness": {"tirjudge", "tirjudge_pages", "tirjudge_sandbox", "tirjudge_evidence"},
    "tirjudge_training": {"tirjudge", "tirjudge_pages", "tirjudge_sandbox", "tirjudge_evidence"},
}
MAX_FUNCTION_LINES = 60
"""Maximum number of lines of a function, without its docstring."""
HEAVY = ("torch", "vllm", "fastapi", "transformers", "uvicorn")


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, "imports are absolute"
            yield node.module


def test_rooms_import_only_rooms_below_them() -> None:
    for package in ROOMS:
        trees = trees_of(package)
        assert trees, f"{package} is empty"
        for file, tree in trees.items():
            for module in _imported(tree):
                other = module.split(".")[0]
                if other in ROOMS and other != package:
                    assert other in MAY_IMPORT[package], f"{file} imports {module}"


def test_importing_tirjudge_loads_nothing_heavy() -> None:
    code = f"import sys, tirjudge, tirjudge.judge, tirjudge.cli; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def _files() -> Iterator[tuple[Path, ast.Module]]:
    for package in ROOMS:
        yield from trees_of(package).items()


def test_every_module_has_a_docstring() -> None:
    assert [str(file) for file, tree in _files() if not ast.get_docstring(tree)] == []


def test_public_class_names_are_unique() -> None:
    places: dict[str, list[str]] = {}
    for file, tree in _files():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(file))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def _num_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Length of a function without its docstring."""
    first = function.body[0]
    docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring_lines = (first.end_lineno or 0) - first.lineno + 1 if docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring_lines


def test_functions_have_at_most_60_lines_unless_they_are_the_options_of_a_command() -> None:
    long = [
        f"{file}: {node.name}"
        for file, tree in _files()
        if not file.name.endswith("cli.py")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _num_lines(node) > MAX_FUNCTION_LINES
    ]
    assert long == []
