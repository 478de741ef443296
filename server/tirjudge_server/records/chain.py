"""The chain: each record carries the hash of the one before it, so that every change, removal or insertion is found.

A user who can write the database can also write a whole new chain. A hash of the head that was noted elsewhere shows that:
`tirjudge audit verify --expect`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from tirjudge_server.records.database import Database
from tirjudge_server.records.schema import chain_head, records
from tirjudge_server.records.sealing import Sealed, canonical, sha256

# Made once: making a statement costs more than SQLite takes to run it.
_HOLD_HEAD = select(chain_head.c.length, chain_head.c.hash).with_for_update()
_MOVE_HEAD = update(chain_head).values(length=bindparam("_length"), hash=bindparam("_hash"))
_ADD = insert(records)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainEntry:
    """A record that has no place in the chain yet."""

    kind: str
    """"judgment" or "erasure"."""
    content: Sealed
    id: str = field(default_factory=lambda: f"era_{uuid.uuid4().hex}")
    columns: Mapping[str, str | None] = field(default_factory=dict)
    """What else its row holds, to find it by."""


def record_hash(row: Any, *, kind: str, content: Sealed) -> str:
    """The hash of a record: everything about it, with the commitment in place of each field.

    Args:
        row: has `seq`, `id`, `created_ms` and `previous`.
        kind: "judgment" or "erasure".
        content: of the record.
    """
    hashed = {name: getattr(row, name) for name in ("seq", "id", "created_ms", "previous")}
    withheld, fields = list(content.withheld), content.commitments
    return sha256(canonical(hashed | {"kind": kind, "withheld": withheld, "fields": fields}))


class Chain:
    """Appends to the chain within one transaction, which holds its head until it ends.

    Attributes:
        connection: of a transaction that writes.
        pending: rows that are appended and not yet written, by id.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._length, self._hash = connection.execute(_HOLD_HEAD).one()
        self.pending: dict[str, dict[str, Any]] = {}

    def append(self, entry: ChainEntry) -> None:
        """Give a record its place. It is written by `flush`."""
        self._length += 1
        row = {
            "seq": self._length,
            "kind": entry.kind,
            "id": entry.id,
            "created_ms": time.time_ns() // 1_000_000,
            "previous": self._hash,
            "content": entry.content.dump(),
            "pruned": entry.kind != "judgment",
            **dict.fromkeys(COPIES),
            **entry.columns,
        }
        self._hash = row["hash"] = record_hash(SimpleNamespace(**row), kind=entry.kind, content=entry.content)
        self.pending[entry.id] = row

    def flush(self) -> None:
        """Write what was appended, and the new head."""
        if self.pending:
            self.connection.execute(_ADD, list(self.pending.values()))
            self.connection.execute(_MOVE_HEAD, {"_length": self._length, "_hash": self._hash})
            self.pending = {}


@contextmanager
def appending(database: Database) -> Iterator[Chain]:
    """A transaction on the chain. What is appended is on disk when the block has ended.

    Raises:
        RecordsUnavailable: it failed, and nothing was written.
    """
    with database.writing() as connection:
        chain = Chain(connection)
        yield chain
        chain.flush()


COPIES = ("caller", "dialect", "mode", "model", "status", "cache_key", "idempotency", "body")
"""Columns of a row that are no part of its hash."""
