"""The judgments of a run: `journal.jsonl` in its folder, one a line, by the key of the question; failures lie beside it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from tirjudge.types import Judgment
from tirjudge_harness.items import InputError
from tirjudge_harness.journal import Journal

JOURNAL = "journal.jsonl"
FAILURES = "failures.jsonl"

Line = TypeVar("Line", bound=BaseModel)


class StoredAnswer(BaseModel):
    """A line of the journal."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    judgment: Judgment


class Failure(BaseModel):
    """A judgment that we failed to make, at some time; the journal may have it by now."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    error: str
    at: int
    """Unix time, seconds."""


class Answers:
    """Keeps the judgments of one folder; use it as `async with`. One process at a time may.

    Args:
        folder: of the run; made if it does not exist.

    Attributes:
        judgments: by key.
        failed: keys of the questions that an earlier run failed at; the journal may have them by now.

    Raises:
        InputError: the files cannot be written, are damaged, or another process writes them.
    """

    def __init__(self, folder: Path) -> None:
        self.place = str(folder)
        self._journal = Journal(folder / JOURNAL)
        try:
            answers = parse_lines(self._journal.lines, model=StoredAnswer, path=self._journal.path)
            self.judgments = {answer.key: answer.judgment for answer in answers}
            self._journal.lines = []
            self._failures = Journal(folder / FAILURES)
            failures = parse_lines(self._failures.lines, model=Failure, path=self._failures.path)
            self.failed = {failure.key for failure in failures}
        except BaseException:
            self._journal.close()
            raise

    async def __aenter__(self) -> Answers:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._failures.__aexit__(kind, error, trace)
        await self._journal.__aexit__(kind, error, trace)

    def find(self, key: str) -> Judgment | None:
        return self.judgments.get(key)

    async def keep(self, key: str, judgment: Judgment) -> None:
        """Add a judgment; it is on disk when this returns.

        Raises:
            RunStopped: the disk is full, or fails.
        """
        await self._journal.append(StoredAnswer(key=key, judgment=judgment).model_dump_json().encode())
        self.judgments[key] = judgment

    async def fail(self, key: str, error: str) -> None:
        """Put down why there is no judgment."""
        await self._failures.append(Failure(key=key, error=error, at=int(time.time())).model_dump_json().encode())


def read_answers(folder: Path) -> tuple[dict[str, Judgment], list[Failure]]:
    """The judgments of a folder by key, and the failures of questions that have none: the last of each.

    A run that is still under way can be read as well.

    Raises:
        InputError: a file is damaged, or cannot be read.
    """
    answers = parse_lines(_lines(folder / JOURNAL), model=StoredAnswer, path=folder / JOURNAL)
    judgments = {answer.key: answer.judgment for answer in answers}
    failures = parse_lines(_lines(folder / FAILURES), model=Failure, path=folder / FAILURES)
    return judgments, list({failure.key: failure for failure in failures if failure.key not in judgments}.values())


def _lines(path: Path) -> list[bytes]:
    """Whole lines; a torn last one is left alone."""
    try:
        return path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def parse_lines(lines: Sequence[bytes], *, model: type[Line], path: Path) -> Iterator[Line]:
    """The objects on the lines of a file.

    Raises:
        InputError: a line holds none.
    """
    for number, line in enumerate(lines, start=1):
        try:
            yield model.model_validate_json(line)
        except ValidationError as error:
            raise InputError(f"{path}: line {number} is none of ours; restore that file, or remove it") from error
