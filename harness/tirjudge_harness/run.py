"""The folder of a run. A run is resumed and scored from this folder; scoring does not need the texts of the examples.

manifest.json    the settings and the judge
outlines.jsonl   one example per line: its metadata, and the keys of its requests
journal.jsonl    one judgment per line
failures.jsonl   one failed request per line, with the error
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from tirjudge.durable import StorageError, parse_lines, whole_lines
from tirjudge.right import decisions_of
from tirjudge.types import Judgment, Mode, is_none
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import Example, ExampleMetadata
from tirjudge_harness.items import InputError
from tirjudge_harness.own_data.mapping import ColumnMapping
from tirjudge_harness.protocols import OfficialSampling, Protocol, find_protocol
from tirjudge_harness.run_store import (
    JOURNAL,
    Failure,
    StoredAnswer,
    StoredModel,
    jsonl,
    read_judgments,
    read_stored,
    resume,
    write_output,
)

if TYPE_CHECKING:
    from tirjudge_harness.judges import OpenJudge

MANIFEST = "manifest.json"
OUTLINES = "outlines.jsonl"


class JudgeManifest(StoredModel):
    """The judge of a run."""

    kind: str
    """See `OpenJudge.kind`."""
    url: str | None = None
    """URL of the judge. None: the judge runs in the process of the command."""
    model: str
    fingerprint: str | None = None
    """Hash of the model. None: unknown; the URL then identifies the model."""
    format: str | None = None
    """Name of the prompt format. None: `tirjudge/1`, the only format of older runs."""
    functions: dict[str, str] = Field(default_factory=dict, exclude_if=lambda functions: not functions)
    """Name -> version of the functions that programs may call. Empty is omitted from JSON."""
    checks: dict[str, str] = Field(default_factory=dict, exclude_if=lambda checks: not checks)
    """Name -> SHA-256 of the checks of responses. Empty is omitted from JSON."""

    @classmethod
    def of(cls, opened: OpenJudge) -> JudgeManifest:
        """Return the description of an opened judge."""
        return cls(
            kind=opened.kind,
            url=opened.url,
            model=opened.model,
            fingerprint=opened.fingerprint,
            format=opened.format,
            functions=dict(opened.functions),
            checks=dict(opened.checks),
        )


class EvalCriterion(StoredModel):
    """A testing criterion of an eval."""

    name: str
    """Unique name in the eval. It is the subset of its items."""
    type: str
    """Type of the grader, such as `string_check`."""


class EvalManifest(StoredModel):
    """The run of an eval whose results are in a run folder."""

    eval_id: str
    name: str
    """Name of the eval, or its id if it has none."""
    run_id: str
    run_name: str
    """Empty: the run has no name."""
    status: str
    """State of the run when the folder was written."""
    num_rows: int | None
    """Number of rows of the run. None: not known."""
    num_graded: int
    """Number of rows that were graded when the folder was written."""
    criteria: tuple[EvalCriterion, ...]


class DataManifest(StoredModel):
    """The examples of a run."""

    path: str | None = None
    """Local file or folder. None: the Hugging Face hub."""
    sources: dict[str, str] = Field(default_factory=dict)
    """Part -> id@revision on the hub, also of a download; empty for other files."""
    limit: int | None = None
    """Size of the sample. None: all examples."""
    sha256: str
    """Hash of the texts that the judge sees, over all shards."""
    num_examples: int
    """Number of examples in all shards."""
    num_bad_rows: int = 0
    """Number of skipped invalid rows."""
    columns: ColumnMapping | None = Field(default=None, exclude_if=is_none)
    """The meaning of the columns of a user's file. None (omitted from JSON): the rows of a benchmark."""
    num_unlabeled: int = Field(default=0, exclude_if=lambda number: not number)
    """Number of rows of a user's file without a label, a right or a wrong response, which are left out. 0 is omitted from
    JSON."""
    documents_sha256: str | None = Field(default=None, exclude_if=is_none)
    """Hash of the documents that come with the requests. None (omitted from JSON): no documents."""
    eval: EvalManifest | None = Field(default=None, exclude_if=is_none)
    """The run of an eval that was written to this folder. None (omitted from JSON): a benchmark, or a user's file."""


