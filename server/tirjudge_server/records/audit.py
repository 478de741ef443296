"""Verify the chain of records, and export it so that other parties can verify it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, CursorResult, Row, select

from tirjudge_server.records.chain import record_hash
from tirjudge_server.records.database import Database
from tirjudge_server.records.record import flags_of, record_of
from tirjudge_server.records.schema import chain_head, records
from tirjudge_server.records.sealing import Sealed, load

GENESIS = "0" * 64
"""Hash that precedes the first record."""

BATCH_ROWS = 200
"""Number of rows that are in memory during a pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """The first record that differs from the stored one."""

    seq: int
    """Position in the chain, from 1."""
    record_id: str | None
    """Id of the record. None: the record is missing."""
    reason: str
    """What is wrong with the record."""

    def __str__(self) -> str:
        name = f"record {self.seq}" if self.record_id is None else f"record {self.seq} ({self.record_id})"
        return f"{name}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """Result of an audit."""

    length: int
    """Number of intact records."""
    head: str
    """Hash of the last intact record. With a copy of this hash outside the database, a later audit can prove that these
    records are unchanged."""
    broken: Break | None
    """The first broken record. None: the chain is intact."""


@dataclass(slots=True, kw_only=True)
class _Walk:
    """State of one pass over the chain."""

    length: int = 0
    """Number of records that were verified."""
    head: str = GENESIS
    """Hash of the last verified record."""
    erased_later: list[tuple[int, str, frozenset[str]]] = field(default_factory=list)
    """Records with fields that were erased after storing: position, id and the names of these fields."""
    erasures: dict[int, set[str]] = field(default_factory=dict)
    """Position of a record -> its fields whose erasure is recorded in the chain."""

    def step(self, row: Row[Any]) -> str | None:
        """Verify the next record. Return what is wrong with it; None if it is intact."""
        if row.previous != self.head:
            return "its `previous` does not match the hash of the record before it"
        try:
            content = load(row.content)
        except ValueError as error:
            return f"its content cannot be read: {error}"
        if record_hash(row, kind=row.kind, content=content) != row.hash:
            return "it was changed after it was stored"
        self.length, self.head = row.seq, row.hash
        return self._erasure(content) if row.kind == "erasure" else self._erasable(row, content=content)

    def _erasable(self, row: Row[Any], *, content: Sealed) -> str | None:
        erased = frozenset(content.erased) - frozenset(content.withheld)
        if erased:
            self.erased_later.append((row.seq, row.id, erased))
        return next(
            (f"its column {name} was changed after it was stored" for name in _false_copies(row, content)), None
        )

    def _erasure(self, content: Sealed) -> str | None:
        values = content.values
        if not {"seqs", "fields", "reason"} <= values.keys():
            return "it is not a valid erasure"
        for seq in values["seqs"]:
            self.erasures.setdefault(seq, set()).update(values["fields"])
        return None

    def unexplained(self) -> Break | None:
        """Return the first record with an erased field whose erasure is not in the chain; None: no such record."""
        for seq, record_id, fields in self.erased_later:
            unrecorded = sorted(fields - self.erasures.get(seq, set()))
            if unrecorded:
                return Break(seq=seq, record_id=record_id, reason=f"{unrecorded[0]} is gone without a recorded erasure")
        return None


def _false_copies(row: Row[Any], content: Sealed) -> Iterator[str]:
    """Yield the columns whose values differ from the content that they copy."""
    values = content.values
    if row.kind == "label":
        truth = {"about": values["judgment"], "human": values["label"], "caller": values.get("caller")}
        return (name for name, value in truth.items() if getattr(row, name) != value)
    judgment = values["judgment"]
    flags = flags_of(record_of(row).judgment)
    if "turns" not in values or row.tool_error is None:
        del flags["tool_error"]
    truth = flags | {
        "caller": values.get("caller"),
        "dialect": values["dialect"],
        "mode": judgment["mode"],
        "model": judgment["model"],
        "status": judgment["verdict"]["status"],
    }
    return (name for name, value in truth.items() if getattr(row, name) != value)


def verify(database: Database, *, expected: str | None = None) -> AuditReport:
    """Verify every record and the chain.

    Args:
        database: Read in one transaction, while servers can continue to write.
        expected: Head of an earlier audit. Some record must have this hash. None: no such check.

    Raises:
        RecordsUnavailable: The database cannot be read.
    """
    walk = _Walk()
    expected_seen = expected in (None, GENESIS)
    with database.reading() as connection:
        length, head = connection.execute(select(chain_head.c.length, chain_head.c.hash)).one()
        with _rows(connection, select(records)) as rows:
            for row in rows:
                if row.seq != walk.length + 1:
                    missing = Break(seq=walk.length + 1, record_id=None, reason="it is missing")
                    return AuditReport(length=walk.length, head=walk.head, broken=missing)
                reason = walk.step(row)
                if reason is not None:
                    broken = Break(seq=row.seq, record_id=row.id, reason=reason)
                    return AuditReport(length=row.seq - 1, head=row.previous, broken=broken)
                expected_seen = expected_seen or row.hash == expected
    broken = walk.unexplained()
    if broken is None and (walk.length, walk.head) != (length, head):
        broken = Break(seq=walk.length + 1, record_id=None, reason=f"it is missing; {length} records were stored")
    if broken is None and not expected_seen:
        broken = Break(seq=1, record_id=None, reason=f"no record has the hash {expected}; the chain was rewritten")
    return AuditReport(length=walk.length, head=walk.head, broken=broken)


def export(database: Database, *, since_ms: int | None = None, until_ms: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield every record as one JSON object, in the order of the chain, with all values needed to verify its hash.

    Args:
        database: Read in one transaction.
        since_ms: Earliest Unix time in milliseconds. None: from the first record.
        until_ms: Unix time in milliseconds before which records were stored. None: to the last record.

    Raises:
        RecordsUnavailable: The database cannot be read.
        ValueError: A record is damaged and cannot be read.
    """
    wanted = select(records)
    if since_ms is not None:
        wanted = wanted.where(records.c.created_ms >= since_ms)
    if until_ms is not None:
        wanted = wanted.where(records.c.created_ms < until_ms)
    with database.reading() as connection, _rows(connection, wanted) as rows:
        for row in rows:
            content = load(row.content)
            yield {
                "seq": row.seq,
                "id": row.id,
                "kind": row.kind,
                "created_ms": row.created_ms,
                "previous": row.previous,
                "hash": row.hash,
                "withheld": list(content.withheld),
                "salts": {name: field.salt for name, field in content.fields.items() if not field.erased},
                "commitments": content.commitments,
                "values": content.values,
            }


def _rows(connection: Connection, wanted: Any) -> CursorResult[Any]:
    """Query records in the order of the chain, with few rows in memory. Close the result before the connection."""
    return connection.execution_options(yield_per=BATCH_ROWS).execute(wanted.order_by(records.c.seq))
