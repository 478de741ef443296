"""Output files contain prompts and answers, so only their owner can read them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tirjudge.durable import Journal
from tirjudge_harness.batch.parquet_store import ParquetStore
from tirjudge_harness.run_store import write_output


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """Set a umask that lets everyone read new files."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_outputs_are_private_with_any_umask(tmp_path: Path) -> None:
    Journal(tmp_path / "run" / "deep" / "results.jsonl").close()
    write_output(tmp_path / "summary" / "report.json", b"{}")
    with ParquetStore(tmp_path / "batch"):
        pass
    found = [path for path in tmp_path.rglob("*") if stat.S_IMODE(path.stat().st_mode) & 0o077]
    assert found == []
