"""One database, SQLite or Postgres: its connections, and its transactions for reading and writing.

Both give what the records rest on: a transaction that writes holds the head of the chain, so that of all servers on one
database one appends at a time; and what was committed is on disk.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, TimeoutError

from tirjudge.durable import close_to_others, make_private_folder, private
from tirjudge.errors import RecordsUnavailable, TirjudgeError
from tirjudge_server.records.options import NONE

LOCK_TIMEOUT_S = 5.0
"""How long a write waits for another process that is writing."""

CONNECT_TIMEOUT_S = 5


class RecordsError(TirjudgeError, ValueError):
    """The database that was named cannot be used, and the operator can mend it."""


def default_path() -> Path:
    """The default database, in the user's state directory."""
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "tirjudge" / "records.db"


def url_of(given: str | None) -> URL:
    """The database that an operator names: a URL, or the path of a SQLite file; None: the default one.

    Raises:
        RecordsError: there is no such kind of database.
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
    """Opened lazily: nothing is reached before the first connection."""

    def __init__(self, url: URL) -> None:
        self.url = url
        self.engine = _engine(url)

    def __str__(self) -> str:
        """Without a password."""
        return (self.url.database or "") if self.is_sqlite else self.url.render_as_string(hide_password=True)

    @property
    def is_sqlite(self) -> bool:
        return self.url.drivername == "sqlite"

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction in which nothing changes, whatever others write meanwhile.

        Raises:
            RecordsUnavailable: it failed.
        """
        with self._translated(), self.engine.connect() as connection:
            if not self.is_sqlite:
                connection = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with connection.begin():
                yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is on disk when the block has ended.

        Raises:
            RecordsUnavailable: it failed, and nothing was written.
        """
        with (
            self._translated(),
            self.engine.connect().execution_options(tirjudge_writes=True) as connection,
            connection.begin(),
        ):
            yield connection

    def forget_erased(self) -> None:
        """Let the log of SQLite forget what was erased, which it otherwise does at the next thousand pages."""
        if self.is_sqlite:
            with self._translated(), self.engine.connect() as connection:
                connection.connection.driver_connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # type: ignore[union-attr]

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (DBAPIError, TimeoutError) as error:
            # Its full text would repeat the statement, and with it the texts of a request.
            cause = error.orig if isinstance(error, DBAPIError) else error
            code = getattr(cause, "sqlite_errorname", None) or getattr(cause, "sqlstate", None) or ""
            failure = RecordsUnavailable(f"records: {self}: {str(cause).strip()}")
            # What a database says may quote a value.
            raise failure.logged_as(f"records: {self}: {type(cause).__name__} {code}".strip()) from error


def _engine(url: URL) -> Engine:
    if url.drivername != "sqlite":
        options: dict[str, Any] = {"connect_timeout": CONNECT_TIMEOUT_S}
        return create_engine(url, pool_pre_ping=True, hide_parameters=True, connect_args=options)
    engine = create_engine(url, hide_parameters=True, connect_args={"timeout": LOCK_TIMEOUT_S})

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: object) -> None:
        connection.isolation_level = None  # the driver begins no transactions; `begin` below does
        _write_ahead(connection)
        connection.execute("PRAGMA synchronous=FULL")  # a commit survives a power cut as well
        connection.execute("PRAGMA secure_delete=ON")  # what is erased is overwritten

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("tirjudge_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log. While another process does the same to a new file, SQLite refuses at once instead of
    waiting."""
    give_up = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.02)


def open_database(given: str | None) -> Database:
    """The database that an operator names, with all migrations run; None: the default one, made if it is not there.

    Raises:
        RecordsError: it cannot be used.
        RecordsUnavailable: it does not answer.
    """
    from tirjudge_server.records.migrating import migrate

    if given == NONE:
        raise RecordsError("records: none given, so there is nothing to open")
    url = url_of(given)
    if url.drivername == "sqlite":
        _make_file(Path(str(url.database)))
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
def opened(given: str | None) -> Iterator[Database]:
    """`open_database`, and closed afterwards."""
    database = open_database(given)
    try:
        yield database
    finally:
        database.close()


def _make_file(path: Path) -> None:
    """Judgments hold what people wrote, so other users must not read them."""
    try:
        make_private_folder(path.parent)
        os.close(private(str(path), os.O_CREAT | os.O_RDWR))
        # SQLite gives its log the mode of the database, but leaves one that is there as it is.
        for file in (path, *(path.with_name(path.name + ending) for ending in ("-wal", "-shm", "-journal"))):
            if file.exists():
                close_to_others(file)
    except OSError as error:
        raise RecordsError(f"records: {path}: {error.strerror}; use another --records, or none") from error
