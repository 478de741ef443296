"""Import the code of the authors of other judges and benchmarks from clones of their repositories.

The code is read at a given commit and runs here, so read it before you run it. Libraries that it imports but does not need
are replaced by stand-ins.
"""

from __future__ import annotations

import importlib
import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

UNNEEDED = frozenset(
    {
        "anthropic",
        "boto3",
        "cohere",
        "datasets",
        "fastapi",
        "google",
        "litellm",
        "mistralai",
        "numpy",
        "openai",
        "pandas",
        "ray",
    }
    | {
        "requests",
        "responses_api_models",
        "scipy",
        "shortuuid",
        "tiktoken",
        "together",
        "torch",
        "transformers",
        "vllm",
    }
    | {"yaml"}
)
"""Top-level modules that the authors' code imports, but does not need for a prompt or a verdict."""


class _StandIn(type):
    def __getattr__(cls, name: str) -> Any:
        return StandIn


class StandIn(metaclass=_StandIn):
    """In place of everything of an unneeded library: a class, a decorator, a function that returns its argument."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __call__(self, given: Any = None, *args: Any, **kwargs: Any) -> Any:
        return given

    def __getattr__(self, name: str) -> Any:
        return StandIn()


class StandInFinder(MetaPathFinder, Loader):
    """Provides modules of stand-ins for unneeded libraries."""

    def __init__(self, unneeded: Collection[str]) -> None:
        self._unneeded = unneeded

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.partition(".")[0] in self._unneeded else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = ModuleType(spec.name)
        module.__getattr__ = lambda name: StandIn  # type: ignore[method-assign]
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


def clone_of(folder: Path, repository: str) -> Path:
    """Return the folder of the clone of a repository.

    Raises:
        FileNotFoundError: the folder has no clone of the repository.
    """
    owner, name = repository.rstrip("/").split("/")[-2:]
    places = (folder / f"{owner}+{name}" / "repo", folder / owner / name, folder / name)
    git = next((place for place in places if place.exists()), None)
    if git is None:
        raise FileNotFoundError(f"{folder}: no {owner}/{name}; run `git clone https://github.com/{owner}/{name}` in it")
    return git


def present_files(folder: Path, repository: str, commit: str, path: str) -> tuple[list[str], list[str]]:
    """Return the files under a path whose content the clone has, and those that it lacks, as a partial clone may."""
    git = ("git", "-C", clone_of(folder, repository))
    listed = subprocess.run([*git, "ls-tree", "-r", "-z", commit, path], check=True, capture_output=True, text=True)
    hashes = {
        file: head.split()[2] for head, _, file in (line.partition("\t") for line in listed.stdout.split("\0")) if file
    }
    asked = "".join(f"{each}\n" for each in hashes.values())
    checked = subprocess.run(
        [*git, "cat-file", "--batch-check"], input=asked, check=True, capture_output=True, text=True
    )
    lacked = {line.split()[0] for line in checked.stdout.splitlines() if line.endswith(" missing")}
    return [file for file in hashes if hashes[file] not in lacked], [file for file in hashes if hashes[file] in lacked]


@contextmanager
def unpacked(folder: Path, repository: str, commit: str, *paths: str) -> Iterator[Path]:
    """Unpack files of a repository at a commit into a folder that exists until the end of the block.

    Args:
        folder: folder with the repositories, OWNER/NAME or OWNER+NAME/repo for each.
        repository: OWNER/NAME, or an address that ends with it.
        commit: the commit.
        paths: the files and folders to unpack.

    Raises:
        FileNotFoundError: the folder has no clone of the repository.
        CalledProcessError: the repository has no such commit or path.
    """
    git = clone_of(folder, repository)
    packed = subprocess.run(["git", "-C", git, "archive", commit, *paths], check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as place:
        with tarfile.open(fileobj=io.BytesIO(packed)) as files:
            files.extractall(place, filter="data")
        yield Path(place)


@contextmanager
def checked_out(
    folder: Path, repository: str, commit: str, *paths: str, unneeded: Collection[str] = UNNEEDED
) -> Iterator[Path]:
    """Unpack files of a repository at a commit, so that they can be imported until the end of the block.

    Args:
        folder: folder with the repositories, OWNER/NAME or OWNER+NAME/repo for each.
        repository: OWNER/NAME, or an address that ends with it.
        commit: the commit.
        paths: the files and folders to unpack.
        unneeded: top-level modules that are replaced by stand-ins.

    Raises:
        FileNotFoundError: the folder has no clone of the repository.
        CalledProcessError: the repository has no such commit or path.
    """
    loaded = set(sys.modules)
    finder = StandInFinder(unneeded)
    hidden = {module: sys.modules.pop(module) for module in loaded if module.partition(".")[0] in unneeded}
    with unpacked(folder, repository, commit, *paths) as place:
        sys.path.insert(0, str(place))
        sys.meta_path.insert(0, finder)
        try:
            yield place
        finally:
            sys.meta_path.remove(finder)
            sys.path.remove(str(place))
            for module in set(sys.modules) - loaded:
                del sys.modules[module]
            sys.modules.update(hidden)


def imported(name: str) -> Any:
    """Import a module of the authors, whose attributes are replaced where it would call a model."""
    return importlib.import_module(name)


def package_of(name: str, folder: Path) -> None:
    """Make the modules of a folder importable as a package, without running the package's `__init__`."""
    sys.modules[name] = package = ModuleType(name)
    package.__path__ = [str(folder)]


def module_of(file: Path) -> Any:
    """Load one file as a module."""
    spec = spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reward_bench_module(folder: Path, name: str) -> Any:
    """Load one module of the package rewardbench without the others, which need the weights of models."""
    sys.modules["fastchat"] = ModuleType("fastchat")
    sys.modules["fastchat.conversation"] = conversation = ModuleType("fastchat.conversation")
    conversation.get_conv_template = None  # type: ignore[attr-defined]
    package_of("rewardbench", folder)
    return imported(f"rewardbench.{name}")
