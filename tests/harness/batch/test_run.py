"""A batch in this process, with a scripted model and with executors that fail."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from tests.harness.batch.scripted_judge import LOST, open_scripted, pair
from tirjudge.durable import StorageError
from tirjudge.types import Judgment
from tirjudge_harness.batch.asking import Opening
from tirjudge_harness.batch.local import Here
from tirjudge_harness.batch.plan import Piece
from tirjudge_harness.batch.results import Result
from tirjudge_harness.batch.run import BatchExecutor, RoundEnded, run_batch
from tirjudge_harness.batch.summary import BatchSummary
from tirjudge_harness.run_store import RunStopped


class Batch:
    """Runs batches with one output folder, and captures the console."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.shown = io.StringIO()

    async def run(
        self, *inputs: Path, opening: Opening = open_scripted, judging: BatchExecutor | None = None
    ) -> BatchSummary:
        return await run_batch(
            inputs,
            out=self.out,
            opening_for=lambda offers_tools: opening,
            judging=judging or Here(concurrency=8),
            console=Console(file=self.shown, width=400),
        )

    def results(self) -> dict[str, dict[str, Any]]:
        rows = pq.read_table(self.out / "results").to_pylist()
        assert len({row["key"] for row in rows}) == len(rows)
        return {row["key"]: row for row in rows}


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    return Batch(tmp_path / "out")


async def test_every_row_has_a_result(batch: Batch, write_lines) -> None:
    summary = await batch.run(write_lines([pair(n) for n in range(50)]))
    assert (summary.num_rows, summary.num_new, summary.num_decided, summary.num_failed) == (50, 50, 50, 0)
    results = batch.results()
    assert {key: result["best"] for key, result in results.items()} == {f"k{n}": n % 2 for n in range(50)}
    first = results["k0"]
    judgment = Judgment.model_validate_json(first["judgment"])
    assert first["probabilities"] == judgment.verdict.probabilities == pytest.approx([0.9, 0.1])
    assert (first["judgment_id"], first["model"], first["row"]) == (judgment.id, "scripted", 1)
    assert (first["input_tokens"], first["output_tokens"]) == (
        judgment.usage.input_tokens,
        judgment.usage.output_tokens,
    )
    assert summary.output_tokens == sum(result["output_tokens"] for result in results.values()) > 0
    assert first["error"] is first["error_kind"] is None


async def test_judged_rows_are_not_judged_again(batch: Batch, write_lines) -> None:
    await batch.run(write_lines([pair(n) for n in range(5)]))
    before = batch.results()
    summary = await batch.run(write_lines([pair(n) for n in range(8)]))
    assert (summary.num_kept, summary.num_new, summary.num_results) == (5, 3, 8)
    assert {key: batch.results()[key] for key in before} == before
    again = await batch.run(write_lines([pair(n) for n in range(8)]))
    assert (again.num_kept, again.num_new, again.results_per_s) == (8, 0, None)


async def test_temporary_failures_are_retried_and_refusals_are_kept(batch: Batch, write_lines) -> None:
    rows = [pair(0), pair(1, prompt=LOST), pair(2, tools="auto")]
    summary = await batch.run(write_lines(rows))
    assert (summary.num_new, summary.num_failed, summary.num_refused) == (2, 1, 1)
    refused = batch.results()["k2"]
    assert refused["error_kind"] == "refused"
    assert "this judge has no tools" in refused["error"]
    assert refused["status"] is refused["judgment"] is None
    failed = json.loads((batch.out / "failed.jsonl").read_text())
    assert (failed["key"], failed["error_kind"], failed["row"]) == ("k1", "unavailable", 2)
    again = await batch.run(write_lines(rows))
    assert (again.num_kept, again.num_new, again.num_failed) == (2, 0, 1)


async def test_invalid_rows_are_reported_and_skipped(batch: Batch, write_lines) -> None:
    path = write_lines([pair(0), b"oops\n", pair(1), pair(0, prompt="another")])
    summary = await batch.run(path)
    assert (summary.num_bad, summary.num_new) == (2, 2)
    assert f"{path}, row 2: not JSON" in batch.shown.getvalue()
    bad = [json.loads(line) for line in (batch.out / "bad.jsonl").read_text().splitlines()]
    assert [(row["file"], row["row"]) for row in bad] == [(str(path), 2), (str(path), 4)]
    await batch.run(write_lines([pair(0)], name="good.jsonl"))
    assert not (batch.out / "bad.jsonl").exists()


async def test_an_unavailable_judge_stops_the_run_and_results_are_kept(batch: Batch, write_lines) -> None:
    rows = [pair(n) for n in range(20)] + [pair(n, prompt=LOST) for n in range(20, 60)]
    with pytest.raises(RunStopped, match="consecutive requests failed"):
        await batch.run(write_lines(rows))
    assert set(batch.results()) == {f"k{n}" for n in range(20)}


async def test_a_run_cannot_continue_with_a_different_judge(batch: Batch, write_lines) -> None:
    path = write_lines([pair(0)])
    await batch.run(path)
    with pytest.raises(StorageError, match='fingerprint was "scripted" and is now "other"'):
        await batch.run(path, opening=partial(open_scripted, fingerprint="other"))


class FailingExecutor:
    """An executor that returns each result twice, and fails after `num_a_round` rows."""

    def __init__(self, *, num_a_round: int) -> None:
        self.identity = {"model": "scripted", "fingerprint": "scripted"}
        self.num_a_round = num_a_round

    @asynccontextmanager
    async def opened(self, opening: Opening, *, place: str) -> AsyncIterator[FailingExecutor]:
        yield self

    async def judge(self, pieces: Sequence[Piece], *, on_result: Callable[[Result], None]) -> None:
        rows = [row for piece in pieces for row in piece.rows()]
        for row in rows[: self.num_a_round]:
            result = {"key": row.key, "digest": row.digest, "file": row.file, "row": row.number, "status": "tie"}
            for _ in range(2):
                on_result(result | {"input_tokens": 1, "output_tokens": 1})
        if len(rows) > self.num_a_round:
            raise RoundEnded("the cluster is gone")


async def test_lost_rows_are_judged_in_another_round(batch: Batch, write_lines) -> None:
    summary = await batch.run(write_lines([pair(n) for n in range(10)]), judging=FailingExecutor(num_a_round=4))
    assert (summary.num_new, summary.num_rounds, summary.num_results) == (10, 3, 10)
    assert set(batch.results()) == {f"k{n}" for n in range(10)}
    assert "Starting another round after: the cluster is gone" in batch.shown.getvalue()


async def test_a_round_without_results_stops_the_run(batch: Batch, write_lines) -> None:
    with pytest.raises(RunStopped, match="the cluster is gone"):
        await batch.run(write_lines([pair(0)]), judging=FailingExecutor(num_a_round=0))
