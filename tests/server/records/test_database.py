"""Opening and migrating a database, and failures of the database."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import event, text

from tirjudge.errors import RecordsUnavailable
from tirjudge_server.call import Call
from tirjudge_server.records.audit import verify
from tirjudge_server.records.database import RecordsError, default_path, open_database, url_of
from tirjudge_server.records.migrating import migrate
from tirjudge_server.records.schema import metadata

OPENS = """
import sys
from tirjudge_server.records.database import open_database
import tirjudge_server.records.migrating
print("ready", flush=True)
sys.stdin.readline()
open_database(sys.argv[1]).close()
"""


def test_the_default_database_is_in_the_state_directory(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_path() == tmp_path / "tirjudge" / "records.db"
    open_database(None).close()
    assert default_path().stat().st_mode & 0o777 == 0o600
    assert default_path().parent.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/not/allowed")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_path() == tmp_path / ".local" / "state" / "tirjudge" / "records.db"


def test_a_postgres_url_gets_its_driver() -> None:
    assert url_of("postgres://u:p@h/n").drivername == "postgresql+psycopg"
    assert url_of("sqlite:////x/y.db").database == "/x/y.db"
    assert url_of("/x/y.db").database == "/x/y.db"


@pytest.mark.parametrize("given", ["mysql://u:hidden@h/n", "sqlite://", "none", "no url://at all"])
def test_an_unsupported_database_is_refused_without_showing_its_password(given: str) -> None:
    with pytest.raises(RecordsError) as refused:
        open_database(given)
    assert "hidden" not in str(refused.value)


def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RecordsError, match="use another --records, or none"):
        open_database(str(tmp_path / "file" / "records.db"))


def test_another_kind_of_file_is_refused_and_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("This is no database.")
    file.chmod(0o644)
    with pytest.raises(RecordsError, match="another kind of file"):
        open_database(str(file))
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("This is no database.", 0o644)


def test_an_unreachable_database_is_unavailable_and_its_password_is_hidden() -> None:
    with pytest.raises(RecordsUnavailable) as failed:
        open_database("postgresql://u:hidden@127.0.0.1:9/n")
    assert "hidden" not in str(failed.value)


def test_the_migrations_create_the_declared_tables(database) -> None:
    with database.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    assert not migrate(database)


def test_a_database_of_a_later_version_is_refused(database, database_url) -> None:
    with database.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(RecordsError, match="later version"):
        open_database(database_url)


def test_concurrent_threads_migrate_once(database_url) -> None:
    with ThreadPoolExecutor(4) as threads:
        for database in threads.map(open_database, [database_url] * 4):
            database.close()
    database = open_database(database_url)
    assert verify(database).length == 0
    database.close()


@pytest.mark.slow
def test_concurrent_processes_migrate_once(database_url) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    starting = [subprocess.Popen([sys.executable, "-c", OPENS, database_url], **pipes) for _ in range(6)]
    for process in starting:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in starting:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in starting:
        _, err = process.communicate(timeout=180)
        assert (process.returncode, err) == (0, "")
    database = open_database(database_url)
    assert verify(database).length == 0
    database.close()


async def test_a_write_waits_for_another_process(open_store, sqlite_path, keep) -> None:
    store = open_store(sqlite_path)
    other = sqlite3.connect(sqlite_path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    storing = asyncio.create_task(keep(store))
    await asyncio.sleep(0.05)
    assert not storing.done()
    other.execute("ROLLBACK")
    judgment = await storing
    assert (await store.read(judgment.id)).judgment == judgment
    other.close()


async def test_a_locked_database_is_unavailable_and_stores_nothing(
    open_store, sqlite_path, keep, request_of, monkeypatch
) -> None:
    monkeypatch.setattr("tirjudge_server.records.database.LOCK_TIMEOUT_S", 0.2)
    store = open_store(sqlite_path)
    earlier = await keep(store, request_of("Earlier?"))
    other = sqlite3.connect(sqlite_path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    results = await asyncio.gather(*(keep(store) for _ in range(5)), return_exceptions=True)
    assert {type(result) for result in results} == {RecordsUnavailable}
    assert "locked" in str(results[0])
    assert (await store.read(earlier.id)).judgment == earlier
    other.execute("ROLLBACK")
    other.close()
    await keep(store)
    report = verify(store.database)
    assert (report.length, report.broken) == (2, None)


async def test_a_full_database_is_unavailable_stores_nothing_and_recovers(
    open_store, sqlite_path, keep, request_of
) -> None:
    store = open_store(sqlite_path)
    earlier = await keep(store, request_of("Earlier?"))

    def limit(connection, _: object, pages: list[int] = [80]) -> None:  # noqa: B006
        connection.execute(f"PRAGMA max_page_count={pages[0]}")

    event.listen(store.database.engine, "connect", limit)
    store.database.engine.dispose()
    large = request_of("x" * 1_000_000)
    results = await asyncio.gather(*(keep(store, large) for _ in range(3)), return_exceptions=True)
    assert {type(result) for result in results} == {RecordsUnavailable}
    assert "full" in str(results[0])
    assert "xxx" not in str(results[0])
    assert (await store.read(earlier.id)).judgment == earlier
    event.remove(store.database.engine, "connect", limit)
    store.database.engine.dispose()
    await keep(store, large)
    report = verify(store.database)
    assert (report.length, report.broken) == (2, None)


async def test_a_judgment_is_returned_if_records_are_not_required(
    open_store, sqlite_path, keep, request_of, monkeypatch, caplog
) -> None:
    monkeypatch.setattr("tirjudge_server.records.database.LOCK_TIMEOUT_S", 0.1)
    store = open_store(sqlite_path, required=False)
    other = sqlite3.connect(sqlite_path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    judgment = await keep(store)
    assert f"{judgment.id} was not recorded" in caplog.text
    other.execute("ROLLBACK")
    other.close()
    assert await store.read(judgment.id) is None


async def test_unreadable_records_are_unavailable_only_if_required(open_store, sqlite_path, request_of) -> None:
    stores = {required: open_store(sqlite_path, required=required) for required in (True, False)}
    with stores[True].database.writing() as connection:
        connection.execute(text("ALTER TABLE records RENAME TO gone"))
    for call in (Call(), Call(idempotency_key="k")):
        with pytest.raises(RecordsUnavailable):
            await stores[True].recall(request_of(), call=call)
        assert await stores[False].recall(request_of(), call=call) is None


STORES = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
from tests.server.records.conftest import VERSIONS, keep
from tirjudge_server.records.store import Records
from tirjudge_server.records.database import open_database

async def work(store):
    while True:
        print((await keep(store)).id, flush=True)

async def main():
    store = Records(open_database(sys.argv[1]), versions=VERSIONS)
    await asyncio.gather(*(work(store) for _ in range(8)))

asyncio.run(main())
"""


def killed_while_storing(url: str, *, after_s: float) -> list[str]:
    """Return the ids of the judgments that a process reported as stored before it was killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", STORES, url, str(Path(__file__).parents[3])], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    stored = [process.stdout.readline().strip() for _ in range(50)]
    time.sleep(after_s)
    process.kill()
    rest, _ = process.communicate()
    return stored + re.findall(r"^jdg_[0-9a-f]{32}$", rest, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.11])
async def test_a_killed_process_loses_no_stored_judgment(database_url, open_store, after_s: float) -> None:
    stored = killed_while_storing(database_url, after_s=after_s)
    store = open_store(database_url)
    report = verify(store.database)
    assert report.broken is None
    assert report.length >= len(stored) >= 50
    for judgment_id in stored:
        assert (await store.read(judgment_id)) is not None
