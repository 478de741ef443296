"""One pass over the input of a batch: what is left to judge, and every row that cannot be.

Only keys are held in memory, some 400 bytes a row; what is judged is read again, stretch by stretch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tirjudge_harness.batch.inputs import BadRequestRow, RequestRow, Stretch, rows_in, stretches_of
from tirjudge_harness.items import InputError

Find = Callable[[str], str | None]
"""The digest of the request whose result there is already under a key; None: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stretch of the input, and what of it is left to judge."""

    stretch: Stretch
    skipped: frozenset[int]
    """Numbers of the rows that are not."""
    num_rows: int
    """How many are."""

    def rows(self) -> Iterator[RequestRow]:
        """These rows."""
        for row in rows_in(self.stretch):
            if isinstance(row, RequestRow) and row.number not in self.skipped:
                yield row


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """What there is to do."""

    pieces: tuple[Piece, ...]
    bad: tuple[BadRequestRow, ...]
    num_rows: int
    """Rows of the input, without blank lines."""
    num_keys: int
    """Different ones among the rows that can be judged."""
    num_repeated: int
    """Rows that ask the same as an earlier one, under the same key."""
    num_left: int
    """Keys without a result."""
    offers_tools: bool
    """Whether any of what is left may run programs."""


class Planning:
    """The plan as it grows, row by row.

    Args:
        find: knows the results that there are.
        limit: plan no more than so many keys, with those that have results; None: all.
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
        return self._limit is not None and len(self._digests) >= self._limit

    def add(self, stretch: Stretch) -> None:
        """Read a stretch.

        Raises:
            InputError: its file cannot be read.
        """
        skipped: set[int] = set()
        num_before = self._num_left
        for row in rows_in(stretch):
            if self.is_full:
                skipped.update(range(row.number, stretch.end))
                break
            self._num_rows += 1
            if not self._is_left(row):
                skipped.add(row.number)
        if num_rows := self._num_left - num_before:
            self._pieces.append(Piece(stretch=stretch, skipped=frozenset(skipped), num_rows=num_rows))

    def plan(self) -> BatchPlan:
        """What was found so far."""
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
        """Whether a row is to be judged."""
        if isinstance(row, BadRequestRow):
            self._bad.append(row)
            return False
        key, digest = _short(row.key), _short(row.digest)
        if (earlier := self._digests.get(key)) is not None:
            if earlier == digest:
                self._num_repeated += 1
            else:
                self._refuse(row, "an earlier row has it with another request")
            return False
        if (judged := self._find(row.key)) is not None and judged != row.digest:
            self._refuse(row, "the output has a result for another request under it")
            return False
        self._digests[key] = digest
        if judged is not None:
            return False
        self._num_left += 1
        self._offers_tools |= row.request.offers_tools
        return True

    def _refuse(self, row: RequestRow, why: str) -> None:
        problem = f"key: {row.key!r} given, and {why}; another key would do"
        self._bad.append(BadRequestRow(file=row.file, number=row.number, problem=problem))


def plan_batch(
    files: Sequence[str],
    *,
    find: Find,
    limit: int | None = None,
    on_stretch: Callable[[Stretch], None] = lambda stretch: None,
) -> BatchPlan:
    """The plan for some files.

    Args:
        files: the input.
        find: knows the results that there are.
        limit: as of `Planning`.
        on_stretch: told of each stretch that was read.

    Raises:
        InputError: a file cannot be read, or there is no row at all.
    """
    planning = Planning(find=find, limit=limit)
    for file in files:
        for stretch in stretches_of(file):
            if planning.is_full:
                break
            planning.add(stretch)
            on_stretch(stretch)
    plan = planning.plan()
    if not plan.num_rows:
        raise InputError(f"{', '.join(files)}: there is no row in it")
    return plan


def _short(text: str) -> bytes:
    """Tells texts apart, in 16 bytes."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
