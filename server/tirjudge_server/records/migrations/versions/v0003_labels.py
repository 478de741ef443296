"""Add the columns by which judgments are filtered, and those of labels. Fill them for the judgments on record."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from tirjudge_server.records.record import flags_of, record_of

revision = "0003"
down_revision = "0002"

BATCH_ROWS = 200

LISTED = ("kind", "seq", "id", "created_ms", "caller", "dialect", "mode", "model", "status", "label", "forced", "flipped",
          "basis", "tool_error", "human")  # fmt: skip


def upgrade() -> None:
    """Add the columns, fill them, and create the indexes."""
    added = {"label": sa.Text(), "forced": sa.Boolean(), "flipped": sa.Boolean(), "basis": sa.String(16)}
    added |= {"tool_error": sa.Boolean(), "human": sa.String(16), "about": sa.String(64)}
    for name, kind in added.items():
        op.add_column("records", sa.Column(name, kind))
    _fill(op.get_bind())
    op.create_index("ix_records_about", "records", ["about"])
    op.create_index("ix_records_list", "records", list(LISTED))


def _fill(connection: sa.Connection) -> None:
    """Fill the columns of the judgments on record. Damaged records are left without flags; an audit names them."""
    names = ("label", "forced", "flipped", "basis", "tool_error")
    columns = ("seq", "id", "created_ms", "previous", "hash", "content", "kind", *names)
    records = sa.table("records", *(sa.column(name) for name in columns))
    change = sa.update(records).where(records.c.seq == sa.bindparam("_seq"))
    after = 0
    while True:
        wanted = sa.select(records).where(records.c.seq > after, records.c.kind == "judgment")
        rows = connection.execute(wanted.order_by(records.c.seq).limit(BATCH_ROWS)).all()
        if not rows:
            return
        after = rows[-1].seq
        changes = []
        for row in rows:
            try:
                record = record_of(row)
                changes.append({"_seq": row.seq, **flags_of(record.judgment, has_turns="turns" in record.values)})
            except (ValueError, KeyError, TypeError):
                continue
        if changes:
            connection.execute(change, changes)
