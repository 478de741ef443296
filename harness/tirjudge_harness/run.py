"""The folder of a run, from which it goes on and from which it is scored, texts not needed.

manifest.json    what was asked of which judge
outlines.jsonl   an example a line: its outline, and the keys of the questions about it
journal.jsonl    a judgment a line
failures.jsonl   what we failed to judge, and why
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from tirjudge.durable import parse_lines, whole_lines
from tirjudge.right import decisions_of
from tirjudge.types import Judgment, Mode
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import Example, ExampleMetadata
from tirjudge_harness.items import InputError
from tirjudge_harness.protocols import Protocol, find_protocol
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

MANIFEST = "manifest.json"
OUTLINES = "outlines.jsonl"


class JudgeManifest(StoredModel):
    """Which judge."""

    kind: str
    url: str | None = None
    """None: in the process of the run."""
    model: str
    fingerprint: str | None = None
    """None: not known; then the URL stands for the model."""


class DataManifest(StoredModel):
    """Which examples."""

    path: str | None = None
    """None: from the hub."""
    sources: dict[str, str] = Field(default_factory=dict)
    """Part -> id@revision on the hub; empty for a local file."""
    limit: int | None = None
    """Size of the sample; None: all."""
    sha256: str
    """Of what the judge is shown, over all shards."""
    num_examples: int
    """Over all shards."""
    num_bad_rows: int = 0
    """Rows that no example could be made of."""


class RunManifest(StoredModel):
    """What a run is. Two runs with the same one, but for `VARYING`, give the same judgments."""

    benchmark: str
    parts: tuple[str, ...] = ()
    """Empty: those that the benchmark counts by default."""
    mode: Mode
    protocol: str
    """By which the table at the end of the run was made; a report may use another."""
    orders: Literal["single", "both"]
    votes: int
    tools: Literal["auto", "on", "off"] = "auto"
    max_tool_calls: int = 3
    seed: int = 0
    judge: JudgeManifest
    data: DataManifest
    shard: str | None = None
    """Such as 2/4; None: all."""
    attack: str | None = None
    """What was done to the responses beforehand; None: nothing."""
    version: str
    """Of tirjudge."""
    created: int
    """Unix time, seconds."""


class AskedComparison(StoredModel):
    """A question about an example."""

    responses: tuple[int, ...]
    """Which were shown, as indexes into the example's."""
    key: str


class PlannedExample(StoredModel):
    """A line of `outlines.jsonl`."""

    place: int
    """Of the example among those of all shards."""
    outline: ExampleMetadata
    asked: tuple[AskedComparison, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkRun:
    """What a folder holds."""

    path: Path
    manifest: RunManifest
    planned: list[PlannedExample]
    outlines: list[ExampleMetadata]
    judged: list[JudgedExample]
    """Examples all of whose questions are answered. Questions that are the same share one judgment, with one `id`."""
    failures: list[Failure]
    """Questions without an answer that we failed at, the last time each."""
    num_missing: int
    """Examples that are not among `judged`."""

    @property
    def protocol(self) -> Protocol:
        return find_protocol(self.manifest.protocol)

    @property
    def examples(self) -> list[JudgedExample]:
        """All of them, in their order; those that are missing have no decisions."""
        judged = {one.outline.id: one for one in self.judged}
        mode = self.manifest.mode
        return [
            judged.get(outline.id) or JudgedExample(outline=outline, mode=mode, decisions=())
            for outline in self.outlines
        ]


def load_run(path: Path) -> BenchmarkRun:
    """What a folder holds, complete or not.

    Raises:
        InputError: it is no folder of a run, or is damaged.
    """
    manifest, planned = read_manifest(path), read_plan(path)
    judgments, failures = read_judgments(path)
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
    """What was said about an example; None while a question is open."""
    found = [judgments.get(asked.key) for asked in planned.asked]
    answers = [judgment for judgment in found if judgment is not None]
    if len(answers) < len(found):
        return None
    decisions = [
        decision
        for asked, judgment in zip(planned.asked, answers, strict=True)
        for decision in decisions_of(judgment, asked=asked.responses, needs_program=manifest.tools == "on")
    ]
    return JudgedExample(
        outline=planned.outline, mode=manifest.mode, decisions=tuple(decisions), judgments=tuple(answers)
    )


def read_manifest(path: Path) -> RunManifest:
    """The manifest in a folder.

    Raises:
        InputError: there is none, or it is damaged.
    """
    return read_stored(path / MANIFEST, model=RunManifest)


def read_plan(path: Path) -> list[PlannedExample]:
    """The examples of a run, with the keys of their questions.

    Raises:
        InputError: they are missing.
        StorageError: they are damaged.
    """
    file = path / OUTLINES
    if not file.exists():
        raise InputError(f"{path} holds no such run: it has no {OUTLINES}")
    return parse_lines(whole_lines(file), model=PlannedExample, path=file)


def create_or_resume(path: Path, *, manifest: RunManifest, planned: Sequence[PlannedExample]) -> RunManifest:
    """Begin a run in a folder, or see that the one there is the same; gives its manifest.

    Raises:
        StorageError: there is another run.
    """
    manifest = resume(path / MANIFEST, manifest, compared=compared_of) or manifest
    write_plan(path, manifest=manifest, planned=planned)
    return manifest


def write_plan(path: Path, *, manifest: RunManifest, planned: Sequence[PlannedExample]) -> None:
    """The manifest and the outlines of a run; the manifest last, so that it stands for both."""
    write_output(path / OUTLINES, jsonl(planned))
    write_output(path / MANIFEST, manifest.model_dump_json(indent=2) + "\n")


def write_run(
    path: Path, *, manifest: RunManifest, planned: Sequence[PlannedExample], judgments: Mapping[str, Judgment]
) -> None:
    """A whole run at once, from judgments that are at hand."""
    write_plan(path, manifest=manifest, planned=planned)
    write_output(path / JOURNAL, jsonl(StoredAnswer(key=key, judgment=judgment) for key, judgment in judgments.items()))


VARYING = {"created", "shard"}
"""Fields in which the shards of one run differ."""


def compared_of(manifest: RunManifest, *, but: Set[str] = frozenset({"created"})) -> dict[str, Any]:
    """What a run is. It does not matter where the data lie, nor where a model runs whose fingerprint is known."""
    judge = {"kind", "url"} if manifest.judge.fingerprint is not None else set[str]()
    data = {"path", "sources", "num_bad_rows"}
    return manifest.model_dump(mode="json", exclude={"judge": judge, "data": data} | dict.fromkeys(but, True))


def sha256_of(examples: Iterable[Example]) -> str:
    """A hash of what the judge is shown of some examples, 64 hex digits. Labels are no part of it: they can be mended."""
    digest = hashlib.sha256()
    for one in examples:
        prompt = one.prompt if isinstance(one.prompt, str) else [message.model_dump() for message in one.prompt]
        shown = [one.outline.id, prompt, one.responses, one.reference]
        digest.update(json.dumps(shown).encode() + b"\n")
    return digest.hexdigest()