class RunManifest(StoredModel):
    """Settings of a run. Two runs whose manifests differ only in the `VARYING` fields make the same judgments."""

    benchmark: str
    parts: tuple[str, ...] = ()
    """Judged parts. Empty: the default parts of the benchmark."""
    mode: Mode | None
    """Judging mode. None: each example has its own mode."""
    protocol: str
    """Protocol of the table at the end of the run. A report can use a different protocol."""
    orders: Literal["single", "both"]
    votes: int
    tools: Literal["auto", "on", "off"] = "auto"
    max_tool_calls: int = 3
    require: Literal["checked"] | None = Field(default=None, exclude_if=is_none)
    """Requirement on verdicts. None (omitted from JSON): none."""
    min_confidence: float | None = Field(default=None, exclude_if=is_none)
    """Minimum confidence of verdicts. None (omitted from JSON): none."""
    force_verdict: bool = Field(default=True, exclude_if=lambda forces: forces)
    """Whether verdicts are forced from rollouts without one. True is omitted from JSON."""
    sampling: OfficialSampling | None = Field(default=None, exclude_if=is_none)
    """Sampling of the official code of the benchmark. None (omitted from JSON): that of the judge."""
    seed: int = 0
    judge: JudgeManifest
    data: DataManifest
    shard: str | None = None
    """Shard, such as 2/4. None: all examples."""
    attack: str | None = None
    """Name of the attack that was applied to the responses. None: no attack."""
    version: str
    """Version of tirjudge."""
    created: int
    """Start of the run as a Unix time in seconds."""

    @property
    def mode_name(self) -> str:
        """Name of the mode, for people."""
        return "mixed modes" if self.mode is None else self.mode.value


class AskedComparison(StoredModel):
    """One request about an example."""

    responses: tuple[int, ...]
    """Indexes of the shown responses."""
    key: str
    """Key of the request, see `runner.key_of`."""


