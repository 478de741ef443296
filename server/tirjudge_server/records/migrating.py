"""Migrate the tables of a database to this version. Servers may start concurrently: one migrates, the others wait for it."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, select, table, text
from sqlalchemy.sql import column

from tirjudge_server.records.database import Database, RecordsError
from tirjudge_server.records.schema import REVISION

_LOCK = 0x7469726A
"""Key of the Postgres advisory lock. An arbitrary number that other users of the database are unlikely to choose."""


def migrate(database: Database) -> bool:
    """Run the missing migrations. Return False if there were none.

    Raises:
        RecordsError: A later version of tirjudge wrote the database.
        RecordsUnavailable: The database does not answer.
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
                f"records: {database} was written by a later version of tirjudge (revision {revision}; this version "
                f"supports {REVISION}); upgrade tirjudge"
            )
        _upgrade(connection)
    return True


def _revision(connection: Connection) -> str | None:
    """Return the revision of the tables. None: no tables exist."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(select(table("alembic_version", column("version_num")))).scalar()


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    # configparser interprets "%" as the start of a reference.
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
