"""An append-only file of lines, each on disk before anybody is told that it is written.

A process that is killed, at whatever point, leaves whole lines and perhaps a torn last one, which is taken off when the
file is opened again. Lines that are ready at the same time share one fsync, off the event loop and in their order. While
it is open the file is locked: two processes cannot write one run.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tirjudge.durable import make_private_folder
from tirjudge.errors import TirjudgeError
from tirjudge_harness.items import InputError


class RunStopped(TirjudgeError):
    """A run cannot go on. What was judged is kept; the message says where, and how to go on."""


class Journal:
    """One such file; use it as `async with`.

    Args:
        path: of the file; it and its folder are made if they do not exist.

    Attributes:
        lines: what it held when it was opened, without line ends.

    Raises:
        InputError: the file cannot be written, or another process has it open.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            make_private_folder(path.parent)
            self._file = _locked(path)
            self.lines, self._size = _whole_lines(self._file)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}; a file that can be written is needed") from error
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Journal:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writing is not None:
            await self._writing
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    async def append(self, line: bytes) -> None:
        """Add a line, given without its end; it is on disk when this returns.

        Raises:
            RunStopped: the disk is full, or fails; the file is as it was before.
        """
        written = asyncio.get_running_loop().create_future()
        self._waiting.append((line, written))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        await written

    def replace(self, lines: Sequence[bytes]) -> None:
        """Let the file hold these lines and no others, in one step; not while lines are being appended."""
        content = b"".join(line + b"\n" for line in lines)
        with tempfile.NamedTemporaryFile(dir=self.path.parent, prefix=self.path.name, delete=False) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        replacing = os.open(file.name, os.O_RDWR | os.O_APPEND)
        fcntl.flock(replacing, fcntl.LOCK_EX)
        os.replace(file.name, self.path)
        os.close(self._file)
        self._file, self._size, self.lines = replacing, len(content), list(lines)

    async def _write(self) -> None:
        """Write what waits, until nothing does."""
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                await asyncio.to_thread(self._put, b"".join(line + b"\n" for line, _ in batch))
            except OSError as error:
                stopped = RunStopped(f"{self.path}: {error.strerror}{_way_out(error)}")
                for _, written in batch:
                    if not written.done():
                        written.set_exception(stopped)
            else:
                for _, written in batch:
                    if not written.done():
                        written.set_result(None)
        self._writing = None

    def _put(self, content: bytes) -> None:
        """All of it, or nothing."""
        try:
            left = memoryview(content)
            while left:
                left = left[os.write(self._file, left) :]
            os.fsync(self._file)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(content)


def _locked(path: Path) -> int:
    """The file, open and ours alone. Whoever held it may have put another in its place while we waited for the lock."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file), path.stat()):
                return file
        except BlockingIOError as error:
            os.close(file)
            raise InputError(f"{path}: another process writes it; wait for that run, or give another --out") from error
        except OSError:
            os.close(file)
            raise
        os.close(file)


def _whole_lines(file: int) -> tuple[list[bytes], int]:
    """The lines of a file and its size, without a last line that was never finished, which is taken off."""
    content = b"".join(iter(lambda: os.read(file, 1 << 20), b""))
    *lines, torn = content.split(b"\n")
    if torn:
        os.ftruncate(file, len(content) - len(torn))
    return lines, len(content) - len(torn)


def _way_out(error: OSError) -> str:
    return "; make room, and the same command goes on" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
