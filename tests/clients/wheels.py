"""Source code of packages that are too heavy to install: download, unpack and cache their wheels without dependencies.

Tests run a trainer's calling code from its wheel, so that they test what the trainer does without installing all of it.
If a wheel cannot be downloaded, its tests are skipped with the reason. Test processes share the cache under a lock.
"""

from __future__ import annotations

import ast
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.environments import NoEnvironment, environment_in, locked, pip

Wheel = Callable[[str], Path]
"""Returns the folder with the content of a wheel, such as `verl==0.9.1`."""


@pytest.fixture(scope="session")
def wheel(pytestconfig: pytest.Config) -> Wheel:
    assert pytestconfig.cache is not None
    folder = pytestconfig.cache.mkdir("wheels")
    return lambda requirement: unpacked(requirement, folder=folder)


Environment = Callable[[str], Path]
"""Returns the interpreter of a separate environment with one or several packages, such as `verifiers==0.4.0`."""


@pytest.fixture(scope="session")
def environment(pytestconfig: pytest.Config) -> Environment:
    assert pytestconfig.cache is not None
    folder = pytestconfig.cache.mkdir("environments")
    return lambda requirement: installed(requirement, folder=folder)


def installed(requirement: str, *, folder: Path) -> Path:
    """Create an environment for a package whose dependencies conflict with ours, unless the cache has it.

    Args:
        requirement: one requirement, or several with spaces between them.
        folder: folder of all environments.
    """
    try:
        return environment_in(folder / requirement, requirement.split())
    except NoEnvironment as error:
        pytest.skip(str(error))


def unpacked(requirement: str, *, folder: Path) -> Path:
    """Download and unpack a wheel, unless the cache has it."""
    target = folder / requirement
    with locked(folder / f"{requirement}.lock"):
        if not target.exists():
            downloads = folder / "downloads" / requirement
            _download(requirement, folder=downloads)
            (archive,) = downloads.glob("*.whl")
            partial = folder / f"{requirement}.partial"
            with zipfile.ZipFile(archive) as opened:
                opened.extractall(partial)
            partial.rename(target)
            archive.unlink()
    # Some wheels have their packages in `NAME.data/purelib`.
    return next(target.glob("*.data/purelib"), target)


def _download(requirement: str, *, folder: Path) -> None:
    options = ["--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
    try:
        pip(Path(sys.executable), "download", *options, requirement)
    except NoEnvironment as error:
        pytest.skip(str(error))


def definitions(path: Path, *names: str, given: Mapping[str, Any]) -> SimpleNamespace:
    """Return functions, classes and constants of a source file without running the rest of the file.

    Args:
        path: the file.
        names: names to return, such as `run`, `Worker` or `Worker.run` (a method without its class).
        given: global names for the code, in place of the imports of the file.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    body = [ast.ImportFrom(module="__future__", names=[ast.alias("annotations")], level=0)]
    body += [_find(tree.body, name.split(".")) for name in names]
    namespace = dict(given)
    code = compile(ast.fix_missing_locations(ast.Module(body=body, type_ignores=[])), str(path), "exec")
    exec(code, namespace)  # noqa: S102
    return SimpleNamespace(**{name: namespace[name] for name in (name.split(".")[-1] for name in names)})


def _find(body: list[ast.stmt], path: list[str]) -> Any:
    for node in body:
        if path[0] in _names(node):
            return node if len(path) == 1 else _find(getattr(node, "body", []), path[1:])
    raise LookupError(f"{path[0]} is not defined in this version of the file")


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]
