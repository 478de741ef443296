"""Verifies the chain of records, and exports it for others to check."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, CursorResult, Row, select

from tirjudge_server.records.chain import record_hash
from tirjudge_server.records.database import Database
from tirjudge_server.records.schema import chain_head, records
from tirjudge_server.records.sealing import Sealed, load

GENESIS = "0" * 64
"""What stands for the hash before the first record."""

ROWS_AT_ONCE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """The first place where the records are not what was stored."""

    seq: int
    record_id: str | None
    """None: it is the record that is missing."""
    reason: str

    def __str__(self) -> str:
        name = f"record {self.seq}" if self.record_id is None else f"record {self.seq} ({self.record_id})"
        return f"{name}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """What an audit found."""

    length: int
    """Records that were looked at."""
    head: str
    """The hash of the last of them; noted elsewhere, it proves all of them later."""
    broken: Break | None
    """None: the chain is whole."""


@dataclass(slots=True, kw_only=True)
class _Walk:
    """One pass over the chain."""

    length: int = 0
    head: str = GENESIS
    gone: list[tuple[int, str, frozenset[str]]] = field(default_factory=list)
    """Records with fields erased after they were stored."""
    erasures: dict[int, set[str]] = field(default_factory=dict)
    """Record -> fields whose erasure is in the chain."""

    def step(self, row: Row[Any]) -> str | None:
        """Take one record; why the chain is broken there, None if it is not."""
        if row.previous != self.head:
            return "it does not follow from the record before it"
        try:
            content = load(row.content)
        except ValueError as error:
            return f"its content cannot be read: {error}"
        if record_hash(row, kind=row.kind, content=content) != row.hash:
            return "it was changed"
        self.length, self.head = row.seq, row.hash
        return self._judgment(row, content=content) if row.kind == "judgment" else self._erasure(content)

    def _judgment(self, row: Row[Any], *, content: Sealed) -> str | None:
        erased = frozenset(content.erased) - frozenset(content.withheld)
        if erased:
            self.gone.append((row.seq, row.id, erased))
        return next((f"its column {name} was changed" for name in _false_copies(row, content=content)), None)

    def _erasure(self, content: Sealed) -> str | None:
        values = content.values
        if not {"seqs", "fields", "reason"} <= values.keys():
            return "it was changed"
        for seq in values["seqs"]:
            self.erasures.setdefault(seq, set()).update(values["fields"])
        return None

    def unexplained(self) -> Break | None:
        """The first record of which something is gone that no erasure speaks of."""
        for seq, record_id, fields in self.gone:
            unsaid = sorted(fields - self.erasures.get(seq, set()))
            if unsaid:
                return Break(seq=seq, record_id=record_id, reason=f"{unsaid[0]} is gone, and no erasure says so")
        return None


def _false_copies(row: Row[Any], *, content: Sealed) -> Iterator[str]:
    """Columns that say something else than the content that they copy."""
    values = content.values
    judgment = values["judgment"]
    truth = {
        "caller": values.get("caller"),
        "dialect": values["dialect"],
        "mode": judgment["mode"],
        "model": judgment["model"],
        "status": judgment["verdict"]["status"],
    }
    return (name for name, value in truth.items() if getattr(row, name) != value)


def verify(database: Database, *, expected: str | None = None) -> AuditReport:
    """Look at every record.

    Args:
        database: read in one transaction, so servers may go on writing.
        expected: the hash of a head that was noted before; some record must have it.

    Raises:
        RecordsUnavailable: it cannot be read.
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
        broken = Break(seq=1, record_id=None, reason=f"no record has the hash {expected}: the chain was written anew")
    return AuditReport(length=walk.length, head=walk.head, broken=broken)


def export(database: Database, *, since_ms: int | None = None, until_ms: int | None = None) -> Iterator[dict[str, Any]]:
    """Every record as one JSON object, in the order of the chain, with all that it takes to check the hashes.

    Args:
        database: read in one transaction.
        since_ms: Unix time from which; None: from the first.
        until_ms: Unix time before which; None: to the last.

    Raises:
        RecordsUnavailable: it cannot be read.
        ValueError: a record is damaged beyond reading.
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
    """In the order of the chain, without having all of them in memory. To be closed before the connection."""
    return connection.execution_options(yield_per=ROWS_AT_ONCE).execute(wanted.order_by(records.c.seq))
