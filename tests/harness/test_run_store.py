from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tirjudge_harness.run_store import Failure, RunStopped, RunStore


def can_mount() -> bool:
    return subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not can_mount(), reason="mounting a small disk needs user namespaces")
def test_a_full_disk_is_reported_in_one_line_with_advice(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    script = """
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
    command = f"mount -t tmpfs -o size=16k none {disk} && exec {sys.executable} -c '{script}' {disk / 'journal'}"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", command], capture_output=True, text=True, timeout=60)
    message, kept = done.stdout.splitlines()
    assert (
        message
        == f"{disk / 'journal'}: No space left on device; free some space and run the same command again to continue"
    )
    assert kept == "0 True"


@pytest.mark.parametrize(
    ("code", "message"),
    [(errno.EIO, "Input/output error$"), (errno.ENOSPC, "No space left on device; free some space and run the same")],
)
async def test_a_failed_write_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, message: str
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    async with RunStore(tmp_path / "failures.jsonl", model=Failure) as store:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", fail)
            with pytest.raises(RunStopped, match=rf"failures\.jsonl: {message}"):
                await store.add(Failure(key="k", error="e", at=1))
        assert store.lines == {}


async def test_the_last_line_with_a_key_counts(tmp_path: Path) -> None:
    for at in (1, 2):
        async with RunStore(tmp_path / "failures.jsonl", model=Failure) as store:
            await store.add(Failure(key="k", error="e", at=at))
    async with RunStore(tmp_path / "failures.jsonl", model=Failure) as store:
        assert [line.at for line in store.lines.values()] == [2]
