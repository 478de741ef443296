"""Create the table of idempotency keys of requests that were answered from the records."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "recalled_keys",
        sa.Column("idempotency", sa.String(64), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.String(64)),
        sa.PrimaryKeyConstraint("idempotency", name="pk_recalled_keys"),
    )
    op.create_index("ix_recalled_keys_seq", "recalled_keys", ["seq"])
