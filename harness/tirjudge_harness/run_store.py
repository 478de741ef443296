"""The store of a run that can be resumed: results by key, failures that are tried again, and what the run is.

Every command that judges keeps its results in one of these: `bench run`, `bench best-of-n` and `rerank` in a
`JudgmentStore`, `judge` in an `Output` (output.py), `batch` in a `ParquetStore` (batch/parquet_store.py). What they share is
here: how a line gets to disk, what a full disk means, and whether a run on disk is the one that the command continues.
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

from tirjudge.durable import Journal, StorageError, parse_lines, refuse_other_run, whole_lines, write_file
from tirjudge.errors import TirjudgeError
from tirjudge.types import Judgment
from tirjudge_harness.items import InputError

JOURNAL = "journal.jsonl"
FAILURES = "failures.jsonl"

T = TypeVar("T")
Line = TypeVar("Line", bound=BaseModel)
Manifest = TypeVar("Manifest", bound=BaseModel)


class RunStopped(TirjudgeError):
    """A run cannot go on. What was judged is kept; the message says where, and how to go on."""


class StoredModel(BaseModel):
    """Base of what the files of a run hold."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class StoredAnswer(StoredModel):
    """A line of the journal."""

    key: str
    judgment: Judgment


class Failure(StoredModel):
    """A judgment that we failed to make, at some time; the journal may have it by now."""

    key: str
    error: str
    at: int
    """Unix time, seconds."""


class RunStore(Generic[Line]):
    """The lines of one file by key; use it as `async with`. One process at a time may.

    Args:
        path: of the file; made if it does not exist.
        model: of its lines.
        key: of a line; of several with one key the last counts.

    Attributes:
        lines: by key.

    Raises:
        StorageError: the file cannot be written, is damaged, or another process writes it.
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
        """Where the results are, for messages."""
        return str(self.path)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._journal.__aexit__(kind, error, trace)

    def close(self) -> None:
        """Let go of the file."""
        self._journal.close()

    async def add(self, line: Line) -> None:
        """Add a line; it is on disk on return.

        Raises:
            RunStopped: the disk is full, or fails.
        """
        try:
            await self._journal.append(line.model_dump_json().encode())
        except OSError as error:
            raise RunStopped(f"{self.path}: {error.strerror}{_way_out(error)}") from error
        self.lines[self._key(line)] = line


class JudgmentStore(RunStore[StoredAnswer]):
    """The judgments of a folder: `journal.jsonl`, with `failures.jsonl` beside it.

    Args:
        folder: of the run; made if it does not exist.

    Attributes:
        judgments: by key of the question.
        failed: keys of the questions that an earlier run failed at; the journal may have them by now.
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
        return self.judgments.get(key)

    async def keep(self, key: str, judgment: Judgment) -> None:
        """Add a judgment; it is on disk on return.

        Raises:
            RunStopped: the disk is full, or fails.
        """
        await self.add(StoredAnswer(key=key, judgment=judgment))
        self.judgments[key] = judgment

    async def fail(self, key: str, error: str) -> None:
        """Put down why there is no judgment."""
        await self._failures.add(Failure(key=key, error=error, at=int(time.time())))


def read_judgments(folder: Path) -> tuple[dict[str, Judgment], list[Failure]]:
    """The judgments of a folder by key, and the failures of questions that have none: the last of each.

    A run that is still under way can be read as well.

    Raises:
        StorageError: a file is damaged, or cannot be read.
    """
    answers = parse_lines(whole_lines(folder / JOURNAL), model=StoredAnswer, path=folder / JOURNAL)
    judgments = {answer.key: answer.judgment for answer in answers}
    failures = parse_lines(whole_lines(folder / FAILURES), model=Failure, path=folder / FAILURES)
    return judgments, list({failure.key: failure for failure in failures if failure.key not in judgments}.values())


# What a run is ----------------------------------------------------------------------------------------------------------


def resume(file: Path, manifest: Manifest, *, compared: Callable[[Manifest], Mapping[str, Any]]) -> Manifest | None:
    """The manifest of the run that a folder holds, if that is the same run; None: it holds none.

    Args:
        file: the manifest there, if there is one.
        manifest: of the run that is asked for.
        compared: what two manifests of one run share.

    Raises:
        StorageError: the folder holds another run.
        InputError: the manifest is damaged, or of another command.
    """
    if not file.exists():
        return None
    there = read_stored(file, model=type(manifest))
    refuse_other_run(file.parent, there=compared(there), here=compared(manifest))
    return there


def read_stored(file: Path, *, model: type[T]) -> T:
    """What a JSON file of a run holds.

    Raises:
        InputError: it is missing or damaged.
    """
    try:
        return TypeAdapter(model).validate_json(file.read_bytes())
    except OSError as error:
        raise InputError(f"{file.parent} holds no such run: {file.name}: {error.strerror}") from error
    except ValidationError as error:
        raise InputError(f"{file}: damaged, or written by another command: {error.errors()[0]['msg']}") from error


def write_output(path: Path, content: str | bytes | memoryview) -> None:
    """A private file with this content, in one step.

    Raises:
        RunStopped: the disk is full, or fails.
        StorageError: it cannot be written there.
    """
    try:
        write_file(path, content)
    except OSError as error:
        if way_out := _way_out(error):
            raise RunStopped(f"{path}: {error.strerror}{way_out}") from error
        raise StorageError(f"{path}: {error.strerror}; a folder that can be written is needed") from error


def jsonl(lines: Iterable[BaseModel]) -> bytes:
    """A file of JSON lines."""
    return b"".join(line.model_dump_json().encode() + b"\n" for line in lines)


def _way_out(error: OSError) -> str:
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return "; make room, and the same command goes on" if is_full else ""
