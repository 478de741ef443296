"""Erase fields of judgments, on request or by age. Each erasure is itself a record, so that an audit can account for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Row, bindparam, delete, select, update

from tirjudge_server.records.chain import Chain, ChainEntry
from tirjudge_server.records.database import RecordsError
from tirjudge_server.records.record import ERASABLE, with_calls
from tirjudge_server.records.schema import recalled_keys, records
from tirjudge_server.records.sealing import load, seal

PRUNE_BATCH = 100
"""Maximum number of judgments that one transaction erases."""


def check_erasable(fields: Collection[str]) -> None:
    """Check that all fields may be erased.

    Raises:
        RecordsError: A field may not be erased.
    """
    for name in fields:
        if name not in ERASABLE:
            raise RecordsError(f"field: {name!r} given; expected one of: {', '.join(ERASABLE)}")


def erase(chain: Chain, *, judgment_id: str, fields: Collection[str]) -> bool:
    """Erase fields of one judgment, or of one label by its id. Return False if there is none.

    The function calls are erased too if they may have texts of these fields. The idempotency keys of the judgment stay in
    use: later requests with these keys are refused.
    """
    chosen = select(records).where(records.c.id == judgment_id, records.c.kind.in_(("judgment", "label")))
    row = chain.connection.execute(chosen).one_or_none()
    if row is None:
        return False
    present = with_calls(fields) & load(row.content).fields.keys()
    _erase_rows(chain, [row], fields=present.union(fields), reason="redaction", columns={"body": None})
    chain.connection.execute(update(recalled_keys).where(recalled_keys.c.seq == row.seq).values(body=None))
    return True


def prune_some(chain: Chain, *, before_ms: float) -> int:
    """Erase all erasable fields of up to `PRUNE_BATCH` old judgments, and their idempotency keys.

    Args:
        chain: The chain, in a write transaction.
        before_ms: Judgments that were stored before this Unix time in milliseconds are erased.

    Returns:
        Number of judgments that were erased. 0: no more are left.
    """
    old = (
        select(records)
        .where(records.c.pruned.is_(False), records.c.created_ms < before_ms)
        .order_by(records.c.seq)
        .limit(PRUNE_BATCH)
    )
    rows = chain.connection.execute(old).all()
    columns = {"body": None, "idempotency": None, "pruned": True}
    if rows:
        _erase_rows(chain, rows, fields=ERASABLE, reason="retention", columns=columns)
        chain.connection.execute(delete(recalled_keys).where(recalled_keys.c.seq.in_([row.seq for row in rows])))
    return len(rows)


def _erase_rows(
    chain: Chain, rows: Sequence[Row[Any]], *, fields: Collection[str], reason: str, columns: dict[str, Any]
) -> None:
    """Remove fields from rows, and append the erasure to the chain."""
    changes = [
        {
            "_seq": row.seq,
            "content": load(row.content).without(fields).dump(),
            "caller": None if "caller" in fields else row.caller,
            "cache_key": None,  # a hash of the request allows its texts to be guessed and confirmed
            **columns,
        }
        for row in rows
    ]
    chain.connection.execute(update(records).where(records.c.seq == bindparam("_seq")), changes)
    erased = {"seqs": [row.seq for row in rows], "fields": sorted(fields), "reason": reason}
    chain.append(ChainEntry(kind="erasure", content=seal(erased)))
