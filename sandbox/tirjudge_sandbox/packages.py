"""Find the packages that programs may import, in the pool's own Python environment.

A package is offered by the top-level entries that its distribution installed. `numpy.libs` is therefore offered
together with `numpy`, while the rest of site-packages stays hidden. This module imports only the
standard library, because the isolated interpreter imports it too.
"""

from __future__ import annotations

import csv
import functools
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata, util
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

DEFAULT_PACKAGES = ("numpy", "scipy", "pandas", "sympy")
"""Distributions offered by default, with their requirements, if they are installed."""

_REQUIREMENT = re.compile(r"[A-Za-z0-9._-]+")
_BARE_MODULE = re.compile(r"(\w+)(\.[\w-]+)*\.(py|so)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Packages:
    """Packages that programs may import in addition to the standard library."""

    modules: dict[str, str]
    """Import name -> directory of a package, or file of a single-file module."""
    paths: tuple[str, ...]
    """All paths that must be readable: those of `modules`, and directories with their shared libraries."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Packages:
        """Convert the result of `to_json` back."""
        return cls(modules=fields["modules"], paths=tuple(fields["paths"]))


def find_packages(names: Sequence[str] = DEFAULT_PACKAGES) -> Packages:
    """Find packages in this interpreter's environment, without importing them.

    Args:
        names: names of distributions. Distributions that are not installed are skipped.
    """
    return _found(tuple(names))


@functools.cache
def _found(names: tuple[str, ...]) -> Packages:
    paths = sorted({path for name in _with_requirements(names) for path in _installed(name)})
    modules = {name: path for path in paths if (name := _import_name(path))}
    return Packages(modules=modules, paths=tuple(paths))


def _with_requirements(names: Iterable[str]) -> set[str]:
    """Return the installed distributions among the names, and their installed requirements without extras."""
    found: set[str] = set()
    queue = list(names)
    while queue:
        name = _normal(queue.pop())
        if name in found:
            continue
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        found.add(name)
        queue += [match[0] for text in requirements if "extra ==" not in text and (match := _REQUIREMENT.match(text))]
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _installed(name: str) -> set[str]:
    """Return the top-level entries of a distribution without its metadata: directories, and files that are modules."""
    distribution = metadata.distribution(name)
    record = distribution.read_text("RECORD")
    if record is None:  # packages of some Linux distributions have none
        spec = util.find_spec(name) if name.isidentifier() else None
        return set(map(os.path.realpath, spec.submodule_search_locations or [])) if spec else set()
    site = Path(str(distribution.locate_file("")))
    # `distribution.files` makes a path of each of 10,000 files, which takes 0.15 s.
    tops = {row[0].partition("/")[0] for row in csv.reader(record.splitlines()) if row}
    unwanted = ("..", "__pycache__", "bin")
    wanted = {top for top in tops if top not in unwanted and not top.endswith((".dist-info", ".egg-info", ".pth"))}
    entries = {os.path.realpath(site / top) for top in wanted}
    return {path for path in entries if os.path.isdir(path) or _BARE_MODULE.fullmatch(os.path.basename(path))}


def _import_name(path: str) -> str | None:
    name = os.path.basename(path)
    if os.path.isdir(path):
        return name if name.isidentifier() and os.path.exists(f"{path}/__init__.py") else None
    match = _BARE_MODULE.fullmatch(name)
    return match[1] if match else None


class PackageFinder:
    """Finder for `sys.meta_path` that finds the offered packages by name. Site-packages itself is not on the path, so
    the import system does not find other packages there."""

    def __init__(self, packages: Packages) -> None:
        self._modules = packages.modules
        self.paths = packages.paths

    def install(self) -> None:
        """Append the finder to `sys.meta_path`, after Python's own finders."""
        sys.meta_path.append(self)  # type: ignore[arg-type]

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec of an offered package. None: the package is not offered."""
        location = self._modules.get(name)
        if location is None:
            return None
        if location.endswith((".py", ".so")):
            return util.spec_from_file_location(name, location)
        return util.spec_from_file_location(name, f"{location}/__init__.py", submodule_search_locations=[location])
