"""A database, SQLite or Postgres: its connections, and its transactions for reading and writing.

Both kinds guarantee what the records rely on. A write transaction locks the head of the chain, so that only one of the
servers on a database appends at a time. A committed transaction is on disk.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, TimeoutError

from tirjudge.durable import close_to_others, make_private_folder, private
from tirjudge.errors import RecordsUnavailable, TirjudgeError
from tirjudge_server.records.options import NONE

LOCK_TIMEOUT_S = 5.0
"""Maximum seconds that a write to SQLite waits for another process's write."""

CONNECT_TIMEOUT_S = 5
"""Maximum seconds to connect to Postgres."""


class RecordsError(TirjudgeError, ValueError):
    """The operator's setting for the records is invalid."""


def default_path() -> Path:
    """Return the path of the default database, in the user's state directory."""
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "tirjudge" / "records.db"


def url_of(given: str | None) -> URL:
    """Return the URL of a database.

    Args:
        given: A URL, or the path of a SQLite file. None: the default database.

    Raises:
        RecordsError: This kind of database is not supported.
    """
    if given is None or "://" not in given:
        return URL.create("sqlite", database=str(Path(given).expanduser() if given else default_path()))
    try:
        url = make_url(given)
    except (ArgumentError, ValueError):
        raise RecordsError("records: not a URL; use postgresql://USER@HOST/NAME") from None
    if url.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    if url.drivername == "sqlite" and url.database not in (None, "", ":memory:"):
        return url
    shown = url.render_as_string(hide_password=True)
    raise RecordsError(f"records: {shown} given; use the path of a file, postgresql://USER@HOST/NAME or none")


class Database:
    """A database. The first transaction connects to it."""

    def __init__(self, url: URL) -> None:
        self.url = url
        self.engine = _engine(url)

    def __str__(self) -> str:
        """The path of the file, or the URL without its password."""
        return (self.url.database or "") if self.is_sqlite else self.url.render_as_string(hide_password=True)

    @property
    def is_sqlite(self) -> bool:
        """Whether this is SQLite; otherwise it is Postgres."""
        return self.url.drivername == "sqlite"

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a read transaction on a consistent snapshot, which concurrent writes do not change.

        Raises:
            RecordsUnavailable: The database failed.
        """
        with self._translated(), self.engine.connect() as connection:
            if not self.is_sqlite:
                connection = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with connection.begin():
                yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a write transaction. Its changes are on disk when the block has ended.

        Raises:
            RecordsUnavailable: The transaction failed and nothing was written.
        """
        with (
            self._translated(),
            self.engine.connect().execution_options(tirjudge_writes=True) as connection,
            connection.begin(),
        ):
            yield connection

    def forget_erased(self) -> None:
        """Remove erased values from SQLite's write-ahead log immediately, instead of at its next regular checkpoint."""
        if self.is_sqlite:
            with self._translated(), self.engine.connect() as connection:
                connection.connection.driver_connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # type: ignore[union-attr]

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (DBAPIError, TimeoutError) as error:
            # str(error) contains the SQL statement and with it texts of a request; the driver's error does not.
            cause = error.orig if isinstance(error, DBAPIError) else error
            code = getattr(cause, "sqlite_errorname", None) or getattr(cause, "sqlstate", None) or ""
            failure = RecordsUnavailable(f"records: {self}: {str(cause).strip()}")
            # The driver's message may quote a value, so the log gets the error's type and code only.
            raise failure.logged_as(f"records: {self}: {type(cause).__name__} {code}".strip()) from error


def _engine(url: URL) -> Engine:
    if url.drivername != "sqlite":
        options: dict[str, Any] = {"connect_timeout": CONNECT_TIMEOUT_S}
        return create_engine(url, pool_pre_ping=True, hide_parameters=True, connect_args=options)
    engine = create_engine(url, hide_parameters=True, connect_args={"timeout": LOCK_TIMEOUT_S})

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: object) -> None:
        connection.isolation_level = None  # `begin` below starts transactions, not the driver
        _write_ahead(connection)
        connection.execute("PRAGMA synchronous=FULL")  # a commit survives a power failure
        connection.execute("PRAGMA secure_delete=ON")  # erased values are overwritten with zeros

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("tirjudge_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log.

    Retries, because SQLite fails immediately, without waiting for the lock, while another process switches the same file.
    """
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def open_database(given: str | None, *, create: bool = True) -> Database:
    """Open a database and run its missing migrations.

    Args:
        given: A URL, or the path of a SQLite file. None: the default database.
        create: Whether a missing SQLite file is created. If not, a mistyped path cannot pass for empty records.

    Raises:
        RecordsError: The database cannot be used, or does not exist.
        RecordsUnavailable: The database does not answer.
    """
    from tirjudge_server.records.migrating import migrate

    if given == NONE:
        raise RecordsError("records: `none` given, but this command needs a database; name one with --records")
    url = url_of(given)
    if url.drivername == "sqlite":
        file = Path(str(url.database))
        if not create and not file.exists():
            raise RecordsError(f"records: {file} does not exist; name the database of a server with --records")
        if not _may_be_sqlite(file):
            raise RecordsError(f"records: {file} is another kind of file; use another --records")
        create_file(file)
    try:
        database = Database(url)
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        raise RecordsError(f"records: {error}; pip install 'tirjudge[server]'") from error
    try:
        migrate(database)
    except BaseException:
        database.close()
        raise
    return database


@contextmanager
def opened(given: str | None, *, create: bool = False) -> Iterator[Database]:
    """Open a database with `open_database`, and close it at the end of the block."""
    database = open_database(given, create=create)
    try:
        yield database
    finally:
        database.close()


def _may_be_sqlite(file: Path) -> bool:
    """Whether a file is missing, empty, unreadable or a SQLite database."""
    try:
        with file.open("rb") as content:
            return content.read(16) in (b"", b"SQLite format 3\0")
    except OSError:
        return True


def create_file(path: Path) -> None:
    """Create a SQLite file that other users cannot read, because records contain private texts."""
    try:
        make_private_folder(path.parent)
        os.close(private(str(path), os.O_CREAT | os.O_RDWR))
        # SQLite creates its log with the mode of the database, but does not change the mode of an existing log.
        for file in (path, *(path.with_name(path.name + ending) for ending in ("-wal", "-shm", "-journal"))):
            with suppress(FileNotFoundError):  # another connection may remove its log at any time
                close_to_others(file)
    except OSError as error:
        raise RecordsError(f"records: {path}: {error.strerror}; use another --records, or none") from error
