"""Evals and their runs, in a database. A row and the counts of its run change in one transaction.

So after a crash each row is either graded, with its result counted, or not graded at all. Reads run in threads, and writes
share transactions (`GroupCommitWriter`).

Several servers may share a Postgres database. Then one server at a time works on a run: it holds the run and renews its
lease. Another server may take a run whose lease has expired. The former holder can then store no results any more.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from sqlalchemy import Connection, Row, Select, delete, func, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from tirjudge.errors import RecordsUnavailable
from tirjudge.http.protocol import invalid, shown
from tirjudge_server.evals.rows import EvalRow
from tirjudge_server.evals.schema import create_tables, evals, rows, runs, scores
from tirjudge_server.evals.tally import RowStatus, Tally
from tirjudge_server.openai.filestore import FileQuota
from tirjudge_server.openai.grading import ModelCall
from tirjudge_server.records.database import Database
from tirjudge_server.records.group_commit import GroupCommitWriter
from tirjudge_web.errors import Refused

RunStatus = Literal["queued", "in_progress", "completed", "canceled", "failed"]
UNFINISHED: tuple[RunStatus, ...] = ("queued", "in_progress")

MAX_EVALS = 1000
"""Maximum number of evals of one caller."""

MAX_SCORES = 200_000
"""Maximum number of results that are kept for rows with the same content. The oldest are removed at the start."""

MAX_SCORE_CHARS = 16_384
"""Maximum size of such a result."""

NUM_READ = 16
"""Number of rows that are read at a time."""

LEASE_S = 30
"""Seconds after which another server may take a run, unless its holder renews the lease."""

_ID = re.compile(r"(?:eval|evalrun)_[0-9a-f]{32}")

_DO_NOT_RETRY = {"x-should-retry": "false"}

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEval:
    """An eval."""

    id: str
    owner: str | None
    """Name of the API key that created it. None: created without a key."""
    created_at: int
    """Unix time in seconds."""
    updated_at: int
    """Unix time in seconds of the last change."""
    content: Mapping[str, Any]
    """The request that created it, with later changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A run of an eval."""

    id: str
    eval_id: str
    owner: str | None
    """As in `StoredEval`."""
    created_at: int
    """Unix time in seconds."""
    status: RunStatus
    content: Mapping[str, Any]
    """The request that created it, without rows."""
    num_rows: int | None
    """Number of rows. None: they are not copied yet."""
    tally: Tally
    error: Mapping[str, str] | None
    """Code and message of the error that ended the run. None: no error."""
    num_bytes: int
    """Size of the rows and their results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedEval:
    """An eval with its runs."""

    of: StoredEval
    num_runs: int
    latest: StoredRun | None
    """None: it has no run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRow:
    """A row of a run."""

    number: int
    """Position among the rows, from 0."""
    item: Mapping[str, Any]
    given_sample: Mapping[str, Any] | None
    """The variable `sample` that the row came with. None: none."""
    sample: Mapping[str, Any] | None
    """The sample that a model wrote. None: none."""
    status: RowStatus | None
    """None: not graded yet."""
    results: Sequence[Mapping[str, Any]]
    """One per criterion. Empty: not graded yet."""
    graded_at: int | None
    """Unix time in seconds. None: not graded yet."""


class EvalStore:
    """All evals and runs of a server, or of the servers that share a Postgres database.

    Args:
        database: The database. Missing tables are created. Its connections are closed by `close`, and opened again when they
            are needed.
        quota: Limits per owner.
        now: Returns the Unix time in seconds.

    Attributes:
        holder: Id of this server, as the holder of runs.
        on_delete: Functions that are called in a thread with the id of a run that was deleted.
    """

    def __init__(
        self,
        database: Database,
        *,
        quota: FileQuota = FileQuota(),  # noqa: B008 (it is frozen)
        now: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._quota = quota
        self._now = now
        self.holder = uuid.uuid4().hex
        self.on_delete: list[Callable[[str], None]] = []
        self._writer = GroupCommitWriter[Connection]("tirjudge-evals", transaction=self._database.writing)
        with self._database.writing() as connection:
            create_tables(connection)
            newest = connection.execute(select(func.max(scores.c.serial))).scalar() or 0
            connection.execute(delete(scores).where(scores.c.serial <= newest - MAX_SCORES))
            self._num_bytes = _sizes(connection)
        if not self.is_shared:
            self._database.close()
            weakref.finalize(self, database.close)

    @property
    def is_shared(self) -> bool:
        """Whether other servers may use the database."""
        return not self._database.is_sqlite

    async def close(self) -> None:
        """Finish pending writes, release the held runs, and close the connections."""
        if self.is_shared:
            released = update(runs).where(runs.c.holder == self.holder).values(holder=None, lease_until=None)
            with suppress(RecordsUnavailable):  # then the leases expire
                await self._writer.do(lambda connection: connection.execute(released))
        await asyncio.to_thread(self._writer.close)
        if not self.is_shared:
            self._database.close()  # otherwise the records close it

    def num_bytes_of(self, owner: str | None) -> int:
        """Return the size of the rows and results of an owner. What other servers store counts since the last `renew`."""
        return self._num_bytes.get(owner, 0)

    # Leases --------------------------------------------------------------------------------------------------------------

    async def claim(self, run_id: str) -> bool:
        """Become the holder of a run that has not ended. Return False if another server holds it, or if it has ended."""

        def work(connection: Connection) -> bool:
            now = self._clock(connection)
            free = or_(runs.c.holder.is_(None), runs.c.holder == self.holder, runs.c.lease_until < now)
            at = (runs.c.id == run_id, runs.c.status.in_(UNFINISHED), *([free] if self.is_shared else []))
            held = {"holder": self.holder, "lease_until": now + LEASE_S}
            return bool(connection.execute(update(runs).where(*at).values(held)).rowcount)

        return await self._writer.do(work)

    async def renew(self) -> tuple[list[str], list[StoredRun]]:
        """Renew the leases of the held runs. Return their ids, and the unfinished runs that no server holds."""

        def work(connection: Connection) -> tuple[list[str], list[StoredRun]]:
            now = self._clock(connection)
            mine = (runs.c.holder == self.holder, runs.c.status.in_(UNFINISHED))
            connection.execute(update(runs).where(*mine).values(lease_until=now + LEASE_S))
            held = list(connection.execute(select(runs.c.id).where(*mine)).scalars())
            is_free = or_(runs.c.holder.is_(None), runs.c.lease_until < now)
            free = select(runs).where(runs.c.status.in_(UNFINISHED), is_free).order_by(runs.c.serial)
            found = [_run_of(row) for row in connection.execute(free)]
            self._num_bytes = _sizes(connection)
            return held, found

        return await self._writer.do(work)

    def _clock(self, connection: Connection) -> int:
        """Return the Unix time in seconds. All servers on a Postgres database use its clock."""
        if not self.is_shared:
            return int(self._now())
        return int(connection.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one())

    # Evals ---------------------------------------------------------------------------------------------------------------

    async def create_eval(self, content: Mapping[str, Any], *, owner: str | None) -> StoredEval:
        """Store an eval.

        Raises:
            Refused: 429, the owner has too many evals.
        """
        created, eval_id, text = int(self._now()), f"eval_{uuid.uuid4().hex}", json.dumps(content)

        def work(connection: Connection) -> None:
            num = connection.execute(select(func.count()).where(_owned(evals, owner))).scalar_one()
            if num >= MAX_EVALS:
                raise _full(f"eval: {num} evals are stored, the limit is {MAX_EVALS}; DELETE /v1/evals/ID deletes one")
            values = {"id": eval_id, "owner": owner, "created_at": created, "updated_at": created, "content": text}
            connection.execute(insert(evals), values)

        await self._writer.do(work)
        return StoredEval(id=eval_id, owner=owner, created_at=created, updated_at=created, content=content)

    async def get_eval(self, eval_id: str, *, owner: str | None) -> StoredEval:
        """Return an eval.

        Raises:
            Refused: 404, the owner has no such eval.
        """
        found = await self.known_eval(eval_id)
        if found is None or found.owner != owner:
            raise unknown("eval_id", eval_id)
        return found

    async def update_eval(self, eval_id: str, changes: Mapping[str, Any], *, owner: str | None) -> StoredEval:
        """Change fields of an eval, and return it.

        Raises:
            Refused: 404, the owner has no such eval.
        """

        def work(connection: Connection) -> StoredEval:
            wanted = select(evals).where(evals.c.id == _id(eval_id), _owned(evals, owner)).with_for_update()
            row = connection.execute(wanted).one_or_none()
            if row is None:
                raise unknown("eval_id", eval_id)
            changed = {"content": json.dumps(json.loads(row.content) | changes), "updated_at": int(self._now())}
            connection.execute(update(evals).where(evals.c.id == eval_id), changed)
            return _eval_of(connection.execute(select(evals).where(evals.c.id == eval_id)).one())

        return await self._writer.do(work)

    async def delete_eval(self, eval_id: str) -> list[str]:
        """Delete an eval with its runs. Return the ids of the runs."""

        def work(connection: Connection) -> list[str]:
            found = list(connection.execute(select(runs.c.id).where(runs.c.eval_id == eval_id)).scalars())
            for run_id in found:
                self._delete_run(connection, run_id)
            connection.execute(delete(scores).where(scores.c.eval_id == eval_id))
            connection.execute(delete(evals).where(evals.c.id == eval_id))
            return found

        deleted = await self._writer.do(work)
        await asyncio.to_thread(self._tell_deleted, deleted)
        return deleted

    async def eval_ids(self, *, owner: str | None, newest_first: bool, by_update: bool) -> list[str]:
        """Return the ids of all evals of an owner, in order."""
        orders = [evals.c.updated_at, evals.c.serial] if by_update else [evals.c.serial]
        ordered = [order.desc() if newest_first else order for order in orders]
        return [row.id for row in await self._read(select(evals.c.id).where(_owned(evals, owner)).order_by(*ordered))]

    # Runs ----------------------------------------------------------------------------------------------------------------

    async def create_run(
        self, of: StoredEval, content: Mapping[str, Any], *, given: Sequence[EvalRow] | None
    ) -> StoredRun:
        """Store a run in the state `queued`.

        Args:
            of: Its eval.
            content: The request, without rows.
            given: The rows. None: they are added later.

        Raises:
            Refused: 404, the eval was deleted; 429, the owner has too many runs.
        """
        created, run_id, text = int(self._now()), f"evalrun_{uuid.uuid4().hex}", json.dumps(content)
        values = {
            "id": run_id,
            "eval_id": of.id,
            "owner": of.owner,
            "created_at": created,
            "status": "queued",
            "content": text,
            "num_rows": None if given is None else len(given),
            "num_bytes": 0,
            "tally": Tally().model_dump_json(),
        }

        def work(connection: Connection) -> StoredRun:
            if connection.execute(select(evals.c.id).where(evals.c.id == of.id)).one_or_none() is None:
                raise unknown("eval_id", of.id)  # deleted since
            self._check_room(connection, owner=of.owner)
            connection.execute(insert(runs), values)
            self._insert(connection, run_id, given or ())
            return _run_of(connection.execute(select(runs).where(runs.c.id == run_id)).one())

        return await self._writer.do(work)

    def _check_room(self, connection: Connection, *, owner: str | None) -> None:
        counted = select(runs.c.status.in_(UNFINISHED).label("runs_on"), func.count().label("num"))
        counts = connection.execute(counted.where(_owned(runs, owner)).group_by("runs_on"))
        numbers = {bool(row.runs_on): row.num for row in counts}
        num_on, num_kept = numbers.get(True, 0), sum(numbers.values())
        if num_on >= self._quota.num_batches:
            raise _full(
                f"run: {num_on} runs are unfinished, the limit is {self._quota.num_batches}; wait, or cancel one"
            )
        if num_kept >= self._quota.num_ended_batches:
            limit = self._quota.num_ended_batches
            raise _full(
                f"run: {num_kept} runs are stored, the limit is {limit}; DELETE /v1/evals/ID/runs/ID deletes one"
            )

    async def known_run(self, run_id: str) -> StoredRun | None:
        """Return a run of any owner. None: it was deleted."""
        found = await self._read(select(runs).where(runs.c.id == _id(run_id)))
        return _run_of(found[0]) if found else None

    async def known_eval(self, eval_id: str) -> StoredEval | None:
        """Return an eval of any owner. None: it was deleted."""
        found = await self._read(select(evals).where(evals.c.id == _id(eval_id)))
        return _eval_of(found[0]) if found else None

    async def get_run(self, run_id: str, *, eval_id: str, owner: str | None) -> StoredRun:
        """Return a run of an eval.

        Raises:
            Refused: 404, the eval of the owner has no such run.
        """
        found = await self.known_run(run_id)
        if found is None or found.eval_id != eval_id or found.owner != owner:
            raise unknown("run_id", run_id)
        return found

    async def run_ids(self, eval_id: str, *, status: RunStatus | None, newest_first: bool) -> list[str]:
        """Return the ids of the runs of an eval, in order of creation.

        Args:
            eval_id: The eval.
            status: Only runs in this state. None: all.
            newest_first: Whether the order is reversed.
        """
        wanted = select(runs.c.id).where(runs.c.eval_id == eval_id)
        wanted = wanted if status is None else wanted.where(runs.c.status == status)
        return [row.id for row in await self._read(wanted.order_by(_ordered(runs.c.serial, newest_first)))]

    async def listed_evals(self, *, owner: str | None, first: int, num: int) -> list[ListedEval]:
        """Return evals with their runs, newest first.

        Args:
            owner: The owner. None: the evals of all callers.
            first: Number of evals to skip.
            num: Maximum number of evals.
        """
        wanted = select(evals).order_by(evals.c.serial.desc()).offset(first).limit(num)
        found = await self._read(wanted if owner is None else wanted.where(evals.c.owner == owner))
        ids = [row.id for row in found]
        counted: Any = select(runs.c.eval_id, func.count().label("num"), func.max(runs.c.serial).label("latest"))
        counts = {
            row.eval_id: row
            for row in await self._read(counted.where(runs.c.eval_id.in_(ids)).group_by(runs.c.eval_id))
        }
        serials = [row.latest for row in counts.values()]
        latest = {row.eval_id: _run_of(row) for row in await self._read(select(runs).where(runs.c.serial.in_(serials)))}
        return [
            ListedEval(
                of=_eval_of(row), num_runs=counts[row.id].num if row.id in counts else 0, latest=latest.get(row.id)
            )
            for row in found
        ]

    async def listed_runs(self, eval_id: str, *, first: int, num: int) -> list[StoredRun]:
        """Return the runs of an eval, newest first. `first`: number of runs to skip; `num`: maximum number of runs."""
        wanted = select(runs).where(runs.c.eval_id == eval_id).order_by(runs.c.serial.desc()).offset(first).limit(num)
        return [_run_of(row) for row in await self._read(wanted)]

    def unfinished(self) -> list[str]:
        """Return the ids of the runs of all owners that have not ended, oldest first."""
        with self._database.reading() as connection:
            wanted = select(runs.c.id).where(runs.c.status.in_(UNFINISHED)).order_by(runs.c.serial)
            return list(connection.execute(wanted).scalars())

    def queued(self) -> list[StoredRun]:
        """Return the runs of all owners whose rows may not be copied yet."""
        with self._database.reading() as connection:
            return [_run_of(row) for row in connection.execute(select(runs).where(runs.c.status == "queued"))]

    async def cancel(self, run_id: str) -> bool:
        """End a run. Return False if it has ended already, or was deleted."""
        at = (runs.c.id == run_id, runs.c.status.in_(UNFINISHED))
        ended = update(runs).where(*at).values(status="canceled", error=None)
        return bool(await self._writer.do(lambda connection: connection.execute(ended).rowcount))

    async def move(
        self, run_id: str, status: RunStatus, *, error: Mapping[str, str] | None = None, num_rows: int | None = None
    ) -> bool:
        """Change the state of a held run. Return False if it has ended, was deleted, or is held by another server.

        Args:
            run_id: The run.
            status: The new state.
            error: Code and message of the error. None: no error.
            num_rows: Number of its rows. None: unchanged.
        """
        values = {"status": status, "error": None if error is None else json.dumps(error)}
        values |= {} if num_rows is None else {"num_rows": num_rows}
        at = (runs.c.id == run_id, runs.c.holder == self.holder, runs.c.status.in_(UNFINISHED))
        changed = update(runs).where(*at).values(values)
        return bool(await self._writer.do(lambda connection: connection.execute(changed).rowcount))

    async def delete_run(self, run_id: str) -> None:
        """Delete a run with its rows."""
        await self._writer.do(lambda connection: self._delete_run(connection, run_id))
        await asyncio.to_thread(self._tell_deleted, [run_id])

    def _tell_deleted(self, run_ids: Iterable[str]) -> None:
        for run_id in run_ids:
            for tell in self.on_delete:
                tell(run_id)

    def _delete_run(self, connection: Connection, run_id: str) -> None:
        found = connection.execute(select(runs.c.owner, runs.c.num_bytes).where(runs.c.id == run_id)).one_or_none()
        if found is not None:
            connection.execute(delete(rows).where(rows.c.run_id == run_id))
            connection.execute(delete(runs).where(runs.c.id == run_id))
            self._num_bytes[found.owner] = self._num_bytes.get(found.owner, 0) - found.num_bytes

    # Rows ----------------------------------------------------------------------------------------------------------------

    async def add_rows(self, run_id: str, given: Sequence[EvalRow]) -> None:
        """Add rows to a queued run."""
        await self._writer.do(lambda connection: self._insert(connection, run_id, given))

    async def clear_rows(self, run_id: str) -> None:
        """Remove the rows of a run whose copying was interrupted."""

        def work(connection: Connection) -> None:
            self._add_bytes(connection, run_id, -connection.execute(_size(run_id)).scalar_one())
            connection.execute(delete(rows).where(rows.c.run_id == run_id))

        await self._writer.do(work)

    def _insert(self, connection: Connection, run_id: str, given: Sequence[EvalRow]) -> None:
        if not given:
            return
        values = [
            {"run_id": run_id, "number": row.number, "item": row.item, "given_sample": row.sample} for row in given
        ]
        if self._add_bytes(connection, run_id, sum(row.num_bytes for row in given)):
            connection.execute(insert(rows), values)

    def _add_bytes(self, connection: Connection, run_id: str, num_bytes: int) -> bool:
        """Count bytes of a run. Return False if the run was deleted."""
        found = connection.execute(select(runs.c.owner).where(runs.c.id == run_id)).one_or_none()
        if found is None:
            return False
        connection.execute(update(runs).where(runs.c.id == run_id).values(num_bytes=runs.c.num_bytes + num_bytes))
        self._num_bytes[found.owner] = self._num_bytes.get(found.owner, 0) + num_bytes
        return True

    def waiting_rows(self, run_id: str) -> Iterator[StoredRow]:
        """Yield the rows that are not graded. It blocks, so it is read in a thread."""
        last = -1
        while True:
            wanted = select(rows).where(rows.c.run_id == run_id, rows.c.number > last, rows.c.status.is_(None))
            with self._database.reading() as connection:
                found = [_row_of(row) for row in connection.execute(wanted.order_by(rows.c.number).limit(NUM_READ))]
            if not found:
                return
            last = found[-1].number
            yield from found

    async def keep_sample(self, run_id: str, number: int, sample: Mapping[str, Any]) -> None:
        """Store the sample that a model wrote, so that it is not written again."""
        text = json.dumps(sample)

        def work(connection: Connection) -> None:
            if self._add_bytes(connection, run_id, len(text)):
                at = (rows.c.run_id == run_id, rows.c.number == number)
                connection.execute(update(rows).where(*at).values(sample=text))

        await self._writer.do(work)

    async def finish_row(
        self,
        run_id: str,
        number: int,
        *,
        status: RowStatus,
        results: Sequence[Mapping[str, Any]],
        calls: Iterable[ModelCall],
        sampled: tuple[str, Mapping[str, int]] | None,
    ) -> bool:
        """Store the results of a row and count them.

        Args:
            run_id: The run, in progress.
            number: The row.
            status: Result of the row.
            results: Results of the criteria.
            calls, sampled: as in `Tally.add`.

        Returns:
            False if the run has ended, another server holds it, or the row is graded.
        """
        text, counted, graded_at = json.dumps(results), list(calls), int(self._now())
        at = (rows.c.run_id == run_id, rows.c.number == number, rows.c.status.is_(None))

        def work(connection: Connection) -> bool:
            wanted = select(runs.c.status, runs.c.tally, runs.c.holder).where(runs.c.id == run_id).with_for_update()
            run = connection.execute(wanted).one_or_none()
            if run is None or run.status != "in_progress" or run.holder != self.holder:
                return False
            graded = update(rows).where(*at).values(status=status, results=text, graded_at=graded_at)
            if not connection.execute(graded).rowcount:
                return False
            tally = Tally.model_validate_json(run.tally)
            tally.add(status, results=results, calls=counted, sampled=sampled)
            connection.execute(update(runs).where(runs.c.id == run_id).values(tally=tally.model_dump_json()))
            self._add_bytes(connection, run_id, len(text))
            return True

        return await self._writer.do(work)

    async def graded_rows(
        self,
        run_id: str,
        *,
        after: int | None,
        limit: int,
        max_chars: int,
        newest_first: bool,
        status: RowStatus | None,
    ) -> tuple[list[StoredRow], bool]:
        """Return graded rows of a run by number, and whether more rows follow.

        Args:
            run_id: The run.
            after: Number of the row before the first one. None: from the beginning.
            limit: Maximum number of rows.
            max_chars: Maximum total size of the rows. The first one may exceed it.
            newest_first: Whether the order is reversed.
            status: Only rows with this result. None: all.
        """
        texts = (rows.c.item, rows.c.given_sample, rows.c.sample, rows.c.results)
        size: Any = sum(func.length(func.coalesce(text, "")) for text in texts)
        wanted: Any = select(rows.c.number, size.label("size")).where(rows.c.run_id == run_id)
        wanted = wanted.where(rows.c.status.is_not(None) if status is None else rows.c.status == status)
        if after is not None:
            wanted = wanted.where(rows.c.number < after if newest_first else rows.c.number > after)
        order = _ordered(rows.c.number, newest_first)
        sizes = await self._read(wanted.order_by(order).limit(limit + 1))
        numbers: list[int] = []
        num_chars = 0
        for each in sizes[:limit]:
            num_chars += each.size
            if numbers and num_chars > max_chars:
                break
            numbers.append(each.number)
        found = await self._read(
            select(rows).where(rows.c.run_id == run_id, rows.c.number.in_(numbers)).order_by(order)
        )
        return [_row_of(row) for row in found], len(sizes) > len(numbers)

    async def row(self, run_id: str, number: int) -> StoredRow | None:
        """Return a graded row. None: there is none with this number."""
        at = (rows.c.run_id == run_id, rows.c.number == number, rows.c.status.is_not(None))
        found = await self._read(select(rows).where(*at))
        return _row_of(found[0]) if found else None

    async def given_rows(self, run_id: str) -> list[dict[str, Any]]:
        """Return the rows of a run as they were given."""
        wanted: Any = select(rows.c.item, rows.c.given_sample).where(rows.c.run_id == run_id).order_by(rows.c.number)
        return [
            {"item": json.loads(row.item)}
            | ({} if row.given_sample is None else {"sample": json.loads(row.given_sample)})
            for row in await self._read(wanted)
        ]

    # Scores --------------------------------------------------------------------------------------------------------------

    async def find_score(self, key: bytes) -> dict[str, Any] | None:
        """Return the result of a grader for the same content. None: there is none."""
        found = await self._read(select(scores.c.result).where(scores.c.key == key))
        return json.loads(found[0].result) if found else None

    async def keep_score(self, key: bytes, result: Mapping[str, Any], *, eval_id: str) -> None:
        """Store a result of a grader by its content."""
        text = json.dumps(result)
        if len(text) <= MAX_SCORE_CHARS:
            inserting = postgresql.insert if self.is_shared else sqlite.insert
            stored = inserting(scores).values(key=key, result=text, eval_id=eval_id).on_conflict_do_nothing()
            await self._writer.do(lambda connection: connection.execute(stored))

    async def _read(self, wanted: Select[Any]) -> Sequence[Row[Any]]:
        def find() -> Sequence[Row[Any]]:
            with self._database.reading() as connection:
                return connection.execute(wanted).all()

        return await asyncio.to_thread(find)


def _owned(table: Any, owner: str | None) -> Any:
    return table.c.owner.is_(None) if owner is None else table.c.owner == owner


def _ordered(column: Any, newest_first: bool) -> Any:
    return column.desc() if newest_first else column


def _size(run_id: str) -> Select[Any]:
    sizes = func.length(rows.c.item) + func.length(func.coalesce(rows.c.given_sample, ""))
    return select(func.coalesce(func.sum(sizes), 0)).where(rows.c.run_id == run_id)


def _id(given: str) -> str:
    """Return an id for a query. Texts that are no id may have characters that a database refuses."""
    return given if _ID.fullmatch(given) else ""


def _sizes(connection: Connection) -> dict[str | None, int]:
    """Return owner -> the size of the rows and results."""
    wanted = select(runs.c.owner, func.sum(runs.c.num_bytes).label("size")).group_by(runs.c.owner)
    return {row.owner: int(row.size) for row in connection.execute(wanted)}


def unknown(param: str, given: str) -> Refused:
    """Return the refusal of an id that does not exist, or that belongs to another owner. `param`: `eval_id` or `run_id`."""
    kind = param.removesuffix("_id")
    return Refused(invalid(f"{kind}: {shown(given)} not found", param=param, code=f"{kind}_not_found"), status=404)


def _full(message: str) -> Refused:
    code = "too_many_runs" if message.startswith("run") else "too_many_evals"
    return Refused(invalid(message, param=None, code=code), status=429, headers=_DO_NOT_RETRY)


def _eval_of(row: Row[Any]) -> StoredEval:
    return StoredEval(
        id=row.id,
        owner=row.owner,
        created_at=row.created_at,
        updated_at=row.updated_at,
        content=json.loads(row.content),
    )


def _run_of(row: Row[Any]) -> StoredRun:
    return StoredRun(
        id=row.id,
        eval_id=row.eval_id,
        owner=row.owner,
        created_at=row.created_at,
        status=row.status,
        content=json.loads(row.content),
        num_rows=row.num_rows,
        tally=Tally.model_validate_json(row.tally),
        error=None if row.error is None else json.loads(row.error),
        num_bytes=row.num_bytes,
    )


def _row_of(row: Row[Any]) -> StoredRow:
    return StoredRow(
        number=row.number,
        item=json.loads(row.item),
        given_sample=None if row.given_sample is None else json.loads(row.given_sample),
        sample=None if row.sample is None else json.loads(row.sample),
        status=row.status,
        results=[] if row.results is None else json.loads(row.results),
        graded_at=row.graded_at,
    )
