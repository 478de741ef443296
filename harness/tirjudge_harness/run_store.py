"""Stores for resumable runs: results by key, failures to retry, and the manifest of the run.

`bench run`, `bench best-of-n` and `rerank` use a `JudgmentStore`, `judge` uses an `Output` (output.py), and `batch` uses a
`ParquetStore` (batch/parquet_store.py). This module has their common parts: appending lines, handling a full disk, and
checking that a run on disk is the run that the command continues.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from tirjudge.durable import (
    Journal,
    StorageError,
    iterate_lines,
    parse_lines,
    parsed_lines,
    refuse_other_run,
    whole_lines,
    write_file,
)
from tirjudge.errors import TirjudgeError
from tirjudge.types import Judgment
from tirjudge_harness.items import InputError
from tirjudge_harness.textless import TextlessTurns

JOURNAL = "journal.jsonl"
FAILURES = "failures.jsonl"

T = TypeVar("T")
Line = TypeVar("Line", bound=BaseModel)
Manifest = TypeVar("Manifest", bound=BaseModel)


class RunStopped(TirjudgeError):
    """The run cannot continue. The judgments are stored; the message names the folder and the way to continue.

    Attributes:
        why: the cause alone, without the folder. None: the message is the cause.
    """

    why: str | None = None


class StoredModel(BaseModel):
    """Base class of the records in the files of a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class StoredAnswer(StoredModel):
    """A line of the journal."""

    key: str
    judgment: Judgment


class Failure(StoredModel):
    """A failed request. The journal may contain its judgment if a later attempt succeeded."""

    key: str
    error: str
    at: int
    """Unix time of the failure in seconds."""


class RunStore(Generic[Line]):
    """The lines of one file by key, as an async context manager. Only one process can open the file.

    Args:
        path: path of the file, which is created if it does not exist.
        model: type of the lines.
        key: return the key of a line. If several lines have the same key, the last line counts.

    Attributes:
        lines: the lines by key.

    Raises:
        StorageError: the file cannot be written, is damaged, or is open in another process.
    """

    def __init__(self, path: Path, *, model: type[Line], key: Callable[[Line], Any] = attrgetter("key")) -> None:
        self.path = path
        self._key = key
        self._journal = Journal(path)
        try:
            self.lines = {key(line): line for line in parse_lines(self._journal.lines, model=model, path=path)}
        except BaseException:
            self.close()
            raise

    @property
    def place(self) -> str:
        """Path of the results, for messages."""
        return str(self.path)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._journal.__aexit__(kind, error, trace)

    def close(self) -> None:
        """Close the file and release its lock."""
        self._journal.close()

    async def add(self, line: Line) -> None:
        """Append a line. The line is on disk when the method returns.

        Raises:
            RunStopped: the disk is full, or writing failed.
        """
        try:
            await self._journal.append(line.model_dump_json().encode())
        except OSError as error:
            raise RunStopped(f"{self.path}: {error.strerror}{_advice(error)}") from error
        self.lines[self._key(line)] = line


class JudgmentStore(RunStore[StoredAnswer]):
    """The judgments in a run folder: `journal.jsonl` and `failures.jsonl`.

    Args:
        folder: folder of the run, which is created if it does not exist.

    Attributes:
        judgments: judgments by request key.
        failed: keys of requests that failed in an earlier run. The journal may contain some of them.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / JOURNAL, model=StoredAnswer)
        self.judgments = {key: answer.judgment for key, answer in self.lines.items()}
        try:
            self._failures = RunStore(folder / FAILURES, model=Failure)
        except BaseException:
            self.close()
            raise
        self.failed = set(self._failures.lines)

    @property
    def place(self) -> str:
        return str(self.path.parent)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._failures.__aexit__(kind, error, trace)
        await super().__aexit__(kind, error, trace)

    def find(self, key: str) -> Judgment | None:
        """Return the judgment with this request key; None if missing."""
        return self.judgments.get(key)

    async def keep(self, key: str, judgment: Judgment) -> None:
        """Append a judgment. The judgment is on disk when the method returns.

        Raises:
            RunStopped: the disk is full, or writing failed.
        """
        await self.add(StoredAnswer(key=key, judgment=judgment))
        self.judgments[key] = judgment

    async def fail(self, key: str, error: str) -> None:
        """Record the error of a failed request."""
        await self._failures.add(Failure(key=key, error=error, at=int(time.time())))


def read_judgments(folder: Path, *, with_texts: bool = True) -> tuple[dict[str, Judgment], list[Failure]]:
    """Read the judgments of a folder by key, and the most recent failure of each request without a judgment.

    The folder of a running command can be read.

    Args:
        folder: the folder of the run.
        with_texts: whether the judgments have the texts of their turns. Statistics need none.

    Raises:
        StorageError: a file is damaged or cannot be read.
    """
    answers = parsed_lines(iterate_lines(folder / JOURNAL), model=StoredAnswer, path=folder / JOURNAL)
    kept = (lambda judgment: judgment) if with_texts else TextlessTurns().without_texts
    judgments = {answer.key: kept(answer.judgment) for answer in answers}
    failures = parse_lines(whole_lines(folder / FAILURES), model=Failure, path=folder / FAILURES)
    return judgments, list({failure.key: failure for failure in failures if failure.key not in judgments}.values())


# Manifests ---------------------------------------------------------------------------------------------------------------


def resume(file: Path, manifest: Manifest, *, compared: Callable[[Manifest], Mapping[str, Any]]) -> Manifest | None:
    """Return the manifest of the run in a folder. None: the folder holds no run.

    Args:
        file: path of the manifest in the folder.
        manifest: manifest of the requested run.
        compared: return the fields that must be equal in both manifests.

    Raises:
        StorageError: the folder holds another run.
        InputError: the manifest is damaged, or belongs to a different command.
    """
    if not file.exists():
        return None
    stored = read_stored(file, model=type(manifest))
    refuse_other_run(file.parent, there=compared(stored), here=compared(manifest))
    return stored


def read_stored(file: Path, *, model: type[T]) -> T:
    """Read a JSON file of a run.

    Raises:
        InputError: the file is missing or damaged.
    """
    try:
        return TypeAdapter(model).validate_json(file.read_bytes())
    except OSError as error:
        raise InputError(f"{file.parent} is not a run folder: {file.name}: {error.strerror}") from error
    except ValidationError as error:
        raise InputError(f"{file}: damaged, or written by a different command: {error.errors()[0]['msg']}") from error


def write_output(path: Path, content: str | bytes | memoryview) -> None:
    """Write a file atomically, readable by its owner only.

    Raises:
        RunStopped: the disk is full.
        StorageError: the file cannot be written.
    """
    try:
        write_file(path, content)
    except OSError as error:
        if advice := _advice(error):
            raise RunStopped(f"{path}: {error.strerror}{advice}") from error
        raise StorageError(f"{path}: {error.strerror}; choose a writable folder") from error


def jsonl(lines: Iterable[BaseModel]) -> bytes:
    """Return models as JSON lines."""
    return b"".join(line.model_dump_json().encode() + b"\n" for line in lines)


def _advice(error: OSError) -> str:
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return "; free some space and run the same command again to continue" if is_full else ""
