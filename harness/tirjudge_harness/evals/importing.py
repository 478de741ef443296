"""Import an export into a server: create its evals, and run their runs again with the samples of the export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from tirjudge_harness.evals.criteria import DETERMINISTIC
from tirjudge_harness.evals.exports import Export
from tirjudge_harness.evals.objects import EvalDefinition, EvalRun, OutputItem
from tirjudge_harness.evals.server import EvalsServer, rows_as_file

MAX_NAME = 512
"""Maximum length of a name."""


@dataclass(slots=True, kw_only=True)
class CriterionAgreement:
    """The results of one criterion in two runs over the same rows."""

    name: str
    type: str
    num_equal: int = 0
    """Number of rows with the same result: passed, or not."""
    different: list[int] = field(default_factory=list)
    """Positions of rows with another result."""
    num_errors: int = 0
    """Number of rows without a score in the new run."""

    @property
    def is_deterministic(self) -> bool:
        """Whether the criterion uses no model."""
        return self.type in DETERMINISTIC


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRun:
    """A run of an export that was run again."""

    exported: EvalRun
    run: EvalRun
    """The new run."""
    criteria: list[CriterionAgreement]
    """Comparison with the export. Empty: the export has no output items of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedEval:
    """An eval of an export that was created on the server."""

    exported: EvalDefinition
    created: EvalDefinition
    runs: list[ImportedRun]
    without_rows: list[EvalRun]
    """Runs that were not run again, because the export does not have their rows."""


def import_export(
    server: EvalsServer, export: Export, *, models: Mapping[str, str], reruns: bool, console: Console
) -> list[ImportedEval]:
    """Create the evals of an export, and run their runs again.

    Args:
        server: The server.
        export: The export.
        models: Name of a grader's model in the export -> its name on the server.
        reruns: Whether runs are run again. False: only the definitions are imported.
        console: Console for progress.

    Raises:
        RequestRefused, ServerUnavailable: The server refuses a definition or a run, or fails.
    """
    imported = []
    for definition in export.evals.values():
        created = server.create(definition_of(definition, models=models))
        console.print(f"{definition.id} -> {created.id}", highlight=False, soft_wrap=True)
        runs: list[ImportedRun] = []
        without_rows: list[EvalRun] = []
        for exported in export.runs_of(definition.id) if reruns else ():
            rows = export.rows_of(exported)
            if not rows:
                without_rows.append(exported)
                continue
            run = server.wait(_start(server, created, exported, rows=rows), console=console)
            console.print(f"{exported.id} -> {run.id} ({run.status})", highlight=False, soft_wrap=True)
            items = export.items_of(exported.id)
            found = list(server.items(run)) if items else []
            criteria = compare(created.testing_criteria, before=items, after=found)
            runs.append(ImportedRun(exported=exported, run=run, criteria=criteria))
        imported.append(ImportedEval(exported=definition, created=created, runs=runs, without_rows=without_rows))
    return imported


def definition_of(exported: EvalDefinition, *, models: Mapping[str, str]) -> dict[str, Any]:
    """Return the request that creates an exported eval. Rows that were records of OpenAI become rows with any fields.

    Args:
        exported: The eval.
        models: Name of a grader's model -> its new name.
    """
    is_custom = exported.data_source_config.get("type", "custom") == "custom"
    return {
        "name": (exported.name or "")[:MAX_NAME],
        "data_source_config": {
            "type": "custom",
            "item_schema": exported.item_schema if is_custom else {"type": "object"},
            "include_sample_schema": exported.has_samples,
        },
        "testing_criteria": [_renamed(criterion, models=models) for criterion in exported.testing_criteria],
        "metadata": exported.metadata or {},
    }


def _renamed(grader: Mapping[str, Any], *, models: Mapping[str, str]) -> dict[str, Any]:
    """Return a grader with new names of its models. Fields without a value are left out."""
    found = {name: value for name, value in grader.items() if value is not None}
    if isinstance(found.get("model"), str):
        found["model"] = models.get(found["model"], found["model"])
    parts = found.get("graders")
    if isinstance(parts, dict) and "type" not in parts:
        found["graders"] = {name: _renamed(part, models=models) for name, part in parts.items()}
    elif isinstance(parts, dict):
        found["graders"] = _renamed(parts, models=models)
    return found


def _start(
    server: EvalsServer, created: EvalDefinition, exported: EvalRun, *, rows: Sequence[Mapping[str, Any]]
) -> EvalRun:
    file_id = server.upload(rows_as_file(rows), name=f"{exported.id}.jsonl")
    source = {"type": "jsonl", "source": {"type": "file_id", "id": file_id}}
    metadata = exported.metadata or {}
    return server.start(
        created.id, {"name": (exported.name or "")[:MAX_NAME], "data_source": source, "metadata": metadata}
    )


def compare(
    criteria: Sequence[Mapping[str, Any]], *, before: Sequence[OutputItem], after: Sequence[OutputItem]
) -> list[CriterionAgreement]:
    """Compare the results of two runs over the same rows, criterion by criterion.

    Results are matched by their position, because exports add ids to the names of criteria. A row without a result for each
    criterion is left out.

    Args:
        criteria: The criteria of the eval.
        before: Rows of the first run, in order.
        after: Rows of the second run, in order.
    """
    agreements = [CriterionAgreement(name=str(each.get("name")), type=str(each.get("type"))) for each in criteria]
    for old, new in zip(before, after, strict=False):
        if len(old.results) != len(agreements) or len(new.results) != len(agreements):
            continue
        for agreement, earlier, now in zip(agreements, old.results, new.results, strict=True):
            agreement.num_errors += bool(now.get("error"))
            if bool(earlier.get("passed")) == bool(now.get("passed")):
                agreement.num_equal += 1
            else:
                agreement.different.append(new.datasource_item_id)
    return agreements
