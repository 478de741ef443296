"""The output file of `tirjudge judge`: one line per item, appended when the item is finished.

Each line contains the configuration of its run. So a killed run can be resumed, and two different runs cannot write to the
same file. When the file is opened, lines of failed items are removed, and the other lines are scored again with the current
labels of the input.
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

COLUMNS_KEY = "columns"
"""Key in the configuration of a run whose columns were named by options: the meaning of the columns."""


class OutputRecord(StoredModel):
    """One finished item."""

    id: ItemId
    label: int | None = None
    """Label from the input. None: unknown; the item is not scored."""
    correct: float | None = None
    """1: right, 0: wrong, 1/k: k responses share the highest score. None: not scored."""
    error: str | None = None
    """Error message of a failed item. None: the item has a judgment."""
    judgment: Judgment | None = None
    item_sha256: str
    """Hash of the prompt and the responses."""
    configuration: dict[str, Any]
    """Settings and model of the run."""

    @model_serializer(mode="wrap")
    def _without_nulls(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialize(self).items() if value is not None}


class Output(RunStore[OutputRecord]):
    """The output records of `tirjudge judge`, one per item. Items with the same request share a judgment.

    Args:
        path: path of the output file, which is created if it does not exist.
        configuration: settings and model of this run.
        tasks: all items of the input. The file may contain only these items.
        key: return the request key of a task.
        on_line: called with the JSON of each finished item. None: lines are only written to the file.

    Attributes:
        lines: finished items by id, without failed items.

    Raises:
        StorageError: the file cannot be written, is damaged, or is open in another process.
        InputError: the file belongs to another input.
    """

    def __init__(
        self,
        path: Path,
        *,
        configuration: Mapping[str, Any],
        tasks: Sequence[Task],
        key: Callable[[Task], str],
        on_line: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(path, model=OutputRecord, key=attrgetter("id"))
        self._on_line = on_line
        self._configuration = dict(configuration)
        self._items_by_key: dict[str, list[JudgeItem]] = {}
        for task in tasks:
            self._items_by_key.setdefault(key(task), []).append(task.item)
        try:
            self._resume({task.item.id: task.item for task in tasks})
        except BaseException:
            self.close()
            raise

    def find(self, key: str) -> Judgment | None:
        """Return the stored judgment of the items with this request key; None if missing."""
        record = self.lines.get(self._items_by_key[key][-1].id)
        return None if record is None else record.judgment

    async def add(self, line: OutputRecord) -> None:
        """Append a line, and pass it to `on_line`."""
        await super().add(line)
        if self._on_line is not None:
            self._on_line(line.model_dump_json())

    async def keep(self, key: str, judgment: Judgment) -> None:
        """Add a line for each item with this request key that has no line yet."""
        for item in self._items_by_key[key]:
            if item.id not in self.lines:
                await self.add(self._record(item, judgment=judgment))

    async def fail(self, key: str, error: str) -> None:
        """Add a line with the error for each item with this request key. The next run retries these items."""
        for item in self._items_by_key[key]:
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

    def _resume(self, items: Mapping[ItemId, JudgeItem]) -> None:
        """Continue from the records in the file: drop failures, and reuse a judgment for all items with the same request."""
        judged = {record.id: record.judgment for record in self.lines.values() if record.judgment is not None}
        for id in judged:
            refuse_other_run(self.path, there=self.lines[id].configuration, here=self._configuration)
            if id not in items or items[id].sha256 != self.lines[id].item_sha256:
                wrong = f"the item with id {id!r} differs" if id in items else f"id {id!r} is not in the input"
                raise InputError(
                    f"{self.path} belongs to another input: {wrong}; choose another --out, or delete that file"
                )
        for same in self._items_by_key.values():
            found = next((judged[item.id] for item in same if item.id in judged), None)
            if found is not None:
                judged |= {item.id: judged.get(item.id, found) for item in same}
        self.lines = {id: self._record(items[id], judgment=judgment) for id, judgment in judged.items()}
        counting = jsonl(self.lines.values()).splitlines()
        if self._journal.lines != counting:
            self._journal.replace(counting)
