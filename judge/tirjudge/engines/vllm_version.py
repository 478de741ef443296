"""The versions of vLLM that tirjudge was tested with, on a CPU. It was not tried on a GPU."""

from __future__ import annotations

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

TESTED = ">=0.32,<0.33"
"""Range of versions; the extra `vllm` in pyproject.toml has the same."""


def is_tested(version: str) -> bool:
    """Whether a version of vLLM is in the range. Versions that are not versions of releases are not.

    >>> is_tested("0.32.1+cpu"), is_tested("0.24.0"), is_tested("dev")
    (True, False, False)
    """
    try:
        return SpecifierSet(TESTED).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False
