"""Crash-safe files: atomic replacement, locks, append-only journals, and private permissions.

A process that is killed at any point leaves either the old file or the new one, and no lock. A journal may end in a
partial line, which the next `Journal` removes.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import shutil
import stat
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ValidationError

from tirjudge.errors import TirjudgeError

UNFINISHED = ".unfinished-"
"""Name prefix of temporary files and folders. Parquet readers ignore names that begin with a dot."""

_OTHERS = stat.S_IRWXG | stat.S_IRWXO

Line = TypeVar("Line", bound=BaseModel)


class StorageError(TirjudgeError, ValueError):
    """A file or folder cannot be used: locked by another process, not writable, damaged, or of another run."""


# Private files and folders ----------------------------------------------------------------------------------------------


def make_private_folder(path: Path) -> None:
    """Create a folder and its missing parents with mode 0700, independent of the umask. An existing folder keeps its
    mode.

    Raises:
        OSError: the folder cannot be created.
    """
    if path.parent != path and not path.parent.exists():
        make_private_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)


def private(path: str, flags: int) -> int:
    """Open a file with mode 0600; pass it to `open` as `opener`. An existing file keeps its mode."""
    return os.open(path, flags, 0o600)


def close_to_others(path: Path) -> None:
    """Remove the permissions of group and others from a file or a folder. Warn if this process is not allowed to."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & _OTHERS:
        return
    try:
        path.chmod(mode & ~_OTHERS)
    except OSError as error:
        warnings.warn(
            f"{path}: others may read it (mode {mode:04o}), and its mode cannot be changed: {error.strerror}; "
            f"run `chmod go= {path}` as its owner",
            RuntimeWarning,
            stacklevel=2,
        )


# Files and folders as a whole -------------------------------------------------------------------------------------------


