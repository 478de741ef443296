"""The output of `tirjudge judge`: one line per item, appended when it is finished.

Each line says how it was made, so that a run that was killed goes on where it stopped, and two different runs cannot end
up in one file. Lines of items that failed are taken out when the file is opened, and the others are scored anew, by the
labels that the input has now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from pydantic import SerializerFunctionWrapHandler, model_serializer

from tirjudge.durable import refuse_other_run
from tirjudge.types import Judgment
from tirjudge_harness.items import InputError, ItemId, JudgeItem, Task
from tirjudge_harness.run_store import RunStore, StoredModel, jsonl
from tirjudge_harness.scoring import correctness


class OutputRecord(StoredModel):
    """One finished item."""

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

    @model_serializer(mode="wrap")
    def _without_nulls(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialize(self).items() if value is not None}


class Output(RunStore[OutputRecord]):
    """The records of `tirjudge judge`, one a line. Items that ask the same share a judgment; each has its line.

    Args:
        path: of the output file; made if it does not exist.
        configuration: of this run.
        tasks: the whole input; only what belongs to it may be in the file.
        key: of the question that a task asks.

    Attributes:
        lines: the finished items, by id; those that failed are not among them.

    Raises:
        StorageError: the file cannot be written, is damaged, or another process writes it.
        InputError: it was made from another input.
    """

    def __init__(
        self, path: Path, *, configuration: Mapping[str, Any], tasks: Sequence[Task], key: Callable[[Task], str]
    ) -> None:
        super().__init__(path, model=OutputRecord, key=attrgetter("id"))
        self._configuration = dict(configuration)
        self._askers: dict[str, list[JudgeItem]] = {}
        for task in tasks:
            self._askers.setdefault(key(task), []).append(task.item)
        try:
            self._take_up({task.item.id: task.item for task in tasks})
        except BaseException:
            self.close()
            raise

    def find(self, key: str) -> Judgment | None:
        """The judgment that the file has on the items that ask this."""
        record = self.lines.get(self._askers[key][-1].id)
        return None if record is None else record.judgment

    async def keep(self, key: str, judgment: Judgment) -> None:
        """Add a line for each item that asks and has none."""
        for item in self._askers[key]:
            if item.id not in self.lines:
                await self.add(self._record(item, judgment=judgment))

    async def fail(self, key: str, error: str) -> None:
        """Add why items have no judgment."""
        for item in self._askers[key]:
            await self.add(self._record(item, error=error))
            del self.lines[item.id]

    def _record(self, item: JudgeItem, *, judgment: Judgment | None = None, error: str | None = None) -> OutputRecord:
        return OutputRecord(
            id=item.id,
            label=item.label,
            correct=None if judgment is None else correctness(judgment, label=item.label),
            error=error,
            judgment=judgment,
            item_sha256=item.sha256,
            configuration=self._configuration,
        )

    def _take_up(self, items: Mapping[ItemId, JudgeItem]) -> None:
        """Go on from what the file has: failures are dropped, and what was judged for one item holds for all that ask it."""
        judged = {record.id: record.judgment for record in self.lines.values() if record.judgment is not None}
        for id in judged:
            refuse_other_run(self.path, there=self.lines[id].configuration, here=self._configuration)
            if id not in items or items[id].sha256 != self.lines[id].item_sha256:
                wrong = f"the item with id {id!r} differs" if id in items else f"it has id {id!r}, the input does not"
                raise InputError(
                    f"{self.path} was made from another file: {wrong}; give another --out, or remove that file"
                )
        for askers in self._askers.values():
            found = next((judged[item.id] for item in askers if item.id in judged), None)
            if found is not None:
                judged |= {item.id: judged.get(item.id, found) for item in askers}
        self.lines = {id: self._record(items[id], judgment=judgment) for id, judgment in judged.items()}
        counting = jsonl(self.lines.values()).splitlines()
        if self._journal.lines != counting:
            self._journal.replace(counting)
