"""The output of a batch: a folder, in which every key has one result, however often the run was killed.

    run.json                     who judged; another judge is refused
    results/part-000001.parquet  results; a part is whole or not there, and no key is in two of them
    failed.jsonl                 what the last run failed at and the next tries again
    bad.jsonl                    rows of the input that are no requests

Files are written under another name, which readers of Parquet leave alone, and then renamed.
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
"""Most results of a part."""

PART_S = 30.0
"""Results wait no longer than this to be written; a run that is killed loses them."""


class BatchManifest(StoredModel):
    """What `run.json` holds."""

    judge: dict[str, Any]
    """What tells the judge from others."""


class ParquetStore:
    """A run store whose lines are rows of Parquet, for millions of results; use it as `with`. One process at a time may.

    Args:
        path: made if it does not exist.
        clock: tells the time, in seconds.

    Attributes:
        digests: of the requests that have a result, by key.
        num_new: results that were added since it was opened.
        failures: what this run failed at, by key.

    Raises:
        InputError: it is damaged, or cannot be written.
        StorageError: another process writes it.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = monotonic) -> None:
        self.path = path
        self.digests: dict[str, str] = {}
        self.failures: dict[str, Result] = {}
        self.num_new = 0
        self._clock = clock
        self._waiting: list[Result] = []
        self._waiting_since = 0.0
        self._is_identified = False
        try:
            make_private_folder(self._results)
            self._lock = lock_folder(path)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}; a folder that can be written is needed") from error
        try:
            self._take_up()
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
        """Keys that need no judging any more in this run."""
        return len(self.digests) + len(self.failures)

    def find(self, key: str) -> str | None:
        """The digest of the request that needs no judging any more in this run: it has a result, or has failed."""
        if key in self.digests:
            return self.digests[key]
        failure = self.failures.get(key)
        return None if failure is None else failure["digest"]

    def create_or_resume(self, identity: Mapping[str, Any]) -> None:
        """Begin, or take up, the run of this judge.

        Raises:
            StorageError: another judge made what is here.
            InputError: `run.json` is damaged.
        """
        file, here = self.path / "run.json", BatchManifest(judge=dict(identity))
        if resume(file, here, compared=lambda manifest: manifest.judge) is None:
            write_output(file, here.model_dump_json(indent=2) + "\n")
        self._is_identified = True

    def keep(self, result: Result) -> bool:
        """Add a result, to be written soon; False: the key has one, and this one is dropped.

        Raises:
            RunStopped: it cannot be written.
        """
        key, kind = result["key"], result.get("error_kind")
        if key in self.digests or key in self.failures:
            return False
        if kind is not None and ErrorKind(kind).may_pass:
            self.failures[key] = result
            return True
        if not self._waiting:
            self._waiting_since = self._clock()
        self.digests[key] = result["digest"]
        self._waiting.append(result)
        self.num_new += 1
        if len(self._waiting) >= PART_ROWS or self._clock() - self._waiting_since >= PART_S:
            self.write()
        return True

    async def write_in_time(self) -> None:
        """Make a part of what has waited long enough, also while nothing new comes, until cancelled.

        Raises:
            RunStopped: the disk is full, or fails.
        """
        while True:
            await asyncio.sleep(PART_S / 3)
            if self._waiting and self._clock() - self._waiting_since >= PART_S:
                self.write()

    def write(self) -> None:
        """Make a part of what waits.

        Raises:
            RunStopped: the disk is full, or fails.
        """
        if not self._waiting:
            return
        sink = pa.BufferOutputStream()
        pq.write_table(table_of(self._waiting), sink, compression="zstd")
        write_output(self._results / f"part-{self._next_part:06}.parquet", memoryview(sink.getvalue()))
        self._next_part += 1
        self._waiting = []

    def write_bad(self, rows: Sequence[BadRequestRow]) -> None:
        """Put down the rows that cannot be judged.

        Raises:
            RunStopped: the disk is full, or fails.
        """
        self._write_lines("bad.jsonl", [{"file": r.file, "row": r.number, "problem": r.problem} for r in rows])

    def columns(self, *names: str) -> pa.Table:
        """These columns of all results that are written."""
        return ds.dataset(self._results, schema=SCHEMA, format="parquet").to_table(columns=list(names))

    @property
    def _results(self) -> Path:
        return self.path / "results"

    def _take_up(self) -> None:
        """Go on from what the folder has."""
        remove_unfinished(self.path)
        remove_unfinished(self._results)
        parts = sorted(self._results.glob("part-*.parquet"))
        self._next_part = 1 + max((int(part.stem.removeprefix("part-")) for part in parts), default=0)
        for part in parts:
            try:
                table = pq.read_table(part, columns=["key", "digest"])
            except (pa.ArrowException, OSError) as error:
                raise InputError(f"{part}: no part of a batch: {error}; give another --out, or remove it") from error
            self.digests.update(zip(table["key"].to_pylist(), table["digest"].to_pylist(), strict=True))

    def _write_lines(self, name: str, lines: Iterable[Mapping[str, Any]]) -> None:
        """Replace a file of lines; one without any is none."""
        if content := b"".join(json.dumps(line).encode() + b"\n" for line in lines):
            write_output(self.path / name, content)
        else:
            (self.path / name).unlink(missing_ok=True)
