"""Crash-safe files: journals, locks, and atomic replacement of files and folders."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tirjudge.durable import (
    Journal,
    StorageError,
    differences,
    iterate_lines,
    recover_folder,
    refuse_other_run,
    remove_unfinished,
    replacing_file,
    replacing_folder,
    whole_lines,
    write_file,
)


async def test_lines_are_read_in_the_order_of_their_appends(tmp_path: Path) -> None:
    path = tmp_path / "new" / "journal.jsonl"
    async with Journal(path) as journal:
        await asyncio.gather(*(journal.append(b"%d" % number) for number in range(100)))
        assert path.read_bytes().count(b"\n") == 100
    async with Journal(path) as journal:
        assert journal.lines == [b"%d" % number for number in range(100)]


async def test_concurrent_appends_share_one_fsync(tmp_path: Path, monkeypatch) -> None:
    synced: list[int] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(os.fstat(file).st_size), fsync(file)))
    async with Journal(tmp_path / "journal") as journal:
        await asyncio.gather(*(journal.append(b"ab") for _ in range(50)))
    assert len(synced) <= 2
    assert synced[-1] == 150


async def test_a_partial_last_line_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b"one\ntwo\nthr")
    async with Journal(path) as journal:
        assert journal.lines == [b"one", b"two"]
        await journal.append(b"three")
    assert path.read_bytes() == b"one\ntwo\nthree\n"


async def test_a_second_process_cannot_open_a_locked_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    opening = f"""
from pathlib import Path
from tirjudge.durable import Journal, StorageError
try:
    Journal(Path({str(path)!r}))
except StorageError as error:
    print(error)
"""
    async with Journal(path) as journal:
        with pytest.raises(StorageError, match="another process writes it"):
            Journal(path)
        journal.replace([b"one"])
        command = [sys.executable, "-c", opening]
        other = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
        assert "another process writes it" in other.stdout
    async with Journal(path) as journal:
        assert journal.lines == [b"one"]


async def test_a_replaced_journal_accepts_further_lines(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b"one\ntwo\n")
    async with Journal(path) as journal:
        journal.replace([b"two"])
        await journal.append(b"three")
    assert path.read_bytes() == b"two\nthree\n"
    assert os.listdir(tmp_path) == [path.name]


async def test_the_lock_of_a_replaced_file_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b"old\n")
    previous = os.open(path, os.O_RDWR)
    async with Journal(path) as journal:
        journal.replace([b"new"])
        fcntl.flock(previous, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(StorageError, match="another process writes it"):
            Journal(path)
    os.close(previous)


# The file size limit is reached in the middle of a line, as a full disk would be.
FULL = """
import asyncio, resource, signal, sys
from pathlib import Path
from tirjudge.durable import Journal

async def main():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    async with Journal(Path(sys.argv[1])) as journal:
        await journal.append(b"a" * 99)
        await journal.append(b"b" * 99)
        resource.setrlimit(resource.RLIMIT_FSIZE, (250, 250))
        try:
            await journal.append(b"c" * 99)
        except OSError as error:
            print(error.strerror)

asyncio.run(main())
"""


def test_on_a_full_disk_the_file_keeps_its_complete_lines(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    done = subprocess.run([sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, timeout=60)
    assert done.stdout == "File too large\n", done.stderr
    assert path.read_bytes() == b"a" * 99 + b"\n" + b"b" * 99 + b"\n"


def test_a_killed_process_leaves_every_acknowledged_line(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    writing = """
import asyncio, sys
from pathlib import Path
from tirjudge.durable import Journal

async def main():
    async with Journal(Path(sys.argv[1])) as journal:
        async def write(first):
            for number in range(first, 10**9, 8):
                await journal.append(b"%d" % number)
                print(number, flush=True)
        await asyncio.gather(*(write(first) for first in range(8)))

asyncio.run(main())
"""
    process = subprocess.Popen([sys.executable, "-c", writing, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    acknowledged = [process.stdout.readline() for _ in range(200)]
    process.send_signal(signal.SIGKILL)
    acknowledged += process.stdout.readlines()
    process.stdout.close()
    process.wait()
    with Journal(path) as journal:
        assert {line.strip() for line in acknowledged if line.endswith(b"\n")} <= set(journal.lines)


async def test_a_failed_write_fails_every_pending_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write = tmp_path / "journal", os.write

    def fail(descriptor: int, content: bytes) -> int:
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, content)

    async with Journal(path) as journal:
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", fail)
            results = await asyncio.gather(*(journal.append(b"x") for _ in range(3)), return_exceptions=True)
        assert [type(result) for result in results] == [OSError] * 3
        await journal.append(b"y")
    assert path.read_bytes() == b"y\n"


def test_written_lines_are_readable_before_the_file_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b"one\ntw")
    with Journal(path) as journal:
        journal.write(b"two")
        assert whole_lines(path) == [b"one", b"two"]
    assert whole_lines(path) == [b"one", b"two"]
    assert whole_lines(tmp_path / "none") == []


def test_lines_are_read_one_by_one_without_an_unfinished_one(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b"one\n\ntwo\nthr")
    assert list(iterate_lines(path)) == whole_lines(path) == [b"one", b"", b"two"]
    assert list(iterate_lines(tmp_path / "none")) == []
    with pytest.raises(StorageError, match="Is a directory"):
        list(iterate_lines(tmp_path))


def test_a_folder_is_rejected_as_a_journal_and_unchanged(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="Is a directory; a writable file is needed"):
        Journal(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_file_is_replaced_only_when_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    write_file(path, "old")

    def interrupted() -> None:
        with replacing_file(path) as unfinished:
            unfinished.write_text("ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert os.listdir(path.parent) == ["file"]
    write_file(path, b"new")
    assert path.read_bytes() == b"new"


def test_temporary_files_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from tirjudge.durable import replacing_file\n"
        "with replacing_file(Path(sys.argv[1])) as file:\n"
        "    file.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    path = tmp_path / "file"
    path.write_text("old")
    subprocess.run([sys.executable, "-c", code, str(path)], check=False, timeout=60)
    assert path.read_text() == "old"
    assert len(os.listdir(tmp_path)) == 2
    remove_unfinished(tmp_path)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("exists", [False, True])
def test_a_folder_is_replaced_only_when_the_new_one_is_complete(tmp_path: Path, exists: bool) -> None:
    path = tmp_path / "folder"
    if exists:
        path.mkdir()
        (path / "a").write_text("old")

    def failing() -> None:
        with replacing_folder(path) as fresh:
            (fresh / "b").write_text("new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert path.exists() == exists
    with replacing_folder(path) as fresh:
        (fresh / "b").write_text("new")
    assert os.listdir(path) == ["b"]
    assert os.listdir(tmp_path) == ["folder"]


def test_a_folder_renamed_by_a_killed_writer_is_restored(tmp_path: Path) -> None:
    (tmp_path / ".folder.old").mkdir()
    recover_folder(tmp_path / "folder")
    assert os.listdir(tmp_path) == ["folder"]


def test_differences_are_named_by_their_path() -> None:
    before, now = {"a": 1, "b": {"c": 2, "d": [1]}}, {"a": 1, "b": {"c": 3, "d": [1]}, "e": None}
    assert differences(before, now) == ["b.c was 2 and is now 3"]
    assert differences({"b": {"d": [1]}}, {"b": {"d": "x"}}) == ['b.d was [1] and is now "x"']
    with pytest.raises(StorageError, match=r"run holds a run of another configuration \(b\.c was 2 and is now 3\)"):
        refuse_other_run(Path("run"), there=before, here=now)
