"""A console for best-of-N runs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console


@pytest.fixture
def quiet() -> Console:
    """A console that writes to its `file`, a StringIO."""
    return Console(file=io.StringIO(), width=200)
