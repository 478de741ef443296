"""A fixture that writes small runs with manually written judgments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.runs import CREATED, Pair, write_pairs

__all__ = ["CREATED", "MakeRun", "Pair"]

MakeRun = Callable[..., Path]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Writes a run over pairs; arguments as for `write_pairs`."""

    def make(pairs: Sequence[Pair], *, folder: str = "run", **options: Any) -> Path:
        return write_pairs(tmp_path / folder, pairs, **options)

    return make
