"""Scan the input of a batch before judging, to find the rows to judge and the invalid rows.

Only keys are kept in memory, about 400 bytes per row. Rows are read again when they are judged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tirjudge_harness.batch.inputs import BadRequestRow, RequestRow, RowRange, row_ranges_of, rows_in
from tirjudge_harness.items import InputError

Find = Callable[[str], str | None]
"""Returns the request digest of the existing result with a key; None if the key has no result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A row range of the input with the rows that remain to be judged."""

    row_range: RowRange
    skipped: frozenset[int]
    """Numbers of the rows that are not judged."""
    num_rows: int
    """Number of rows to judge."""

    def rows(self) -> Iterator[RequestRow]:
        """Yield the rows to judge."""
        for row in rows_in(self.row_range):
            if isinstance(row, RequestRow) and row.number not in self.skipped:
                yield row


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """The work of a run."""

    pieces: tuple[Piece, ...]
    """Row ranges with rows to judge."""
    bad: tuple[BadRequestRow, ...]
    """Invalid rows."""
    num_rows: int
    """Rows of the input, without blank lines."""
    num_keys: int
    """Number of different keys of valid rows."""
    num_repeated: int
    """Rows with the key and the request of an earlier row."""
    num_left: int
    """Keys without a result."""
    offers_tools: bool
    """Whether any remaining request can run programs."""


class PlanBuilder:
    """Builds a plan from row ranges.

    Args:
        find: finds existing results.
        limit: maximum number of keys, including keys with results. None: no limit.
    """

    def __init__(self, *, find: Find, limit: int | None = None) -> None:
        self._find = find
        self._limit = limit
        self._digests: dict[bytes, bytes] = {}
        self._bad: list[BadRequestRow] = []
        self._pieces: list[Piece] = []
        self._num_rows = self._num_repeated = self._num_left = 0
        self._offers_tools = False

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached."""
        return self._limit is not None and len(self._digests) >= self._limit

    def add(self, row_range: RowRange) -> None:
        """Add the rows of a row range.

        Raises:
            InputError: the file cannot be read.
        """
        skipped: set[int] = set()
        num_before = self._num_left
        for row in rows_in(row_range):
            if self.is_full:
                skipped.update(range(row.number, row_range.end))
                break
            self._num_rows += 1
            if not self._is_left(row):
                skipped.add(row.number)
        if num_rows := self._num_left - num_before:
            self._pieces.append(Piece(row_range=row_range, skipped=frozenset(skipped), num_rows=num_rows))

    def plan(self) -> BatchPlan:
        """Return the plan for the rows added so far."""
        return BatchPlan(
            pieces=tuple(self._pieces),
            bad=tuple(self._bad),
            num_rows=self._num_rows,
            num_keys=len(self._digests),
            num_repeated=self._num_repeated,
            num_left=self._num_left,
            offers_tools=self._offers_tools,
        )

    def _is_left(self, row: RequestRow | BadRequestRow) -> bool:
        """Whether a row remains to be judged."""
        if isinstance(row, BadRequestRow):
            self._bad.append(row)
            return False
        key, digest = _short(row.key), _short(row.digest)
        if (earlier := self._digests.get(key)) is not None:
            if earlier == digest:
                self._num_repeated += 1
            else:
                self._reject(row, "an earlier row has the same key but a different request")
            return False
        if (judged := self._find(row.key)) is not None and judged != row.digest:
            self._reject(row, "the output has a result with the same key for a different request")
            return False
        self._digests[key] = digest
        if judged is not None:
            return False
        self._num_left += 1
        self._offers_tools |= row.request.offers_tools
        return True

    def _reject(self, row: RequestRow, why: str) -> None:
        problem = f"key {row.key!r} is not unique: {why}"
        self._bad.append(BadRequestRow(file=row.file, number=row.number, problem=problem))


def plan_batch(
    files: Sequence[str],
    *,
    find: Find,
    limit: int | None = None,
    on_range: Callable[[RowRange], None] = lambda row_range: None,
) -> BatchPlan:
    """Return the plan for input files.

    Args:
        files: the input files.
        find: finds existing results.
        limit: maximum number of keys, including keys with results. None: no limit.
        on_range: called with each row range after it was read.

    Raises:
        InputError: a file cannot be read, or the files have no rows.
    """
    builder = PlanBuilder(find=find, limit=limit)
    for file in files:
        for row_range in row_ranges_of(file):
            if builder.is_full:
                break
            builder.add(row_range)
            on_range(row_range)
    plan = builder.plan()
    if not plan.num_rows:
        raise InputError(f"{', '.join(files)}: no rows found")
    return plan


def _short(text: str) -> bytes:
    """Return a 16-byte hash, which saves memory compared with the text."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
