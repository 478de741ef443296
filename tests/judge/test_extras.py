"""Extras: which one provides a missing module, and which of them exclude each other."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import invalidate_caches
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tirjudge.engines.vllm_version import TESTED, is_tested
from tirjudge.extras import EXCLUSIVE, check_extra, extras_with

ROOT = Path(__file__).parents[2]


def extras() -> dict[str, list[Requirement]]:
    given = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    return {name: [Requirement(text) for text in texts] for name, texts in given.items()}


@cache
def installed_modules() -> Mapping[str, list[str]]:
    """Return module -> packages. Reading all packages takes half a second."""
    return packages_distributions()


REQUIRED = [(name, one.name) for name, given in extras().items() for one in given if one.name != "tirjudge"]


@pytest.mark.parametrize(("extra", "package"), REQUIRED)
def test_the_module_of_every_package_of_an_extra_names_the_extra(extra: str, package: str) -> None:
    modules = [module for module, packages in installed_modules().items() if package in packages]
    if not modules:
        pytest.skip(f"{package} is not installed")
    assert any(extra in extras_with(module) for module in modules), modules


def test_modules_that_no_extra_provides_name_no_extra() -> None:
    assert extras_with("numpy") == extras_with("no_such_module") == []


def install(folder: Path, package: str, version: str, *requirements: str) -> None:
    """Write the metadata of an installed package."""
    info = folder / f"{package}-{version}.dist-info"
    info.mkdir()
    lines = [f"Name: {package}", f"Version: {version}", *(f"Requires-Dist: {text}" for text in requirements)]
    (info / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", *lines, ""]))


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages that hides those of the same names."""
    listed = [f'{one}; extra == "{name}"' for name in EXCLUSIVE for one in extras()[name]]
    install(tmp_path, "tirjudge", "9.9", *listed)
    monkeypatch.syspath_prepend(str(tmp_path))
    invalidate_caches()
    assert sys.path[0] == str(tmp_path)
    return tmp_path


def test_the_range_of_vllm_is_the_same_everywhere() -> None:
    (vllm,) = extras()["vllm"]
    assert (vllm.name, vllm.specifier) == ("vllm", SpecifierSet(TESTED))
    tested_with = (ROOT / "tests" / "vllm" / "wheel.txt").read_text().split()[0].partition("==")[2]
    assert is_tested(tested_with)


def test_versions_that_an_extra_allows_pass(packages: Path) -> None:
    install(packages, "vllm", "0.32.0+cpu", "transformers<5.20.0,>=5.16.1", "torch==2.13.0")
    install(packages, "transformers", "5.19.0")
    install(packages, "torch", "2.13.0+cpu")
    check_extra("vllm")


@pytest.mark.parametrize(
    ("extra", "installed", "problem"),
    [
        ("vllm", {"vllm": "0.24.0"}, "vllm 0.24.0 is installed, but tirjudge[vllm] needs <0.33,>=0.32"),
        ("vllm", {"transformers": "5.23.0"}, "transformers 5.23.0 is installed, but tirjudge[vllm] needs <5.20.0"),
        ("train", {"transformers": "5.19.0"}, "transformers 5.19.0 is installed, but tirjudge[train] needs <6,>=5.23"),
        ("train", {"torch": "2.11.0"}, "torch 2.11.0 is installed, but tirjudge[train] needs ==2.13.0"),
        ("train-verl", {"vllm": "0.32.0"}, "vllm 0.32.0 is installed, but tirjudge[train-verl] needs ==0.24.0"),
    ],
)
def test_an_extra_that_another_one_broke_is_refused_with_the_remedy(
    extra: str, installed: dict[str, str], problem: str, packages: Path
) -> None:
    good = {"torch": "2.13.0", "transformers": "5.19.0" if extra == "vllm" else "5.23.0"}
    for name, version in {**good, **installed}.items():
        own = ("transformers<5.20.0,>=5.16.1",) if name == "vllm" else ()
        install(packages, name, version, *own)
    if "vllm" not in installed:
        install(packages, "vllm", "0.32.0", "transformers<5.20.0,>=5.16.1")
    install(packages, "verl", "0.9.1", 'vllm==0.24.0; extra == "vllm"')
    with pytest.raises(ValueError, match="is installed") as raised:
        check_extra(extra)
    assert problem in str(raised.value)
    assert f"{extra}-env/bin/pip install 'tirjudge[{extra}]'" in str(raised.value)


def test_this_environment_can_train() -> None:
    check_extra("train")
