"""Plan a run: convert each example of a benchmark to requests, each with the key of its answer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from tirjudge.http.protocol import problem_of
from tirjudge.types import AttachedStore, JudgeRequest, Mode
from tirjudge_harness.benchmark import Benchmark
from tirjudge_harness.downloads.snapshot import find_snapshot
from tirjudge_harness.examples import Example
from tirjudge_harness.items import InputError, as_input_error
from tirjudge_harness.judges import OpenJudge
from tirjudge_harness.local_documents import LocalDocuments, read_documents
from tirjudge_harness.own_data.mapping import ColumnMapping
from tirjudge_harness.protocols import PAPER, Protocol
from tirjudge_harness.row_sampling import Shard, sample
from tirjudge_harness.run import (
    AskedComparison,
    DataManifest,
    JudgeManifest,
    PlannedExample,
    RunManifest,
    mode_of_example,
    sha256_of,
)
from tirjudge_harness.runner import key_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Settings of a benchmark run."""

    mode: Mode | None = None
    """Judging mode. None: the first mode of the benchmark."""
    protocol: Protocol = PAPER
    """Determines orders, votes and scoring."""
    tools: Literal["auto", "on", "off"] = "auto"
    max_tool_calls: int = 3
    require: Literal["checked"] | None = None
    """Requirement on verdicts, as in a `JudgeRequest`."""
    min_confidence: float | None = None
    """Minimum confidence of verdicts, as in a `JudgeRequest`."""
    force_verdict: bool = True
    """Whether to force verdicts, as in a `JudgeRequest`."""
    seed: int = 0
    parts: tuple[str, ...] = ()
    """Parts to judge. Empty: the default parts of the benchmark."""
    data: Path | None = None
    """File or folder with the rows. None: the Hugging Face hub."""
    documents: Path | None = None
    """Folder of documents that come with each request. None: no documents."""
    limit: int | None = None
    """Number of examples to sample. None: all examples."""
    shard: Shard | None = None
    """Shard to judge. None: all shards."""
    attack: str | None = None
    """Name of the attack that was applied to the responses. None: no attack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """All requests of a run."""

    manifest: RunManifest
    planned: list[PlannedExample]
    requests: dict[str, JudgeRequest]
    """Requests by key. Identical requests have the same key."""


def plan_run(
    benchmark: Benchmark,
    examples: Sequence[Example],
    *,
    opened: OpenJudge,
    settings: RunSettings,
    num_bad_rows: int = 0,
    columns: ColumnMapping | None = None,
    num_unlabeled: int = 0,
) -> RunPlan:
    """Return the requests for the examples.

    Args:
        benchmark: determines comparisons and the default mode.
        examples: all examples, before sampling and sharding.
        opened: the judge, whose identity is part of each key.
        settings: how to judge.
        num_bad_rows: number of skipped rows, for the manifest.
        columns: the meaning of the columns of a user's file, for the manifest. None: rows of a benchmark.
        num_unlabeled: number of rows without a label, a right or a wrong response, for the manifest.

    Raises:
        InputError: the benchmark does not have the mode, two examples have the same id, or an example makes an invalid
            request.
    """
    run_mode = settings.mode or benchmark.default_mode
    _check(benchmark, examples, mode=run_mode)
    _check_functions(benchmark, examples, opened=opened)
    orders, _ = benchmark.rule(settings.protocol, mode=run_mode)
    chosen = list(examples)
    if settings.limit is not None:
        chosen = sample(examples, size=settings.limit, seed=settings.seed)
    documents = None if settings.documents is None else read_documents(settings.documents)
    planned: list[PlannedExample] = []
    requests: dict[str, JudgeRequest] = {}
    for place, example in enumerate(chosen):
        if settings.shard is None or settings.shard.holds(example.outline):
            mode = mode_of_example(example.outline, run_mode=run_mode)
            evidence = example.evidence
            if documents is not None and (store := documents.of(example.outline.id)) is not None:
                evidence = (*evidence, store)
            asked: list[AskedComparison] = []
            for responses in benchmark.asked(example.outline, mode=mode):
                request = _request(
                    example, responses, evidence=evidence, mode=mode, orders=orders, settings=settings, opened=opened
                )
                key = key_of(request, identity=opened.identity)
                requests[key] = request
                asked.append(AskedComparison(responses=responses, key=key))
            content = None if columns is None else sha256_of([example])
            planned.append(PlannedExample(place=place, outline=example.outline, asked=tuple(asked), content=content))
    manifest = RunManifest(
        benchmark=benchmark.name,
        parts=settings.parts,
        mode=run_mode,
        protocol=settings.protocol.name,
        orders=orders,
        votes=settings.protocol.votes,
        tools=settings.tools,
        max_tool_calls=settings.max_tool_calls,
        require=settings.require,
        min_confidence=settings.min_confidence,
        force_verdict=settings.force_verdict,
        sampling=opened.sampling,
        seed=settings.seed,
        judge=JudgeManifest.of(opened),
        data=_data(benchmark, chosen, settings=settings, documents=documents).model_copy(
            update={"num_bad_rows": num_bad_rows, "columns": columns, "num_unlabeled": num_unlabeled}
        ),
        shard=None if settings.shard is None else str(settings.shard),
        attack=settings.attack,
        version=version("tirjudge"),
        created=int(time.time()),
    )
    return RunPlan(manifest=manifest, planned=planned, requests=requests)


def _check(benchmark: Benchmark, examples: Sequence[Example], *, mode: Mode | None) -> None:
    """Raise InputError if the benchmark does not have the mode, or two examples have the same id."""
    with as_input_error():
        benchmark.check_mode(mode, option="--mode")
    (repeated, num), *_ = Counter(example.outline.id for example in examples).most_common(1) or [("", 0)]
    if num > 1:
        raise InputError(f"{benchmark.name}: two examples have the same id, {repeated!r}")


def _check_functions(benchmark: Benchmark, examples: Sequence[Example], *, opened: OpenJudge) -> None:
    """Raise InputError if an example names a function that the judge does not offer."""
    wanted = {name for example in examples for name in example.functions or ()}
    missing = sorted(wanted - set(opened.functions))
    if missing:
        raise InputError(
            f"{benchmark.name}: the judge does not offer the functions {', '.join(missing)}; give --tool NAME, such as "
            "--tool evidence, or start the server with it"
        )


def _data(
    benchmark: Benchmark,
    chosen: Sequence[Example],
    *,
    settings: RunSettings,
    documents: LocalDocuments | None,
) -> DataManifest:
    """Return the description of the examples for the manifest."""
    return DataManifest(
        path=None if settings.data is None else str(settings.data),
        sources=_revisions(benchmark, data=settings.data, parts=settings.parts or benchmark.default_parts),
        limit=settings.limit,
        sha256=sha256_of(chosen),
        num_examples=len(chosen),
        documents_sha256=None if documents is None else documents.sha256,
    )


def _revisions(benchmark: Benchmark, *, data: Path | None, parts: Sequence[str]) -> dict[str, str]:
    """Return id@revision of each part on the hub or in a downloaded folder. Empty: other files."""
    if data is None:
        return {part: f"{benchmark.sources[part].id}@{benchmark.sources[part].revision}" for part in parts}
    snapshot = find_snapshot(data, benchmark=benchmark.name)
    downloaded = {} if snapshot is None else snapshot.manifest.parts
    return {part: f"{downloaded[part].source}@{downloaded[part].revision}" for part in parts if part in downloaded}


def _request(
    example: Example,
    responses: tuple[int, ...],
    *,
    evidence: Sequence[AttachedStore],
    mode: Mode,
    orders: Literal["single", "both"],
    settings: RunSettings,
    opened: OpenJudge,
) -> JudgeRequest:
    try:
        return JudgeRequest(
            mode=mode,
            prompt=example.prompt if isinstance(example.prompt, str) else list(example.prompt),
            responses=[example.responses[index] for index in responses],
            reference=example.reference,
            evidence=list(evidence) or None,
            functions=None if example.functions is None else list(example.functions),
            tools=settings.tools,
            # A single response has no order. The key must not depend on the protocol.
            orders="single" if mode is Mode.POINTWISE else orders,
            votes=settings.protocol.votes,
            max_tool_calls=settings.max_tool_calls,
            require=settings.require,
            min_confidence=settings.min_confidence,
            force_verdict=settings.force_verdict,
            temperature=None if opened.sampling is None else opened.sampling.temperature,
            seed=settings.seed,
        )
    except ValidationError as error:
        raise InputError(f"{example.outline.id}: {problem_of(error).message}") from error