class PlannedExample(StoredModel):
    """A line of `outlines.jsonl`."""

    place: int
    """Position of the example among the examples of all shards."""
    outline: ExampleMetadata
    asked: tuple[AskedComparison, ...]
    content: str | None = Field(default=None, exclude_if=is_none)
    """Hash of the texts that the judge sees in a row of a user's file, 64 hex digits. None (omitted from JSON): a row of a
    benchmark, or a run of an older version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkRun:
    """The contents of a run folder."""

    path: Path
    manifest: RunManifest
    planned: list[PlannedExample]
    outlines: list[ExampleMetadata]
    judged: list[JudgedExample]
    """Examples whose requests are all answered. Identical requests share one judgment with one `id`."""
    failures: list[Failure]
    """Unanswered requests that failed, with the most recent error of each."""
    num_missing: int
    """Number of examples that are not in `judged`."""

    @property
    def protocol(self) -> Protocol:
        """The protocol that the manifest names."""
        return find_protocol(self.manifest.protocol)

    @property
    def examples(self) -> list[JudgedExample]:
        """Return all examples in order. A missing example has no decisions."""
        judged = {one.outline.id: one for one in self.judged}
        mode = self.manifest.mode
        return [
            judged.get(outline.id)
            or JudgedExample(outline=outline, mode=mode_of_example(outline, run_mode=mode), decisions=())
            for outline in self.outlines
        ]


def load_run(path: Path, *, with_texts: bool = True) -> BenchmarkRun:
    """Load a run folder, complete or not.

    Args:
        path: the folder.
        with_texts: as for `read_judgments`.

    Raises:
        InputError: not a run folder, or the folder is damaged.
    """
    manifest, planned = read_manifest(path), read_plan(path)
    judgments, failures = read_judgments(path, with_texts=with_texts)
    judged = [one for plan in planned if (one := judged_of(plan, judgments, manifest=manifest)) is not None]
    keys = {asked.key for plan in planned for asked in plan.asked}
    return BenchmarkRun(
        path=path,
        manifest=manifest,
        planned=planned,
        outlines=[plan.outline for plan in planned],
        judged=judged,
        failures=[failure for failure in failures if failure.key in keys],
        num_missing=len(planned) - len(judged),
    )


def judged_of(
    planned: PlannedExample, judgments: Mapping[str, Judgment], *, manifest: RunManifest
) -> JudgedExample | None:
    """Return an example with its decisions; None while a request is unanswered."""
    found = [judgments.get(asked.key) for asked in planned.asked]
    answers = [judgment for judgment in found if judgment is not None]
    if len(answers) < len(found):
        return None
    decisions = [
        decision
        for asked, judgment in zip(planned.asked, answers, strict=True)
        for decision in decisions_of(judgment, asked=asked.responses, needs_program=manifest.tools == "on")
    ]
    mode = mode_of_example(planned.outline, run_mode=manifest.mode)
    return JudgedExample(outline=planned.outline, mode=mode, decisions=tuple(decisions), judgments=tuple(answers))


def mode_of_example(outline: ExampleMetadata, *, run_mode: Mode | None) -> Mode:
    """Return the mode in which an example is judged: the mode of the run, or the example's own if the run has none.

    Raises:
        InputError: neither names a mode.
    """
    mode = run_mode or outline.mode
    if mode is None:
        raise InputError(f"{outline.id}: neither the run nor the example names a mode; give --mode")
    return mode


def read_manifest(path: Path) -> RunManifest:
    """Read the manifest of a run folder.

    Raises:
        InputError: the manifest is missing or damaged.
    """
    return read_stored(path / MANIFEST, model=RunManifest)


def read_plan(path: Path) -> list[PlannedExample]:
    """Read the examples of a run with the keys of their requests.

    Raises:
        InputError: the file is missing.
        StorageError: the file is damaged.
    """
    file = path / OUTLINES
    if not file.exists():
        raise InputError(f"{path} is not a run folder: {OUTLINES} is missing")
    return parse_lines(whole_lines(file), model=PlannedExample, path=file)


def create_or_resume(path: Path, *, manifest: RunManifest, planned: Sequence[PlannedExample]) -> RunManifest:
    """Create a run in a folder, or check that the folder holds the same run. Return the manifest.

    Raises:
        StorageError: the folder holds another run.
    """
    if (existing := resume(path / MANIFEST, manifest, compared=_settings_of)) is not None:
        _refuse_changed_rows(path, there=existing.data, here=manifest)
        manifest = existing
    write_plan(path, manifest=manifest, planned=planned)
    return manifest


def _settings_of(manifest: RunManifest) -> dict[str, Any]:
    """Return the fields that identify a run, without those that follow from the rows."""
    settings = compared_of(manifest)
    return settings | {"data": {name: value for name, value in settings["data"].items() if name not in OF_THE_ROWS}}


def _refuse_changed_rows(path: Path, *, there: DataManifest, here: RunManifest) -> None:
    """Raise StorageError if a run with the same settings had other rows."""
    if here.data.sha256 == there.sha256:
        return
    given, earlier = here.data.path or here.benchmark, there.path or here.benchmark
    changed = "have changed" if given == earlier else f"are not those of {earlier}, with which this run began"
    counts = f"{there.num_examples} examples then, {here.data.num_examples} now"
    raise StorageError(f"{path}: the rows of {given} {changed} ({counts}); give another --out, or the rows of that run")


def write_plan(path: Path, *, manifest: RunManifest, planned: Sequence[PlannedExample]) -> None:
    """Write the manifest and the examples of a run. The manifest is written last: if it exists, both files exist."""
    write_output(path / OUTLINES, jsonl(planned))
    write_output(path / MANIFEST, manifest.model_dump_json(indent=2) + "\n")


def write_run(
    path: Path, *, manifest: RunManifest, planned: Sequence[PlannedExample], judgments: Mapping[str, Judgment]
) -> None:
    """Write a complete run folder from existing judgments."""
    write_plan(path, manifest=manifest, planned=planned)
    write_output(path / JOURNAL, jsonl(StoredAnswer(key=key, judgment=judgment) for key, judgment in judgments.items()))


VARYING = {"created", "shard"}
"""Manifest fields in which the shards of one run differ."""


OF_THE_ROWS = {"sha256", "num_examples"}
"""Fields of `data` that follow from the rows and the other settings."""


def compared_of(manifest: RunManifest, *, but: Set[str] = frozenset({"created"})) -> dict[str, Any]:
    """Return the fields that identify a run. The location of the data is excluded. The location of the judge is
    excluded if its fingerprint is known.
    """
    judge = {"kind", "url"} if manifest.judge.fingerprint is not None else set[str]()
    data = {"path", "sources", "num_bad_rows", "num_unlabeled"}
    return manifest.model_dump(mode="json", exclude={"judge": judge, "data": data} | dict.fromkeys(but, True))


def sha256_of(examples: Iterable[Example]) -> str:
    """Return a hash of the texts that the judge sees, 64 hex digits. Labels are not part of the hash, so that they
    can be corrected."""
    digest = hashlib.sha256()
    for one in examples:
        digest.update(_shown(one))
    return digest.hexdigest()


def _shown(one: Example) -> bytes:
    """Return the id of an example and the texts that the judge sees, as a line of JSON."""
    prompt = one.prompt if isinstance(one.prompt, str) else [message.model_dump() for message in one.prompt]
    shown: list[object] = [one.outline.id, prompt, one.responses, one.reference]
    if one.evidence or one.functions is not None:
        shown.append([[store.model_dump(mode="json") for store in one.evidence], one.functions])
    return json.dumps(shown).encode() + b"\n"
