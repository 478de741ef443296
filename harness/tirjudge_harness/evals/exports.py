"""Read exports of OpenAI's Evals API: objects as the API returned them, in JSON or JSONL files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tirjudge.http.protocol import parse_json
from tirjudge_harness.evals.objects import EvalDefinition, EvalRun, OutputItem
from tirjudge_harness.items import InputError, numbered_lines

KINDS = {"eval": EvalDefinition, "eval.run": EvalRun, "eval.run.output_item": OutputItem}
"""Value of `object` -> type."""


@dataclass(slots=True, kw_only=True)
class Export:
    """The objects of an export."""

    evals: dict[str, EvalDefinition] = field(default_factory=dict)
    """Id -> eval."""
    runs: dict[str, EvalRun] = field(default_factory=dict)
    """Id -> run."""
    items: dict[str, dict[str, OutputItem]] = field(default_factory=lambda: defaultdict(dict))
    """Id of a run -> id -> output item."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """Rows of data: objects with `item`."""

    def runs_of(self, eval_id: str) -> list[EvalRun]:
        """Return the runs of an eval, oldest first."""
        return sorted((run for run in self.runs.values() if run.eval_id == eval_id), key=lambda run: run.created_at)

    def items_of(self, run_id: str) -> list[OutputItem]:
        """Return the output items of a run, in order."""
        return sorted(self.items.get(run_id, {}).values(), key=lambda item: item.datasource_item_id)

    def rows_of(self, run: EvalRun) -> list[dict[str, Any]]:
        """Return the rows of a run: those of its output items, or those that it was given, or the rows of data.

        Args:
            run: A run of the export.
        """
        if items := self.items_of(run.id):
            return [item.row for item in items]
        source = run.data_source.get("source") or {}
        content = source.get("content") if isinstance(source, dict) else None
        return content if isinstance(content, list) and content else self.rows


def read_export(paths: Sequence[Path]) -> Export:
    """Read files, and all `.json` and `.jsonl` files of folders.

    Raises:
        InputError: A file cannot be read, or has something else than objects of the Evals API and rows.
    """
    export = Export()
    for path in _files(paths):
        for where, value in _values(path):
            _add(value, to=export, where=where)
    if not export.evals:
        raise InputError(f"{', '.join(map(str, paths))}: no eval found; add the file with the object of the eval")
    unknown = sorted({run.eval_id for run in export.runs.values()} - export.evals.keys())
    if unknown:
        raise InputError(f"{unknown[0]}: the export has runs of this eval, but not the eval; add its file")
    return export


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(file for file in path.iterdir() if file.suffix in (".json", ".jsonl"))
        else:
            yield path


def _values(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield each JSON value of a file with its place: the whole file if it is JSON, otherwise its lines."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    if path.suffix != ".jsonl":
        try:
            yield str(path), parse_json(content)
            return
        except (ValueError, RecursionError) as error:
            if path.suffix == ".json":
                raise InputError(f"{path}: not JSON: {error}") from None
    for number, line in numbered_lines(path):
        try:
            yield f"{path}, line {number}", parse_json(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, line {number}: not JSON: {error}") from None


def _add(value: Any, *, to: Export, where: str) -> None:
    """Add an object, or the objects of a list or a page."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, list):
            waiting += reversed(found)
        elif not isinstance(found, dict):
            raise InputError(f"{where}: {type(found).__name__} given; expected: an object of the Evals API, or a row")
        elif found.get("object") == "list":
            waiting.append(found.get("data") or [])
        elif found.get("object") in KINDS:
            _keep(found, to=to, where=where)
        elif isinstance(found.get("item"), dict):
            to.rows.append(found)
        else:
            raise InputError(
                f"{where}: an object with object = {found.get('object')!r} given; expected one of "
                f"{', '.join(KINDS)}, list, or a row with `item`"
            )


def _keep(found: dict[str, Any], *, to: Export, where: str) -> None:
    try:
        kept = KINDS[found["object"]].model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(f"{where}: {found['object']}: {place}: {first['msg']}") from None
    match kept:
        case EvalDefinition():
            to.evals[kept.id] = kept
        case EvalRun():
            to.runs[kept.id] = kept
        case OutputItem():
            to.items[kept.run_id][kept.id] = kept
