from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tirjudge_harness.run_store import Failure, RunStopped, RunStore


def can_mount() -> bool:
    return subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="no user namespaces to mount a small disk in")
def test_a_full_disk_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    filling = """
import asyncio, sys
from pathlib import Path
from tirjudge_harness.run_store import Failure, RunStopped, RunStore

async def main():
    path = Path(sys.argv[1])
    async with RunStore(path, model=Failure) as store:
        try:
            for _ in range(1000):
                await store.add(Failure(key="k", error="e" * 970, at=1))
        except RunStopped as error:
            print(error)
    content = path.read_bytes()
    print(len(content) % 1000, content.count(b"\\n") > 8)

asyncio.run(main())
"""
    command = f"mount -t tmpfs -o size=16k none {disk} && exec {sys.executable} -c '{filling}' {disk / 'journal'}"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", command], capture_output=True, text=True, timeout=60)
    said, kept = done.stdout.splitlines()
    assert said == f"{disk / 'journal'}: No space left on device; make room, and the same command goes on"
    assert kept == "0 True"


async def test_a_line_that_cannot_be_written_stops_the_run(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "failures.jsonl", model=Failure)
    os.close(store._journal._file)
    with pytest.raises(RunStopped, match=r"failures\.jsonl: Bad file descriptor"):
        await store.add(Failure(key="k", error="e", at=1))
    assert store.lines == {}


async def test_of_several_lines_with_one_key_the_last_counts(tmp_path: Path) -> None:
    for at in (1, 2):
        async with RunStore(tmp_path / "failures.jsonl", model=Failure) as store:
            await store.add(Failure(key="k", error="e", at=at))
    async with RunStore(tmp_path / "failures.jsonl", model=Failure) as store:
        assert [line.at for line in store.lines.values()] == [2]
