"""The output folder of a batch. Each key has one result, also after the run was killed several times.

    run.json                     identity of the judge; a run with a different judge is rejected
    results/part-000001.parquet  results; each part is written atomically, and each key is in one part
    failed.jsonl                 failures of the most recent run, which the next run retries
    bad.jsonl                    invalid rows of the input

Files are written under a temporary name, which Parquet readers ignore, and then renamed.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from tirjudge.durable import lock_folder, make_private_folder, remove_unfinished
from tirjudge_harness.batch.inputs import BadRequestRow
from tirjudge_harness.batch.results import SCHEMA, ErrorKind, Result, table_of
from tirjudge_harness.items import InputError
from tirjudge_harness.run_store import StoredModel, resume, write_output

PART_ROWS = 10_000
"""Maximum number of results in a part."""

PART_S = 30.0
"""Maximum time in seconds until a result is written. A killed run loses unwritten results."""


class BatchManifest(StoredModel):
    """Content of `run.json`."""

    judge: dict[str, Any]
    """Identity of the judge."""


class ParquetStore:
    """A run store for millions of results in Parquet files, as a context manager. Only one process can open the folder.

    Args:
        path: output folder, which is created if it does not exist.
        clock: returns the time in seconds.

    Attributes:
        digests: key -> digest of the request, for keys with a result.
        num_new: number of results added since the store was opened.
        failures: failures of this run by key.

    Raises:
        InputError: the folder is damaged, or cannot be written.
        StorageError: another process has opened the folder.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = monotonic) -> None:
        self.path = path
        self.digests: dict[str, str] = {}
        self.failures: dict[str, Result] = {}
        self.num_new = 0
        self._clock = clock
        self._pending: list[Result] = []
        self._pending_since = 0.0
        self._is_identified = False
        try:
            make_private_folder(self._results)
            self._lock = lock_folder(path)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}; choose a writable folder") from error
        try:
            self._load()
        except BaseException:
            os.close(self._lock)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.write()
            if self._is_identified:
                self._write_lines("failed.jsonl", self.failures.values())
        finally:
            os.close(self._lock)

    @property
    def num_settled(self) -> int:
        """Number of keys with a result or a failure in this run."""
        return len(self.digests) + len(self.failures)

    def find(self, key: str) -> str | None:
        """Return the digest of the request with this key if it has a result, or failed in this run; None otherwise."""
        if key in self.digests:
            return self.digests[key]
        failure = self.failures.get(key)
        return None if failure is None else failure["digest"]

    def create_or_resume(self, identity: Mapping[str, Any]) -> None:
        """Create or resume the run of a judge.

        Raises:
            StorageError: the folder holds results of a different judge.
            InputError: `run.json` is damaged.
        """
        file, here = self.path / "run.json", BatchManifest(judge=dict(identity))
        if resume(file, here, compared=lambda manifest: manifest.judge) is None:
            write_output(file, here.model_dump_json(indent=2) + "\n")
        self._is_identified = True

    def keep(self, result: Result) -> bool:
        """Add a result, which is written within `PART_S`. Return False if the key already has a result or a failure.

        Raises:
            RunStopped: writing failed.
        """
        key, kind = result["key"], result.get("error_kind")
        if key in self.digests or key in self.failures:
            return False
        if kind is not None and ErrorKind(kind).may_pass:
            self.failures[key] = result
            return True
        if not self._pending:
            self._pending_since = self._clock()
        self.digests[key] = result["digest"]
        self._pending.append(result)
        self.num_new += 1
        if len(self._pending) >= PART_ROWS or self._clock() - self._pending_since >= PART_S:
            self.write()
        return True

    async def write_in_time(self) -> None:
        """Write results that are older than `PART_S`, until cancelled. This is needed while no new results
        arrive.

        Raises:
            RunStopped: the disk is full.
        """
        while True:
            await asyncio.sleep(PART_S / 3)
            if self._pending and self._clock() - self._pending_since >= PART_S:
                self.write()

    def write(self) -> None:
        """Write all pending results as a new part.

        Raises:
            RunStopped: the disk is full.
        """
        if not self._pending:
            return
        sink = pa.BufferOutputStream()
        pq.write_table(table_of(self._pending), sink, compression="zstd")
        write_output(self._results / f"part-{self._next_part:06}.parquet", memoryview(sink.getvalue()))
        self._next_part += 1
        self._pending = []

    def write_bad(self, rows: Sequence[BadRequestRow]) -> None:
        """Write the invalid rows to `bad.jsonl`.

        Raises:
            RunStopped: the disk is full.
        """
        self._write_lines("bad.jsonl", [{"file": r.file, "row": r.number, "problem": r.problem} for r in rows])

    def columns(self, *names: str) -> pa.Table:
        """Return columns of all written results."""
        return ds.dataset(self._results, schema=SCHEMA, format="parquet").to_table(columns=list(names))

    @property
    def _results(self) -> Path:
        return self.path / "results"

    def _load(self) -> None:
        """Load the keys of existing results, and remove unfinished files."""
        remove_unfinished(self.path)
        remove_unfinished(self._results)
        parts = sorted(self._results.glob("part-*.parquet"))
        self._next_part = 1 + max((int(part.stem.removeprefix("part-")) for part in parts), default=0)
        for part in parts:
            try:
                table = pq.read_table(part, columns=["key", "digest"])
            except (pa.ArrowException, OSError) as error:
                raise InputError(
                    f"{part}: not a result file of a batch: {error}; choose another --out, or delete the file"
                ) from error
            self.digests.update(zip(table["key"].to_pylist(), table["digest"].to_pylist(), strict=True))

    def _write_lines(self, name: str, lines: Iterable[Mapping[str, Any]]) -> None:
        """Write a file of JSON lines, or delete it if `lines` is empty."""
        if content := b"".join(json.dumps(line).encode() + b"\n" for line in lines):
            write_output(self.path / name, content)
        else:
            (self.path / name).unlink(missing_ok=True)
