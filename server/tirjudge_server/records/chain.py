"""The chain: each record contains the hash of the previous record, so that an audit detects changes and missing records.

A user with write access to the database can also rewrite the whole chain. To detect that, keep the head's hash outside the
database and pass it to `tirjudge audit verify --expect`.
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

# Built once: building a statement takes longer than SQLite takes to run it.
_HOLD_HEAD = select(chain_head.c.length, chain_head.c.hash).with_for_update()
_MOVE_HEAD = update(chain_head).values(length=bindparam("_length"), hash=bindparam("_hash"))
_ADD = insert(records)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainEntry:
    """A record to append to the chain."""

    kind: str
    """"judgment", "label" or "erasure"."""
    content: Sealed
    id: str = field(default_factory=lambda: f"era_{uuid.uuid4().hex}")
    columns: Mapping[str, str | bool | None] = field(default_factory=dict)
    """Other columns of its row, which serve for look-ups."""


def record_hash(row: Any, *, kind: str, content: Sealed) -> str:
    """Return the hash of a record. It covers the commitments of the fields instead of their values.

    Args:
        row: An object with `seq`, `id`, `created_ms` and `previous`.
        kind: "judgment", "label" or "erasure".
        content: Content of the record.
    """
    hashed = {name: getattr(row, name) for name in ("seq", "id", "created_ms", "previous")}
    withheld, fields = list(content.withheld), content.commitments
    return sha256(canonical(hashed | {"kind": kind, "withheld": withheld, "fields": fields}))


class Chain:
    """Appends to the chain within one write transaction, which locks the head until it ends.

    Attributes:
        connection: Connection of the transaction.
        pending: Id of a record -> its row, of appended records that are not written yet.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._length, self._hash = connection.execute(_HOLD_HEAD).one()
        self.pending: dict[str, dict[str, Any]] = {}

    def append(self, entry: ChainEntry) -> None:
        """Append a record. `flush` writes it."""
        self._length += 1
        row = {
            "seq": self._length,
            "kind": entry.kind,
            "id": entry.id,
            "created_ms": time.time_ns() // 1_000_000,
            "previous": self._hash,
            "content": entry.content.dump(),
            "pruned": entry.kind == "erasure",
            **dict.fromkeys(COPIES),
            **entry.columns,
        }
        self._hash = row["hash"] = record_hash(SimpleNamespace(**row), kind=entry.kind, content=entry.content)
        self.pending[entry.id] = row

    def flush(self) -> None:
        """Write the appended records and the new head."""
        if self.pending:
            self.connection.execute(_ADD, list(self.pending.values()))
            self.connection.execute(_MOVE_HEAD, {"_length": self._length, "_hash": self._hash})
            self.pending = {}


@contextmanager
def appending(database: Database) -> Iterator[Chain]:
    """Open a write transaction on the chain. Appended records are on disk when the block has ended.

    Raises:
        RecordsUnavailable: The transaction failed and nothing was written.
    """
    with database.writing() as connection:
        chain = Chain(connection)
        yield chain
        chain.flush()


COPIES = ("caller", "dialect", "mode", "model", "status", "label", "forced", "flipped", "basis", "tool_error", "human",
          "about", "cache_key", "idempotency", "body")  # fmt: skip
"""Columns of a row that its hash does not cover."""
