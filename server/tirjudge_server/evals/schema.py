"""The tables of evals, in a SQLite file of the server."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Index, Integer, LargeBinary, MetaData, String, Table, Text

metadata = MetaData()

evals = Table(
    "evals",
    metadata,
    Column("serial", Integer, primary_key=True),  # order of creation
    Column("id", String(64), nullable=False, unique=True),
    Column("owner", Text, index=True),  # name of the API key; NULL: created without a key
    Column("created_at", Integer, nullable=False),  # Unix time in seconds, as all times
    Column("updated_at", Integer, nullable=False),
    Column("content", Text, nullable=False),  # the request that created it, as JSON, with later changes
)

runs = Table(
    "runs",
    metadata,
    Column("serial", Integer, primary_key=True),
    Column("id", String(64), nullable=False, unique=True),
    Column("eval_id", String(64), ForeignKey("evals.id"), nullable=False, index=True),
    Column("owner", Text, index=True),
    Column("created_at", Integer, nullable=False),
    Column("status", String(16), nullable=False),
    Column("content", Text, nullable=False),  # the request that created it, as JSON; the rows are in `rows`
    Column("num_rows", Integer),  # NULL: the rows are not copied yet
    Column("num_bytes", Integer, nullable=False),  # size of the rows and their results
    Column("tally", Text, nullable=False),  # `tally.Tally` as JSON
    Column("error", Text),  # JSON of the code and the message; NULL: no error
)

rows = Table(
    "rows",
    metadata,
    Column("run_id", String(64), ForeignKey("runs.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("item", Text, nullable=False),  # JSON
    Column("given_sample", Text),  # JSON of the variable `sample` that the row came with; NULL: none
    Column("sample", Text),  # JSON of the sample that a model wrote; NULL: none yet
    Column("status", String(8)),  # pass, fail or error; NULL: not graded yet
    Column("results", Text),  # JSON list, one result per criterion
    Column("graded_at", Integer),
    Index("ix_rows_run_id_status", "run_id", "status", "number"),
)

scores = Table(
    "scores",
    metadata,
    Column("serial", Integer, primary_key=True),  # order of creation
    Column(
        "key", LargeBinary(32), nullable=False, unique=True
    ),  # hash of the owner, the grader, the item and the sample
    Column("eval_id", String(64), nullable=False, index=True),  # eval whose run made the score
    Column("result", Text, nullable=False),  # JSON
)
"""Results of graders, by their content."""
