"""Read the input of `tirjudge judge`: a file of items, or a user's own rows with any columns. Labels are optional."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from tirjudge.http.protocol import parse_json, problem_of
from tirjudge_harness.examples import Example
from tirjudge_harness.items import JudgeItem, JudgeSettings, Task, numbered_lines, read_tasks
from tirjudge_harness.own_data.mapping import ColumnMapping, GivenColumns
from tirjudge_harness.own_data.rows import ROW
from tirjudge_harness.row_files import is_row_file


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFile:
    """The items of a file."""

    tasks: list[Task]
    problems: list[str]
    """Each invalid line or row with its reason."""
    meaning: list[str]
    """Lines that say how the columns are read. Empty: a file of items, whose fields have their own names."""
    columns: ColumnMapping | None = None
    """How the columns are read. None: a file of items."""


def read_item_file(
    path: Path,
    *,
    settings: JudgeSettings,
    given: GivenColumns | None = None,
    columns: ColumnMapping | None = None,
) -> ItemFile:
    """Read a file. Rows of `.csv`, `.tsv`, `.json` and `.parquet` files, and lines without `responses`, are read as
    `tirjudge bench run --data` reads them, but they need no label.

    Args:
        path: the file.
        settings: settings of the requests.
        given: columns that the user named. None: none.
        columns: the mapping of an earlier run. None: the file has items, or the mapping is found.

    Raises:
        InputError: the file cannot be read, the meaning of a column is not clear, or no row is valid.
    """
    given = given or GivenColumns()
    is_mapped = columns is not None or given != GivenColumns()
    if not is_mapped and (not is_row_file(path) or _has_items(path)):
        tasks, bad = read_tasks(path, settings=settings)
        return ItemFile(tasks=tasks, problems=[f"{path}, line {one.number}: {one.problem}" for one in bad], meaning=[])
    from tirjudge_harness.own_data.loading import load_own
    from tirjudge_harness.own_data.preview import mapping_lines

    own = load_own(path, given=given, columns=columns, needs_labels=False)
    tasks, problems = [], [str(row) for row in own.bad_rows]
    for one in own.examples:
        item = _item_of(one)
        try:
            request = settings.request(item)
            tasks.append(Task(item=item, outline=one.outline, request=request, number=one.outline.facts[ROW]))
        except ValidationError as error:
            problems.append(f"{path}, {item.id}: {problem_of(error).message}")
    return ItemFile(tasks=tasks, problems=problems, meaning=mapping_lines(own), columns=own.columns)


def is_item_file(name: str) -> bool:
    """Whether a file has many items by the ending of its name. A `.json` file is one request."""
    return name.lower().removesuffix(".gz").endswith((".jsonl", ".csv", ".tsv", ".parquet"))


def _has_items(path: Path) -> bool:
    """Whether a file has JSON lines, and the first line that is an object has `responses`."""
    if not path.name.lower().removesuffix(".gz").endswith(".jsonl"):
        return False
    for _, line in numbered_lines(path):
        try:
            first = parse_json(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(first, dict):
            return "responses" in first
    return True


def _item_of(one: Example) -> JudgeItem:
    correct = one.outline.correct
    return JudgeItem(
        id=one.outline.id,
        prompt=one.prompt if isinstance(one.prompt, str) else list(one.prompt),
        responses=list(one.responses),
        reference=one.reference,
        label=correct[0] if len(correct) == 1 else None,
    )
