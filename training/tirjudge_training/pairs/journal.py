"""An append-only file of JSON lines, one for each thing that is done and need not be done again.

A process that is killed leaves whole lines and perhaps a torn last one, which is taken off when the file is opened again.
While it is open the file is locked: two processes cannot do one job.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from tirjudge_training.metrics import take_off_torn_line

_Line = TypeVar("_Line", bound="PairsLine")


class PairsLine(BaseModel):
    """What one line holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PairsJournal:
    """One such file, open and ours alone.

    Args:
        path: it and its folder are made.

    Raises:
        ValueError: another process has it open.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise ValueError(f"{path}: another process writes it; wait for that one, or give another --out") from None
        take_off_torn_line(path)

    def __enter__(self) -> PairsJournal:
        return self

    def __exit__(self, *_: object) -> None:
        os.fsync(self._file.fileno())
        self._file.close()

    def read(self, kind: type[_Line]) -> list[_Line]:
        """What it holds.

        Raises:
            ValueError: a line that is something else; names the file and the line.
        """
        return list(self._parsed(kind))

    def append(self, line: PairsLine) -> None:
        """Add a line; it is with the kernel, so that this process may die, when this returns."""
        self._file.write(line.model_dump_json() + "\n")
        self._file.flush()

    def _parsed(self, kind: type[_Line]) -> Iterable[_Line]:
        for number, line in enumerate(self.path.read_bytes().splitlines(), start=1):
            try:
                yield kind.model_validate_json(line)
            except ValidationError as error:
                said = error.errors()[0]["msg"]
                raise ValueError(f"{self.path}:{number}: cannot be read: {said}; give another --out") from None
