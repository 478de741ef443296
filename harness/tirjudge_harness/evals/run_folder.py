"""Write the results of an eval's run to a run folder, so that reports, comparisons and pages show them.

An item is a row with one criterion, or with all criteria; its id begins with a hash of the row. A result is a judgment by
rules with a check for each criterion. A row with an error has a failure instead of a judgment.

rows.jsonl    the texts of one row per line, beside the files of every run
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tirjudge.durable import parse_lines, replacing_folder, whole_lines
from tirjudge.types import CheckReason, CheckResult, Judgment, Mode, Text, Timing, Usage, Verdict, encodable
from tirjudge_harness.evals.criteria import ALL, DETERMINISTIC, criteria_of
from tirjudge_harness.evals.objects import EvalDefinition, EvalRun, OutputItem
from tirjudge_harness.examples import Example, ExampleMetadata
from tirjudge_harness.items import InputError
from tirjudge_harness.own_data.rows import ROW
from tirjudge_harness.protocols import PAPER
from tirjudge_harness.run import (
    AskedComparison,
    DataManifest,
    EvalCriterion,
    EvalManifest,
    JudgeManifest,
    PlannedExample,
    RunManifest,
    read_manifest,
    write_run,
)
from tirjudge_harness.run_store import FAILURES, Failure, StoredModel, jsonl, write_output

ROWS = "rows.jsonl"

_PASSED, _FAILED = 10.0, 1.0
"""Scores of judgments by rules."""


class RowTexts(StoredModel):
    """A line of `rows.jsonl`."""

    id: str
    """The first part of the ids of its items."""
    item: str
    """The item as JSON."""
    output: Text
    """The sample. Empty: the row has none."""


def write_eval_run(folder: Path, definition: EvalDefinition, run: EvalRun, items: Sequence[OutputItem]) -> None:
    """Write a run folder. It replaces an older folder of the same run.

    Args:
        folder: Folder to write.
        definition: The eval.
        run: The run.
        items: Its graded rows, in order.

    Raises:
        InputError: The folder has something else.
    """
    _check_folder(folder, run)
    criteria = criteria_of(definition)
    rows = _rows(items)
    planned: list[PlannedExample] = []
    judgments: dict[str, Judgment] = {}
    failures: list[Failure] = []
    for item, row in zip(items, rows, strict=True):
        for name, judged, problem in _results(item, criteria=criteria):
            planned.append(_planned(item, row, name=name, place=len(planned)))
            key = planned[-1].asked[0].key
            if judged is None:
                failures.append(Failure(key=key, error=problem, at=_created(item, run=run)))
            else:
                judgments[key] = _judgment(item, run=run, name=name, results=judged, key=key)
    with replacing_folder(folder) as unfinished:
        write_output(unfinished / ROWS, jsonl(rows))
        write_output(unfinished / FAILURES, jsonl(failures))
        manifest = _manifest(definition, run, criteria=criteria, rows=rows, num_examples=len(planned))
        write_run(unfinished, manifest=manifest, planned=planned, judgments=judgments)


def examples_of_rows(folder: Path, outlines: Sequence[ExampleMetadata]) -> list[Example]:
    """Return the examples of a run folder of an eval with their texts.

    Raises:
        InputError, StorageError: The file with the rows is missing or damaged.
    """
    file = folder / ROWS
    if not file.is_file():
        raise InputError(f"{file}: no such file; write the folder again with `tirjudge evals export`")
    rows = {row.id: row for row in parse_lines(whole_lines(file), model=RowTexts, path=file)}
    return [
        Example(outline=outline, prompt=_pretty(row.item), responses=(row.output,))
        for outline in outlines
        if (row := rows.get(outline.cluster)) is not None
    ]


def _check_folder(folder: Path, run: EvalRun) -> None:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        known = read_manifest(folder).data.eval
    except InputError:
        known = None
    if known is None or known.run_id != run.id:
        raise InputError(f"{folder}: exists, and is not a folder of {run.id}; give another folder")


def _rows(items: Sequence[OutputItem]) -> list[RowTexts]:
    """Return the rows under ids that depend on their content alone, so that runs over other files can be compared."""
    seen: Counter[str] = Counter()
    rows = []
    for item in items:
        text = json.dumps(item.datasource_item, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        seen[digest] += 1
        again = f"#{seen[digest]}" if seen[digest] > 1 else ""
        output = item.row.get("sample", {}).get("output_text", "")
        rows.append(RowTexts(id=digest + again, item=json.dumps(item.datasource_item), output=output))
    return rows


def _pretty(item: str) -> str:
    return encodable(json.dumps(json.loads(item), indent=1, ensure_ascii=False))


Judged = Sequence[tuple[EvalCriterion, Mapping[str, Any]]]
"""Criteria with their results."""


def _results(item: OutputItem, *, criteria: Sequence[EvalCriterion]) -> Iterator[tuple[str, Judged | None, str]]:
    """Yield the name, the results and the error of each result of a row.

    Results belong to criteria by their position, because exports add ids to the names.
    """
    found: list[tuple[str, Judged | None, str]] = []
    for place, criterion in enumerate(criteria):
        result = item.results[place] if place < len(item.results) else None
        problem = _problem(item, result)
        judged = None if result is None or problem else [(criterion, result)]
        found.append((criterion.name, judged, problem))
    if len(criteria) > 1:
        problem = next((problem for _, _, problem in found if problem), "")
        yield ALL, None if problem else [one for _, judged, _ in found for one in judged or ()], problem
    yield from found


def _problem(item: OutputItem, result: Mapping[str, Any] | None) -> str:
    """Return why a result has no score. Empty: it has one."""
    if result is not None:
        return _message(result["error"]) if result.get("error") else ""
    sampling = (item.sample or {}).get("error")
    return _message(sampling) if sampling else "the row has no result of this criterion"


def _message(error: Any) -> str:
    if not isinstance(error, Mapping):
        return encodable(str(error))
    return encodable(f"{error.get('code') or 'error'}: {error.get('message') or ''}")


def _planned(item: OutputItem, row: RowTexts, *, name: str, place: int) -> PlannedExample:
    id = encodable(f"{row.id}/{name}")
    outline = ExampleMetadata(
        id=id,
        subset=encodable(name),
        num_responses=1,
        correct=(0,),
        cluster=row.id,
        facts={ROW: item.datasource_item_id},
        lengths=(len(row.output),),
    )
    return PlannedExample(place=place, outline=outline, asked=(AskedComparison(responses=(0,), key=id),))


def _judgment(item: OutputItem, *, run: EvalRun, name: str, results: Judged, key: str) -> Judgment:
    checks = [_check(criterion, result) for criterion, result in results]
    score = _PASSED if all(check.passed for check in checks) else _FAILED
    is_checked = all(criterion.type in DETERMINISTIC for criterion, _ in results)
    ids = [str(id) for _, result in results for id in result.get("judgment_ids") or ()]
    return Judgment(
        id=ids[0] if len(ids) == 1 else f"{run.id}/{item.datasource_item_id}",
        created=_created(item, run=run),
        mode=Mode.RULES,
        model=encodable(", ".join(dict.fromkeys(criterion.type for criterion, _ in results))),
        verdict=Verdict(
            status="decided",
            best=None,
            label=f"{score:g}",
            scores=[score],
            probabilities=None,
            confidence=None,
            label_mass=None,
            forced=False,
            basis="checked" if is_checked else None,
        ),
        rollouts=[],
        checks=[checks],
        usage=Usage(input_tokens=None, cached_tokens=None, output_tokens=None, tool_calls=0, rollouts=0),
        timing=Timing(total_s=0.0, engine_s=0.0, sandbox_s=0.0),
    )


def _check(criterion: EvalCriterion, result: Mapping[str, Any]) -> CheckResult:
    score = result.get("score")
    reasons = [CheckReason(message=f"score {score:g}", value=score)] if isinstance(score, int | float) else []
    parts = result.get("sub_scores")
    if isinstance(parts, Mapping):
        reasons += [CheckReason(message=encodable(f"{name}: {value}")) for name, value in parts.items()]
    output = (result.get("sample") or {}).get("output") or []
    texts = [message.get("content") for message in output if isinstance(message, Mapping)]
    reasons += [CheckReason(message=encodable(text)) for text in texts if isinstance(text, str) and text]
    return CheckResult(
        check=encodable(criterion.name),
        kind=encodable(criterion.type),
        severity="violation",
        passed=bool(result.get("passed")),
        reasons=reasons,
    )


def _created(item: OutputItem, *, run: EvalRun) -> int:
    found = getattr(item, "created_at", None)
    return found if isinstance(found, int) else run.created_at


def _manifest(
    definition: EvalDefinition,
    run: EvalRun,
    *,
    criteria: Sequence[EvalCriterion],
    rows: Sequence[RowTexts],
    num_examples: int,
) -> RunManifest:
    digest = hashlib.sha256()
    for row in sorted(rows, key=lambda row: row.id):
        digest.update(row.id.encode() + b"\n")
    shown = EvalManifest(
        eval_id=definition.id,
        name=encodable(definition.name or definition.id),
        run_id=run.id,
        run_name=encodable(run.name or ""),
        status=run.status,
        num_rows=run.num_rows,
        num_graded=len(rows),
        criteria=tuple(EvalCriterion(name=encodable(one.name), type=encodable(one.type)) for one in criteria),
    )
    return RunManifest(
        benchmark=shown.name,
        mode=Mode.RULES,
        protocol=PAPER.name,
        orders="single",
        votes=1,
        tools="off",
        judge=JudgeManifest(kind="eval", model=encodable(run.model or "samples of the rows")),
        data=DataManifest(sha256=digest.hexdigest(), num_examples=num_examples, eval=shown),
        version=version("tirjudge"),
        created=run.created_at,
    )
