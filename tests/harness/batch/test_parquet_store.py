from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tirjudge.durable import UNFINISHED, StorageError
from tirjudge.errors import EngineUnavailable
from tirjudge_harness.batch import parquet_store
from tirjudge_harness.batch.parquet_store import ParquetStore
from tirjudge_harness.batch.results import SCHEMA, table_of
from tirjudge_harness.items import InputError
from tirjudge_harness.run_store import RunStopped


def result(number: int, **fields: Any) -> dict[str, Any]:
    return {"key": f"k{number}", "digest": f"{number:064}", "file": "in.jsonl", "row": number + 1} | fields


def keys_in(path: Path) -> list[str]:
    return pq.read_table(path / "results", columns=["key"])["key"].to_pylist()


def test_results_are_loaded_by_the_next_run(tmp_path: Path) -> None:
    for numbers in ((0, 1), (2,)):
        with ParquetStore(tmp_path) as folder:
            assert all(folder.keep(result(number)) for number in numbers)
    with ParquetStore(tmp_path) as folder:
        assert folder.digests == {f"k{n}": f"{n:064}" for n in range(3)}
        assert folder.find("k1") == f"{1:064}"
        assert folder.find("k9") is None
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == [
        "part-000001.parquet",
        "part-000002.parquet",
    ]


def test_a_key_has_one_result(tmp_path: Path) -> None:
    with ParquetStore(tmp_path) as folder:
        assert folder.keep(result(0, label="A"))
        assert not folder.keep(result(0, label="B"))
    with ParquetStore(tmp_path) as folder:
        assert not folder.keep(result(0, label="C"))
    table = pq.read_table(tmp_path / "results")
    assert table["label"].to_pylist() == ["A"]
    assert table.schema.equals(SCHEMA)


def test_temporary_failures_are_retried_and_refusals_are_results(tmp_path: Path) -> None:
    with ParquetStore(tmp_path) as folder:
        folder.create_or_resume({"judge": "a"})
        folder.keep(result(0, error_kind="unavailable", error="EngineUnavailable: gone"))
        folder.keep(result(1, error_kind="refused", error="PromptTooLong: 9"))
        assert folder.find("k0") == f"{0:064}", "this run has tried it"
    assert keys_in(tmp_path) == ["k1"]
    assert [json.loads(line)["key"] for line in (tmp_path / "failed.jsonl").read_text().splitlines()] == ["k0"]
    with pytest.raises(EngineUnavailable), ParquetStore(tmp_path):
        raise EngineUnavailable("it cannot be opened")
    assert (tmp_path / "failed.jsonl").exists(), "the run tried nothing"
    with ParquetStore(tmp_path) as folder:
        folder.create_or_resume({"judge": "a"})
        assert folder.find("k0") is None
        folder.keep(result(0))
    assert sorted(keys_in(tmp_path)) == ["k0", "k1"]
    assert not (tmp_path / "failed.jsonl").exists()


async def test_old_results_are_written_without_new_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_store, "PART_S", 0.03)
    with ParquetStore(tmp_path) as folder:
        writing = asyncio.create_task(folder.write_in_time())
        folder.keep(result(0))
        async with asyncio.timeout(20):
            while not list((tmp_path / "results").glob("part-*")):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert keys_in(tmp_path) == ["k0"]
        writing.cancel()


def test_a_part_is_written_when_it_is_full_or_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_store, "PART_ROWS", 3)
    now = 0.0
    with ParquetStore(tmp_path, clock=lambda: now) as folder:
        for number in range(4):
            folder.keep(result(number))
        assert keys_in(tmp_path) == ["k0", "k1", "k2"]
        now = parquet_store.PART_S
        folder.keep(result(4))
        assert keys_in(tmp_path) == ["k0", "k1", "k2", "k3", "k4"]


def test_an_unfinished_part_is_ignored_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ParquetStore(tmp_path) as folder:
        folder.keep(result(0))
    half = tmp_path / "results" / f"{UNFINISHED}part-000002.parquet"
    half.write_bytes((tmp_path / "results" / "part-000001.parquet").read_bytes()[:100])
    assert keys_in(tmp_path) == ["k0"], "readers ignore it"
    with ParquetStore(tmp_path) as folder:
        assert set(folder.digests) == {"k0"}
    assert not half.exists()


def test_a_full_disk_stops_the_run_and_keeps_written_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ParquetStore(tmp_path) as folder:
        folder.keep(result(0))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with ParquetStore(tmp_path) as folder:
        folder.keep(result(1))
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            with pytest.raises(RunStopped, match="No space left on device"):
                folder.write()
        assert keys_in(tmp_path) == ["k0"]
    assert sorted(keys_in(tmp_path)) == ["k0", "k1"], "pending results are written when there is space"


def test_two_processes_cannot_open_one_folder(tmp_path: Path) -> None:
    with ParquetStore(tmp_path), pytest.raises(StorageError, match="another process writes it"):
        ParquetStore(tmp_path)
    with ParquetStore(tmp_path):
        pass


def test_a_run_of_an_earlier_version_is_resumed(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "run.json").write_text(json.dumps({"judge": {"model": "a", "fingerprint": None}}, indent=2) + "\n")
    pq.write_table(table_of([result(0)]), tmp_path / "results" / "part-000004.parquet")
    with ParquetStore(tmp_path) as folder:
        folder.create_or_resume({"model": "a", "fingerprint": None})
        assert not folder.keep(result(0))
        assert folder.keep(result(1))
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == [
        "part-000004.parquet",
        "part-000005.parquet",
    ]


def test_a_different_judge_is_rejected(tmp_path: Path) -> None:
    with ParquetStore(tmp_path) as folder:
        folder.create_or_resume({"model": "a", "fingerprint": "1"})
    with ParquetStore(tmp_path) as folder:
        folder.create_or_resume({"model": "a", "fingerprint": "1"})
        with pytest.raises(StorageError, match='fingerprint was "1" and is now "2"'):
            folder.create_or_resume({"model": "a", "fingerprint": "2"})


def test_a_damaged_part_is_reported_by_name(tmp_path: Path) -> None:
    with ParquetStore(tmp_path) as folder:
        folder.keep(result(0))
    part = tmp_path / "results" / "part-000001.parquet"
    part.write_bytes(b"no")
    with pytest.raises(InputError, match=r"part-000001\.parquet: not a result file of a batch"):
        ParquetStore(tmp_path)
