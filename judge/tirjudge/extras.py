"""Extras of this package that need different versions of torch and transformers, and so exclude each other."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

EXCLUSIVE = ("train", "train-verl", "vllm")
"""Extras of which an environment can have one."""

_SHARED = frozenset({"torch", "transformers", "vllm"})
"""Packages of which the extras need different versions."""

_OWNERS = {"train": (), "train-verl": ("verl",), "vllm": ("vllm",)}
"""Packages whose own requirements pin the shared packages."""


def check_extra(extra: str) -> None:
    """Check that no other extra replaced a package that an extra needs. Packages that are not installed pass.

    Args:
        extra: one of `EXCLUSIVE`.

    Raises:
        ValueError: an installed package has a version that the extra does not allow.
    """
    asked = [("tirjudge", extra), *((owner, "vllm" if owner == "verl" else "") for owner in _OWNERS[extra])]
    for package, chosen in asked:
        for requirement in _requirements_of(package, extra=chosen):
            if requirement.name not in _SHARED:
                continue
            found = _version_of(requirement.name)
            if found is not None and not requirement.specifier.contains(found, prereleases=True):
                others = " and ".join(name for name in EXCLUSIVE if name != extra)
                raise ValueError(
                    f"{requirement.name} {found} is installed, but tirjudge[{extra}] needs {requirement.specifier}. The "
                    f"extras {others} need other versions, so give each extra an environment of its own: "
                    f"python -m venv {extra}-env && {extra}-env/bin/pip install 'tirjudge[{extra}]'"
                )


def _requirements_of(package: str, *, extra: str) -> list[Requirement]:
    """Return the requirements of an installed package with an extra; none if it is not installed."""
    try:
        found = [Requirement(text) for text in requires(package) or ()]
    except PackageNotFoundError:
        return []
    return [one for one in found if one.marker is None or one.marker.evaluate({"extra": extra})]


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
