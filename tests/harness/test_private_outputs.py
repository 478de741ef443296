"""What a run writes holds prompts and answers, and is its user's alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tirjudge_harness.batch.folder import Folder
from tirjudge_harness.journal import Journal
from tirjudge_harness.run import write_whole


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """A umask that shares every file."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_outputs_are_closed_to_others_whatever_the_umask_is(tmp_path: Path) -> None:
    Journal(tmp_path / "run" / "deep" / "results.jsonl").close()
    write_whole(tmp_path / "summary" / "report.json", content=b"{}")
    with Folder(tmp_path / "batch"):
        pass
    found = [path for path in tmp_path.rglob("*") if stat.S_IMODE(path.stat().st_mode) & 0o077]
    assert found == []
