"""Migrates the tables of a database to this version. Any number of servers may start at once: one migrates,
the others wait and find nothing to do.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, select, table, text
from sqlalchemy.sql import column

from tirjudge_server.records.database import Database, RecordsError
from tirjudge_server.records.schema import REVISION

_LOCK = 0x7469726A
"""Of Postgres; any number that no other user of the database takes."""


def migrate(database: Database) -> bool:
    """Run the migrations that are missing; whether there were any.

    Raises:
        RecordsError: the database was written by a later version.
        RecordsUnavailable: it does not answer.
    """
    with database.reading() as connection:
        if _revision(connection) == REVISION:
            return False
    with database.writing() as connection:
        if not database.is_sqlite:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        revision = _revision(connection)
        if revision == REVISION:
            return False
        if revision is not None and revision > REVISION:
            raise RecordsError(
                f"records: {database} was written by a later version (revision {revision}, known is {REVISION}); "
                "use that version"
            )
        _upgrade(connection)
    return True


def _revision(connection: Connection) -> str | None:
    """None: there are no tables yet."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(select(table("alembic_version", column("version_num")))).scalar()


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    # configparser reads "%" as the beginning of a reference.
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
