"""The tables. `migrations/` creates them; a test checks that both definitions agree."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, MetaData, String, Table, Text

REVISION = "0004"
"""Id of the latest migration. The tables are in the state after it."""

NAMING = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}

# In SQLite an INTEGER primary key is the row id; a BIGINT primary key needs a second index.
_Sequence = BigInteger().with_variant(Integer(), "sqlite")

metadata = MetaData(naming_convention=NAMING)

LISTED = ("kind", "seq", "id", "created_ms", "caller", "dialect", "mode", "model", "status", "label", "forced", "flipped",
          "basis", "tool_error", "human")  # fmt: skip
"""Columns of the list of judgments, in the order of their index."""

records = Table(
    "records",
    metadata,
    # Covered by the hash:
    Column("seq", _Sequence, primary_key=True, autoincrement=False),  # 1, 2, 3, ...
    Column("kind", String(16), nullable=False),  # "judgment", "label" or "erasure"
    Column("id", String(64), nullable=False, unique=True),
    Column("created_ms", BigInteger, nullable=False, index=True),
    Column("previous", String(64), nullable=False),  # hash of the previous record
    Column("hash", String(64), nullable=False),
    Column("content", Text, nullable=False),  # `sealing.Sealed` as JSON
    # Copies of values in the content, for look-ups:
    Column("caller", Text),
    Column("dialect", String(64)),
    Column("mode", String(16)),
    Column("model", Text),
    Column("status", String(16)),
    Column("label", Text),  # letter of the best response, or the score of the only response
    Column("forced", Boolean),
    Column("flipped", Boolean),  # whether two orders lead to different responses
    Column("basis", String(16)),
    Column("tool_error", Boolean),  # whether a program failed; NULL: not known, because the turns were erased before
    Column("human", String(16)),  # of a label: what it says; of a judgment: what its latest label says
    Column("about", String(64), index=True),  # of a label: id of its judgment
    # For finding earlier judgments; set to NULL when the content that they are derived from is erased:
    Column("cache_key", String(64), index=True),
    Column("idempotency", String(64), unique=True),  # hash of the caller and the idempotency key
    Column("body", String(64)),  # hash of the idempotency key and the request
    Column("pruned", Boolean, nullable=False),  # whether retention has no more fields to erase
    Index("ix_records_pruned", "pruned", "created_ms"),
    # The list of judgments reads this index alone, for every combination of its filters, and never the content.
    Index("ix_records_list", *LISTED),
)

recalled_keys = Table(
    "recalled_keys",
    metadata,
    # Idempotency keys of requests that the records answered by their content. Other keys are in the row of their judgment.
    Column("idempotency", String(64), primary_key=True),  # as in `records`
    Column("seq", BigInteger, nullable=False, index=True),  # of the judgment
    Column("body", String(64)),  # as in `records`
)

chain_head = Table(
    "chain_head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # always 1: the only row, locked while appending
    Column("length", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("prefix", String(16), nullable=False, unique=True),  # first characters of the key, to recognize it
    Column("digest", String(64), nullable=False, unique=True),  # SHA-256 of the key
    Column("scopes", Text, nullable=False),  # separated by spaces
    Column("rpm", Integer),
    Column("tpm", Integer),
    Column("concurrency", Integer),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger),
    Column("revoked_ms", BigInteger),
)

sessions = Table(
    "sessions",
    metadata,
    Column("digest", String(64), primary_key=True),  # SHA-256 of the session's token
    Column("name", String(128), nullable=False),  # name of its key
    Column("expires_ms", BigInteger, nullable=False, index=True),
)
