"""Erases fields of judgments, on request or by age. Each erasure is itself a record in the chain, so that no field disappears
unnoticed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Row, bindparam, select, update

from tirjudge_server.records.chain import Chain, ChainEntry
from tirjudge_server.records.database import RecordsError
from tirjudge_server.records.record import ERASABLE
from tirjudge_server.records.schema import records
from tirjudge_server.records.sealing import load, seal

PRUNED_AT_ONCE = 100
"""Judgments in one transaction."""


def check_erasable(fields: Collection[str]) -> None:
    """
    Raises:
        RecordsError: one of them is not to be erased.
    """
    for name in fields:
        if name not in ERASABLE:
            raise RecordsError(f"field: {name!r} given; valid are {', '.join(ERASABLE)}")


def erase(chain: Chain, *, judgment_id: str, fields: Collection[str]) -> bool:
    """Erase fields of one judgment; whether there is such a judgment.

    An idempotency key that it answered stays answered: the key is refused from now on.
    """
    chosen = select(records).where(records.c.id == judgment_id, records.c.kind == "judgment")
    row = chain.connection.execute(chosen).one_or_none()
    if row is None:
        return False
    _erase_rows(chain, [row], fields=fields, reason="redaction", columns={"body": None})
    return True


def prune_some(chain: Chain, *, before_ms: float) -> int:
    """Erase all erasable fields of some judgments that were stored before; how many judgments that were.

    Their idempotency keys are forgotten with them.

    Args:
        chain: of a transaction.
        before_ms: Unix time.
    """
    old = (
        select(records)
        .where(records.c.pruned.is_(False), records.c.created_ms < before_ms)
        .order_by(records.c.seq)
        .limit(PRUNED_AT_ONCE)
    )
    rows = chain.connection.execute(old).all()
    columns = {"body": None, "idempotency": None, "pruned": True}
    if rows:
        _erase_rows(chain, rows, fields=ERASABLE, reason="retention", columns=columns)
    return len(rows)


def _erase_rows(
    chain: Chain, rows: Sequence[Row[Any]], *, fields: Collection[str], reason: str, columns: dict[str, Any]
) -> None:
    """Rewrite rows without some fields, and say so in the chain."""
    changes = [
        {
            "_seq": row.seq,
            "content": load(row.content).without(fields).dump(),
            "caller": None if "caller" in fields else row.caller,
            "cache_key": None,  # a hash of what was asked gives it away
            **columns,
        }
        for row in rows
    ]
    chain.connection.execute(update(records).where(records.c.seq == bindparam("_seq")), changes)
    erased = {"seqs": [row.seq for row in rows], "fields": sorted(fields), "reason": reason}
    chain.append(ChainEntry(kind="erasure", content=seal(erased)))
