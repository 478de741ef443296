"""The tables of evals: in a SQLite file of the server, or in the Postgres database of the records."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    inspect,
    text,
)

metadata = MetaData()

# In SQLite an INTEGER primary key is the row id; a BIGINT primary key needs a second index.
_Serial = BigInteger().with_variant(Integer(), "sqlite")

_LOCK = 0x7469726B
"""Key of the Postgres advisory lock. An arbitrary number, next to that of the records."""

_OLD_NAMES = {"runs": "eval_runs", "rows": "eval_rows", "scores": "eval_scores"}
"""Name of a table in older SQLite files -> its name."""

evals = Table(
    "evals",
    metadata,
    Column("serial", _Serial, primary_key=True),  # order of creation
    Column("id", String(64), nullable=False, unique=True),
    Column("owner", Text, index=True),  # name of the API key; NULL: created without a key
    Column("created_at", BigInteger, nullable=False),  # Unix time in seconds, as all times
    Column("updated_at", BigInteger, nullable=False),
    Column("content", Text, nullable=False),  # the request that created it, as JSON, with later changes
)

runs = Table(
    "eval_runs",
    metadata,
    Column("serial", _Serial, primary_key=True),
    Column("id", String(64), nullable=False, unique=True),
    Column("eval_id", String(64), ForeignKey("evals.id"), nullable=False, index=True),
    Column("owner", Text, index=True),
    Column("created_at", BigInteger, nullable=False),
    Column("status", String(16), nullable=False),
    Column("content", Text, nullable=False),  # the request that created it, as JSON; the rows are in `rows`
    Column("num_rows", Integer),  # NULL: the rows are not copied yet
    Column("num_bytes", BigInteger, nullable=False),  # size of the rows and their results
    Column("tally", Text, nullable=False),  # `tally.Tally` as JSON
    Column("error", Text),  # JSON of the code and the message; NULL: no error
    # Several servers share a Postgres database. One of them works on a run: it holds the run, and renews the lease.
    Column("holder", String(64)),  # id of the server; NULL: no server works on the run
    Column("lease_until", BigInteger),  # after this time, another server may take the run
)

rows = Table(
    "eval_rows",
    metadata,
    Column("run_id", String(64), ForeignKey("eval_runs.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("item", Text, nullable=False),  # JSON
    Column("given_sample", Text),  # JSON of the variable `sample` that the row came with; NULL: none
    Column("sample", Text),  # JSON of the sample that a model wrote; NULL: none yet
    Column("status", String(8)),  # pass, fail or error; NULL: not graded yet
    Column("results", Text),  # JSON list, one result per criterion
    Column("graded_at", BigInteger),
    Index("ix_eval_rows_run_id_status", "run_id", "status", "number"),
)

scores = Table(
    "eval_scores",
    metadata,
    Column("serial", _Serial, primary_key=True),  # order of creation
    Column(
        "key", LargeBinary(32), nullable=False, unique=True
    ),  # hash of the owner, the grader, the item and the sample
    Column("eval_id", String(64), nullable=False, index=True),  # eval whose run made the score
    Column("result", Text, nullable=False),  # JSON
)
"""Results of graders, by their content."""


def create_tables(connection: Connection) -> None:
    """Create the missing tables, and bring those of an older SQLite file to this version. Servers may start concurrently."""
    is_sqlite = connection.dialect.name == "sqlite"
    if not is_sqlite:
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    elif inspect(connection).has_table("runs"):
        for old, new in _OLD_NAMES.items():
            connection.execute(text(f"ALTER TABLE {old} RENAME TO {new}"))
        for column in (runs.c.holder, runs.c.lease_until):
            kind = column.type.compile(connection.dialect)
            connection.execute(text(f"ALTER TABLE {runs.name} ADD COLUMN {column.name} {kind}"))
    metadata.create_all(connection)
