"""The output file is the journal of the run: one line per item, appended when it is finished.

Each line says how it was made, so that a run that was killed goes on where it stopped, and two different runs cannot end
up in one file. Lines that do not count (a torn last one, and items that failed) are taken out when the file is opened,
and the others are scored anew, by the labels that the input has now.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from tirjudge.types import Judgment
from tirjudge_harness.items import InputError, Item, ItemId
from tirjudge_harness.scoring import correctness

SYNC_LINES = 32
SYNC_S = 1.0
"""The file is forced to disk after so many lines or seconds; a killed process loses nothing either way."""


class Record(BaseModel):
    """One finished item."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: ItemId
    label: int | None = None
    """As in the input; None: not known, and not scored."""
    correct: float | None = None
    """1 right, 0 wrong, between them a shared best score; None: not scored."""
    error: str | None = None
    """Why we failed to make the judgment; None when there is one."""
    judgment: Judgment | None = None
    item_sha256: str
    """What was judged."""
    configuration: dict[str, Any]
    """How it was judged, and by which model."""


class Journal:
    """The records of a run, on disk; use it as `with`.

    Args:
        path: of the output file; made if it does not exist.
        configuration: of this run.
        items: the whole input; only what belongs to it may be in the file.

    Raises:
        InputError: the file cannot be written, is damaged, or was made from another input or with another configuration.
    """

    def __init__(self, path: Path, *, configuration: Mapping[str, Any], items: Sequence[Item]) -> None:
        self.path = path
        self._configuration = dict(configuration)
        self.records: dict[ItemId, Record] = {}
        """The finished items, by id; those that failed are not among them."""
        try:
            self._take_up({item.id: item for item in items})
            self._file = path.open("ab")
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}; --out needs a file that can be written") from error
        self._num_unsynced = 0
        self._synced = monotonic()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sync()
        self._file.close()

    def append(
        self,
        item: Item,
        *,
        judgment: Judgment | None = None,
        error: str | None = None,
    ) -> Record:
        """Add what became of an item: its judgment, or why there is none."""
        record = Record(
            id=item.id,
            label=item.label,
            correct=_score(judgment, item=item),
            error=error,
            judgment=judgment,
            item_sha256=item.sha256,
            configuration=self._configuration,
        )
        self._file.write(_line(record))
        self._file.flush()
        self._num_unsynced += 1
        if self._num_unsynced >= SYNC_LINES or monotonic() - self._synced > SYNC_S:
            self._sync()
        if error is None:
            self.records[item.id] = record
        return record

    def _sync(self) -> None:
        os.fsync(self._file.fileno())
        self._num_unsynced = 0
        self._synced = monotonic()

    def _take_up(self, items: Mapping[ItemId, Item]) -> None:
        """Go on from what the file has."""
        content = self.path.read_bytes() if self.path.exists() else None
        finished = [record for record in _parse(content or b"", path=self.path) if record.error is None]
        self._check(finished, items=items)
        for record in finished:
            item = items[record.id]
            update = {"label": item.label, "correct": _score(record.judgment, item=item)}
            self.records[record.id] = record.model_copy(update=update)
        counting = b"".join(map(_line, self.records.values()))
        if content != counting:
            _replace(self.path, content=counting)

    def _check(self, records: Sequence[Record], *, items: Mapping[ItemId, Item]) -> None:
        for record in records:
            if record.configuration != self._configuration:
                differences = _differences(record.configuration, self._configuration)
                raise InputError(f"{self.path} was made with another configuration ({differences}); {_WAY_OUT}")
            item = items.get(record.id)
            if item is None:
                raise InputError(
                    f"{self.path} was made from another file: it has id {record.id!r}, the input does not; {_WAY_OUT}"
                )
            if item.sha256 != record.item_sha256:
                raise InputError(
                    f"{self.path} was made from another file: the item with id {record.id!r} differs; {_WAY_OUT}"
                )


_WAY_OUT = "give another --out, or remove that file"


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    return "; ".join(f"{name} was {there.get(name)!r} and is now {here.get(name)!r}" for name in names)


def _score(judgment: Judgment | None, *, item: Item) -> float | None:
    return None if judgment is None else correctness(judgment, label=item.label)


def _line(record: Record) -> bytes:
    unset = {name for name in ("label", "correct", "error", "judgment") if getattr(record, name) is None}
    return record.model_dump_json(exclude=unset).encode() + b"\n"


def _parse(content: bytes, *, path: Path) -> list[Record]:
    """The records of a file, without a last line that was never finished."""
    *lines, _torn = content.split(b"\n")
    records: list[Record] = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(Record.model_validate_json(line))
        except ValidationError as error:
            raise InputError(f"{path}: line {number} is no record of ours; {_WAY_OUT}") from error
    return records


def _replace(path: Path, *, content: bytes) -> None:
    """The file with other content, in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(file.name, path)
