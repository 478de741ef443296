"""All writing of one server. A judgment waits for its own commit, and for the one that is under way at most."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tirjudge_server.records.chain import Chain
from tirjudge_server.records.database import Database
from tirjudge_server.records.group_commit import GroupCommitWriter


class Writer(GroupCommitWriter[Chain]):
    """Work appends to the chain, or changes rows; it is on disk when it is done."""

    def __init__(self, database: Database) -> None:
        @contextmanager
        def transaction() -> Iterator[Chain]:
            with database.writing() as connection:
                chain = Chain(connection)
                yield chain
                chain.flush()

        super().__init__("tirjudge-records", transaction=transaction)
