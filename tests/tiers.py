"""Which parameters of a test with many similar ones are among the fast tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(values: Iterable[Any], *, every: int = 4) -> list[Any]:
    """Return parameters of which the first and each `every`-th after it are fast. The others are slow: `make test-all` runs
    them."""
    return [
        value if number % every == 0 else pytest.param(value, marks=pytest.mark.slow)
        for number, value in enumerate(values)
    ]