def sync(path: Path) -> None:
    """Fsync a file or a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to. It replaces `path` when the block ends; if the block raises, `path` is
    unchanged.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{UNFINISHED}{os.getpid()}-{path.name}")
    unfinished.unlink(missing_ok=True)  # left by a killed process with the same id, which is common in containers
    try:
        yield unfinished
        sync(unfinished)
        os.replace(unfinished, path)
        sync(path.parent)
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def write_file(path: Path, content: str | bytes | memoryview, *, closed: bool = True) -> None:
    """Replace a file atomically.

    Args:
        path: file to write. Missing parent folders are created.
        content: new content. Text is encoded as UTF-8.
        closed: whether to create the file with mode 0600. False: the umask decides.

    Raises:
        OSError: the disk is full, or the folder is not writable. The old file is unchanged.
    """
    if closed:
        make_private_folder(path.parent)
    with (
        replacing_file(path) as unfinished,
        open(unfinished, "wb", opener=private if closed else None) as file,
    ):
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder to fill. It replaces `path` when the block ends; if the block raises, `path` is unchanged.

    POSIX cannot swap two folders: the old folder is renamed, the new one is moved to `path`, then the old one is
    deleted. If the process dies between the two renames, `recover_folder` moves the old folder back.

    Raises:
        OSError: the disk is full, or the parent folder is not writable.
    """
    fresh, old = path.with_name(f"{UNFINISHED}{path.name}"), _old(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        recover_folder(path)
        for left in (fresh, old):
            shutil.rmtree(left, ignore_errors=True)
        fresh.mkdir()
        yield fresh
        for inside in [*fresh.rglob("*"), fresh]:
            sync(inside)
        if path.exists():
            path.rename(old)
        fresh.rename(path)
        sync(path.parent)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        recover_folder(path)
        raise


def recover_folder(path: Path) -> None:
    """Restore a folder that `replacing_folder` had renamed before its process was killed."""
    if _old(path).exists() and not path.exists():
        _old(path).rename(path)


def remove_unfinished(folder: Path) -> None:
    """Remove the temporary files that killed writers left in a folder. The caller must hold the lock of the folder."""
    for left in folder.glob(f"{UNFINISHED}*"):
        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()


def _old(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


# Locks ------------------------------------------------------------------------------------------------------------------


def lock_folder(path: Path, *, closed: bool = True) -> int:
    """Lock a folder through the file `.lock` inside it. Arguments and errors are those of `lock`."""
    return lock(path / ".lock", closed=closed, name=path)


def lock(path: Path, *, closed: bool = True, name: Path | None = None) -> int:
    """Lock a file until the descriptor is closed or this process ends.

    Args:
        path: file to lock. It is created if it does not exist.
        closed: whether to create the file with mode 0600. False: the umask decides.
        name: path to show in the error message. None: `path`.

    Returns:
        A descriptor for reading and appending.

    Raises:
        StorageError: another process holds the lock.
        OSError: the file cannot be opened for writing.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600 if closed else 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The process that held the lock may have replaced the file in the meantime.
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except BlockingIOError as error:
            os.close(descriptor)
            raise StorageError(
                f"{name or path}: another process writes it; wait for that run, or give another --out"
            ) from error
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


# Journals ---------------------------------------------------------------------------------------------------------------


class Journal:
    """An append-only file of lines, locked while it is open. Use it as a context manager (`with` or `async with`), or
    call `close`.

    Args:
        path: path of the file. The file and its parent folders are created if they do not exist.
        closed: whether to create the file with mode 0600. False: the umask decides.

    Attributes:
        lines: lines that the file contained when it was opened, without line ends. A partial last line is removed.

    Raises:
        StorageError: the file is not writable, or another process has it open.
    """

    def __init__(self, path: Path, *, closed: bool = True) -> None:
        self.path = path
        try:
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            make_private_folder(path.parent) if closed else path.parent.mkdir(parents=True, exist_ok=True)
            self._file = lock(path, closed=closed)
            content = path.read_bytes()
            *self.lines, torn = content.split(b"\n")
            self._size = len(content) - len(torn)
            os.ftruncate(self._file, self._size)
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror}; a writable file is needed") from error
        self._is_synced = True
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writing is not None:
            await self._writing
        self.close()

    def close(self) -> None:
        """Fsync and close the file, which releases the lock."""
        try:
            if not self._is_synced:
                os.fsync(self._file)
        finally:
            os.close(self._file)

    def write(self, line: bytes) -> None:
        """Append a line. On return it survives the death of this process, but not a power failure until `close` syncs.

        Args:
            line: the line without its line end.

        Raises:
            OSError: the disk is full or failed. The file is unchanged.
        """
        self._is_synced = False
        self._put(line + b"\n")

    async def append(self, line: bytes) -> None:
        """Append a line and fsync it. Concurrent calls share one fsync.

        Args:
            line: the line without its line end.

        Raises:
            OSError: the disk is full or failed. The file is unchanged.
        """
        written = asyncio.get_running_loop().create_future()
        self._waiting.append((line, written))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_waiting())
        await written

    def replace(self, lines: Sequence[bytes]) -> None:
        """Replace all lines atomically. Do not call it while an `append` is pending."""
        content = b"".join(line + b"\n" for line in lines)
        with replacing_file(self.path) as unfinished:
            with open(unfinished, "wb", opener=private) as file:
                file.write(content)
            locked = lock(unfinished)
        os.close(self._file)
        self._file, self._size, self.lines = locked, len(content), list(lines)

    async def _write_waiting(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                await asyncio.to_thread(self._put, b"".join(line + b"\n" for line, _ in batch), synced=True)
            except OSError as error:
                for _, written in batch:
                    if not written.done():
                        written.set_exception(error)
            else:
                for _, written in batch:
                    if not written.done():
                        written.set_result(None)
        self._writing = None

    def _put(self, content: bytes, *, synced: bool = False) -> None:
        """Write all of the content, or leave the file unchanged."""
        try:
            left = memoryview(content)
            while left:
                left = left[os.write(self._file, left) :]
            if synced:
                os.fsync(self._file)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(content)


def whole_lines(path: Path) -> list[bytes]:
    """Return the complete lines of a file that another process may be appending to. Empty if the file does not exist.

    Raises:
        StorageError: the file cannot be read.
    """
    try:
        return path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}") from error


def iterate_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of `whole_lines` without reading the whole file at once. Raises StorageError as it does."""
    try:
        if path.exists():
            with path.open("rb") as file:
                yield from (line[:-1] for line in file if line.endswith(b"\n"))
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}") from error


def parse_lines(lines: Iterable[bytes], *, model: type[Line], path: Path) -> list[Line]:
    """Return the objects of `parsed_lines`. Arguments and errors are the same."""
    return list(parsed_lines(lines, model=model, path=path))


def parsed_lines(lines: Iterable[bytes], *, model: type[Line], path: Path) -> Iterator[Line]:
    """Parse each line of a file as JSON of a pydantic model.

    Args:
        lines: lines of the file.
        model: type of the objects.
        path: path of the file, for the error message.

    Raises:
        StorageError: a line is not valid. The message names the file and the line.
    """
    for number, line in enumerate(lines, start=1):
        try:
            yield model.model_validate_json(line)
        except ValidationError as error:
            raise StorageError(
                f"{path}: line {number} is not a valid record; restore that file, remove it, or give another --out"
            ) from error


# Run configurations -----------------------------------------------------------------------------------------------------


def differences(there: Any, here: Any, *, name: str = "") -> list[str]:
    """Return the differences between two trees of plain values, such as `optimizer.lr was 0.1 and is now 0.2`."""
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        inside = [(key, f"{name}.{key}" if name else str(key)) for key in {**there, **here}]
        return [one for key, path in inside for one in differences(there.get(key), here.get(key), name=path)]
    old, new = (json.dumps(value, default=str) for value in (there, here))
    return [] if there == here else [f"{name} was {old} and is now {new}"]


def refuse_other_run(place: Path, *, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Check that a run on disk has the configuration of this command, so that the command can resume it.

    Args:
        place: file or folder of the run, for the error message.
        there: configuration of the run on disk.
        here: configuration of this command.

    Raises:
        StorageError: the configurations differ. The message lists the differences.
    """
    if changes := differences(there, here):
        raise StorageError(
            f"{place} holds a run of another configuration ({'; '.join(changes)}); "
            "give another --out, or the options of that run"
        )
