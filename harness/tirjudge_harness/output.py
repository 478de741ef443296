"""The output file of `tirjudge judge`: one line per item, appended when the item is finished.

Each line contains the configuration of its run. So a killed run can be resumed, and two different runs cannot write to the
same file. When the file is opened, lines of failed items are removed, and the other lines are scored again with the current
labels of the input. `tirjudge bench estimate` and `bench rank` read the file like a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from pydantic import SerializerFunctionWrapHandler, model_serializer

from tirjudge.durable import parse_lines, refuse_other_run
from tirjudge.http.protocol import parse_json
from tirjudge.right import decisions_of
from tirjudge.types import Judgment
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import ExampleMetadata
from tirjudge_harness.items import InputError, ItemId, Task, default_mode, numbered_lines
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
    outline: ExampleMetadata | None = None
    """The item without its texts, for reports. None: written by an older version."""

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
        self._tasks_by_key: dict[str, list[Task]] = {}
        for task in tasks:
            self._tasks_by_key.setdefault(key(task), []).append(task)
        try:
            self._resume({task.item.id: task for task in tasks})
        except BaseException:
            self.close()
            raise

    def find(self, key: str) -> Judgment | None:
        """Return the stored judgment of the items with this request key; None if missing."""
        record = self.lines.get(self._tasks_by_key[key][-1].item.id)
        return None if record is None else record.judgment

    async def add(self, line: OutputRecord) -> None:
        """Append a line, and pass it to `on_line`."""
        await super().add(line)
        if self._on_line is not None:
            self._on_line(line.model_dump_json())

    async def keep(self, key: str, judgment: Judgment) -> None:
        """Add a line for each item with this request key that has no line yet."""
        for task in self._tasks_by_key[key]:
            if task.item.id not in self.lines:
                await self.add(self._record(task, judgment=judgment))

    async def fail(self, key: str, error: str) -> None:
        """Add a line with the error for each item with this request key. The next run retries these items."""
        for task in self._tasks_by_key[key]:
            await self.add(self._record(task, error=error))
            del self.lines[task.item.id]

    def _record(self, task: Task, *, judgment: Judgment | None = None, error: str | None = None) -> OutputRecord:
        item = task.item
        return OutputRecord(
            id=item.id,
            label=item.label,
            correct=None if judgment is None else correctness(judgment, label=item.label),
            error=error,
            judgment=judgment,
            item_sha256=item.sha256,
            configuration=self._configuration,
            outline=task.outline,
        )

    def _resume(self, tasks: Mapping[ItemId, Task]) -> None:
        """Continue from the records in the file: drop failures, and reuse a judgment for all items with the same request."""
        judged = {record.id: record.judgment for record in self.lines.values() if record.judgment is not None}
        for id in judged:
            refuse_other_run(self.path, there=self.lines[id].configuration, here=self._configuration)
            if id not in tasks or tasks[id].item.sha256 != self.lines[id].item_sha256:
                wrong = f"the item with id {id!r} differs" if id in tasks else f"id {id!r} is not in the input"
                raise InputError(
                    f"{self.path} belongs to another input: {wrong}; choose another --out, or delete that file"
                )
        for same in self._tasks_by_key.values():
            ids = [task.item.id for task in same]
            found = next((judged[id] for id in ids if id in judged), None)
            if found is not None:
                judged |= {id: judged.get(id, found) for id in ids}
        self.lines = {id: self._record(tasks[id], judgment=judgment) for id, judgment in judged.items()}
        counting = jsonl(self.lines.values()).splitlines()
        if self._journal.lines != counting:
            self._journal.replace(counting)


def is_output(path: Path) -> bool:
    """Whether a file is an output of `tirjudge judge`, by its first line.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        first = parse_json(next((line for _, line in numbered_lines(path)), b""))
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and first.keys() >= {"id", "item_sha256", "configuration"}


def read_output(path: Path) -> list[OutputRecord]:
    """Read the last record of each item, in the order of the file. A partial last line is left out.

    Raises:
        InputError: the file cannot be read.
        StorageError: a line is not a record.
    """
    lines = [line for _, line in numbered_lines(path) if line.endswith(b"\n")]
    return list({one.id: one for one in parse_lines(lines, model=OutputRecord, path=path)}.values())


def judged_in_output(path: Path) -> list[JudgedExample]:
    """Return the items of an output file with the decisions about them. Failed items have no decisions; those of an older
    version are left out.

    Raises:
        InputError, StorageError: as for `read_output`.
    """
    outlines = [(record, record.outline or _older_outline(record)) for record in read_output(path)]
    return [_judged(record, outline) for record, outline in outlines if outline is not None]


def _judged(record: OutputRecord, outline: ExampleMetadata) -> JudgedExample:
    judgment, asked = record.judgment, range(outline.num_responses)
    if judgment is None:
        return JudgedExample(outline=outline, mode=default_mode(len(asked)), decisions=())
    decisions = decisions_of(judgment, asked=asked, needs_program=record.configuration.get("tools") == "on")
    return JudgedExample(outline=outline, mode=judgment.mode, decisions=tuple(decisions), judgments=(judgment,))


def _older_outline(record: OutputRecord) -> ExampleMetadata | None:
    """Return what a record of an older version says about its item: no prompt, no models. None: a failed item."""
    if record.judgment is None:
        return None
    return ExampleMetadata(
        id=str(record.id),
        subset="",
        num_responses=len(record.judgment.judged),
        correct=() if record.label is None else (record.label,),
        cluster=str(record.id),
    )
