"""Create the tables of records, of the chain's head, and of keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

GENESIS = "0" * 64


def upgrade() -> None:
    """Create the tables."""
    sequence = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "records",
        sa.Column("seq", sequence, autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("previous", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("caller", sa.Text()),
        sa.Column("dialect", sa.String(64)),
        sa.Column("mode", sa.String(16)),
        sa.Column("model", sa.Text()),
        sa.Column("status", sa.String(16)),
        sa.Column("cache_key", sa.String(64)),
        sa.Column("idempotency", sa.String(64)),
        sa.Column("body", sa.String(64)),
        sa.Column("pruned", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_records"),
        sa.UniqueConstraint("id", name="uq_records_id"),
        sa.UniqueConstraint("idempotency", name="uq_records_idempotency"),
    )
    op.create_index("ix_records_created_ms", "records", ["created_ms"])
    op.create_index("ix_records_cache_key", "records", ["cache_key"])
    op.create_index("ix_records_pruned", "records", ["pruned", "created_ms"])
    head = op.create_table(
        "chain_head",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("length", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_chain_head"),
    )
    op.bulk_insert(head, [{"id": 1, "length": 0, "hash": GENESIS}])
    op.create_table(
        "keys",
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("prefix", sa.String(16), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("rpm", sa.Integer()),
        sa.Column("tpm", sa.Integer()),
        sa.Column("concurrency", sa.Integer()),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger()),
        sa.Column("revoked_ms", sa.BigInteger()),
        sa.PrimaryKeyConstraint("name", name="pk_keys"),
        sa.UniqueConstraint("prefix", name="uq_keys_prefix"),
        sa.UniqueConstraint("digest", name="uq_keys_digest"),
    )
