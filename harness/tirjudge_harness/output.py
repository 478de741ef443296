"""The output of `tirjudge judge`: one line per item, appended when it is finished.

Each line says how it was made, so that a run that was killed goes on where it stopped, and two different runs cannot end
up in one file. Lines of items that failed are taken out when the file is opened, and the others are scored anew, by the
labels that the input has now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from tirjudge.types import Judgment
from tirjudge_harness.items import InputError, ItemId, JudgeItem, Task
from tirjudge_harness.journal import Journal
from tirjudge_harness.scoring import correctness


class OutputRecord(BaseModel):
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


class Output:
    """The records of a run, on disk; use it as `async with`. A question that several items ask is on record with each.

    Args:
        path: of the output file; made if it does not exist.
        configuration: of this run.
        tasks: the whole input; only what belongs to it may be in the file.
        key: of the question that a task asks.

    Attributes:
        records: the finished items, by id; those that failed are not among them.

    Raises:
        InputError: the file cannot be written, is damaged, or was made from another input or with another configuration.
    """

    def __init__(
        self, path: Path, *, configuration: Mapping[str, Any], tasks: Sequence[Task], key: Callable[[Task], str]
    ) -> None:
        self.place = str(path)
        self.records: dict[ItemId, OutputRecord] = {}
        self._configuration = dict(configuration)
        self._askers: dict[str, list[JudgeItem]] = {}
        for task in tasks:
            self._askers.setdefault(key(task), []).append(task.item)
        self._journal = Journal(path)
        try:
            self._take_up({task.item.id: task.item for task in tasks})
        except BaseException:
            self._journal.close()
            raise

    async def __aenter__(self) -> Output:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._journal.__aexit__(kind, error, trace)

    def find(self, key: str) -> Judgment | None:
        """The judgment that the file has on the items that ask this."""
        record = self.records.get(self._askers[key][-1].id)
        return None if record is None else record.judgment

    async def keep(self, key: str, judgment: Judgment) -> None:
        """Add a line for each item that asked and has none."""
        for item in self._askers[key]:
            if item.id not in self.records:
                record = self._record(item, judgment=judgment)
                await self._journal.append(_line(record))
                self.records[item.id] = record

    async def fail(self, key: str, error: str) -> None:
        """Add why an item has no judgment."""
        for item in self._askers[key]:
            await self._journal.append(_line(self._record(item, error=error)))

    def _record(self, item: JudgeItem, *, judgment: Judgment | None = None, error: str | None = None) -> OutputRecord:
        return OutputRecord(
            id=item.id,
            label=item.label,
            correct=_score(judgment, item=item),
            error=error,
            judgment=judgment,
            item_sha256=item.sha256,
            configuration=self._configuration,
        )

    def _take_up(self, items: Mapping[ItemId, JudgeItem]) -> None:
        """Go on from what the file has."""
        path = self._journal.path
        finished = [record for record in _parse(self._journal.lines, path=path) if record.error is None]
        self._check(finished, items=items, path=path)
        for record in finished:
            item = items[record.id]
            update = {"label": item.label, "correct": _score(record.judgment, item=item)}
            self.records[record.id] = record.model_copy(update=update)
        self._share()
        counting = [_line(record) for record in self.records.values()]
        if self._journal.lines != counting:
            self._journal.replace(counting)

    def _share(self) -> None:
        """What was judged for one item holds for all that ask the same."""
        for askers in self._askers.values():
            judged = next((self.records[item.id].judgment for item in askers if item.id in self.records), None)
            for item in askers if judged is not None else ():
                self.records.setdefault(item.id, self._record(item, judgment=judged))

    def _check(self, records: Sequence[OutputRecord], *, items: Mapping[ItemId, JudgeItem], path: Path) -> None:
        for record in records:
            if record.configuration != self._configuration:
                differences = differences_of(record.configuration, self._configuration)
                raise InputError(f"{path} was made with another configuration ({differences}); {_WAY_OUT}")
            item = items.get(record.id)
            if item is None:
                raise InputError(
                    f"{path} was made from another file: it has id {record.id!r}, the input does not; {_WAY_OUT}"
                )
            if item.sha256 != record.item_sha256:
                raise InputError(
                    f"{path} was made from another file: the item with id {record.id!r} differs; {_WAY_OUT}"
                )


_WAY_OUT = "give another --out, or remove that file"


def differences_of(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """What differs between two configurations, for a message."""
    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    return "; ".join(f"{name} was {there.get(name)!r} and is now {here.get(name)!r}" for name in names)


def _score(judgment: Judgment | None, *, item: JudgeItem) -> float | None:
    return None if judgment is None else correctness(judgment, label=item.label)


def _line(record: OutputRecord) -> bytes:
    unset = {name for name in ("label", "correct", "error", "judgment") if getattr(record, name) is None}
    return record.model_dump_json(exclude=unset).encode()


def _parse(lines: Sequence[bytes], *, path: Path) -> list[OutputRecord]:
    records: list[OutputRecord] = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(OutputRecord.model_validate_json(line))
        except ValidationError as error:
            raise InputError(f"{path}: line {number} is no record of ours; {_WAY_OUT}") from error
    return records
