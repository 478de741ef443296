"""Time of the list of judgments with filters, over generated records: `Records.page` on SQLite, and on PostgreSQL by URL.

    python benchmarks/record_filters.py --postgres postgresql://USER@HOST/NAME --out benchmarks/results/record_filters.json

The rows are written directly, with contents of a given size, without a hash chain. The database at --postgres must be empty.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from sqlalchemy import text

from benchmarks.reporting import Out, report
from tirjudge_server.records.database import Database, opened
from tirjudge_server.records.filters import RecordFilter
from tirjudge_server.records.record import Versions
from tirjudge_server.records.store import Records

NUM_CALLERS = 20
MODELS = ("bundled", "Qwen/Qwen3-8B", "meta-llama/Llama-3.1-8B-Instruct", "gpt-large")
START_MS = 1_800_000_000_000
PAGE = 51

VERSIONS = Versions(
    model="m",
    fingerprint=None,
    profile_sha256="",
    prompts_sha256="",
    format="tirjudge/1",
    tools=[],
    sandbox=None,
    limits=None,
    package="",
    python="",
)

FILTERS: dict[str, tuple[str | None, RecordFilter]] = {
    "no filter": (None, RecordFilter()),
    "one caller": ("caller-7", RecordFilter()),
    "model": (None, RecordFilter(model="Llama")),
    "mode": (None, RecordFilter(mode="listwise")),
    "tie": (None, RecordFilter(verdict="tie")),
    "verdict B, flipped": (None, RecordFilter(verdict="B", flipped=True)),
    "forced, tool error, guessed": (None, RecordFilter(forced=True, tool_error=True, basis="guessed")),
    "label other": (None, RecordFilter(human="other")),
    "abstained, one caller": ("caller-7", RecordFilter(verdict="abstained")),
    "oldest day": (None, RecordFilter(until_ms=START_MS + 86_400_000)),
    "beginning of an id": (None, RecordFilter(id="jdg_0000000007")),
    "nothing matches": (None, RecordFilter(model="no such model")),
    "nothing matches, all flags": (
        "caller-7",
        RecordFilter(
            forced=True, flipped=True, tool_error=True, basis="guessed", human="tie", mode="listwise", verdict="Z"
        ),
    ),
}
"""Name -> caller whose records are listed (None: all), and conditions."""


COLUMNS = ("seq", "kind", "id", "created_ms", "previous", "hash", "content", "caller", "dialect", "mode", "model", "status",
           "label", "forced", "flipped", "basis", "tool_error", "human", "pruned")  # fmt: skip


def rows_of(number: int, *, content_bytes: int, seed: int) -> Iterator[tuple[Any, ...]]:
    """Yield rows of the table of records, with values for `COLUMNS`."""
    source = random.Random(seed)
    # Random letters, so that PostgreSQL cannot compress them.
    contents = ["".join(source.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=content_bytes)) for _ in range(50)]
    callers = [f"caller-{index}" for index in range(NUM_CALLERS)]
    for seq in range(1, number + 1):
        mode = source.choices(("pairwise", "pointwise", "listwise"), (80, 18, 2))[0]
        status = source.choices(("decided", "tie", "abstained"), (95, 4, 1))[0]
        yield (
            seq, "judgment", f"jdg_{seq:032x}", START_MS + seq * 1_000, "0" * 64, f"{seq:064x}", contents[seq % 50],
            source.choice(callers), "native", mode, source.choice(MODELS), status,
            source.choice("AB") if status == "decided" else None, source.random() < 0.01, source.random() < 0.05,
            source.choice(("checked", "reasoned", "guessed")), source.random() < 0.02,
            source.choice(("agree", "other", "tie")) if source.random() < 0.001 else None, False,
        )  # fmt: skip


def fill(database: Database, rows: Iterator[tuple[Any, ...]]) -> None:
    """Write the rows with the fastest means of the driver, and let PostgreSQL collect its statistics."""
    names = ", ".join(COLUMNS)
    with database.writing() as connection:
        driver: Any = connection.connection.driver_connection
        if database.is_sqlite:
            places = ", ".join("?" * len(COLUMNS))
            driver.executemany(f"INSERT INTO records ({names}) VALUES ({places})", rows)
        else:
            with driver.cursor() as cursor, cursor.copy(f"COPY records ({names}) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
    if not database.is_sqlite:
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE records"))


def cpu_of(database: Database) -> Callable[[], float]:
    """Return a clock of the processor seconds of the database: this process, or the PostgreSQL process of the connection."""
    if database.is_sqlite:
        return time.process_time
    with database.reading() as connection:
        backend = psutil.Process(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())
    return lambda: sum(backend.cpu_times()[:2])


async def measure(database: Database, *, rounds: int) -> dict[str, Any]:
    """Time each filter: wall time, processor time, and the number of rows of the first page."""
    store, found, cpu = Records(database, versions=VERSIONS), {}, cpu_of(database)
    for name, (caller, where) in FILTERS.items():
        times, rows, cpu_started = [], [], cpu()
        for _ in range(rounds):
            started = time.perf_counter()
            rows = await store.page(after=None, limit=PAGE, caller=caller, where=where)
            times.append(time.perf_counter() - started)
        times.sort()
        found[name] = {
            "min_s": round(times[0], 4),
            "median_s": round(times[len(times) // 2], 4),
            "max_s": round(times[-1], 4),
            "cpu_s": round((cpu() - cpu_started) / rounds, 4),
            "num_rows": len(rows),
        }
        print(name, found[name], flush=True)
    return found


def run(url: str, *, rows: int, content_bytes: int, rounds: int, seed: int) -> dict[str, Any]:
    """Fill one database and measure it."""
    with opened(url) as database:
        started = time.perf_counter()
        fill(database, rows_of(rows, content_bytes=content_bytes, seed=seed))
        filled_s = round(time.perf_counter() - started, 1)
        print(f"{database.url.drivername}: {rows} rows in {filled_s} s", flush=True)
        return {"filled_s": filled_s, "filters": asyncio.run(measure(database, rounds=rounds))}


def main(
    rows: Annotated[int, typer.Option(help="Records.")] = 1_000_000,
    content_bytes: Annotated[int, typer.Option(help="Size of a record's content.")] = 2_000,
    rounds: Annotated[int, typer.Option(help="Queries per filter.")] = 5,
    postgres: Annotated[
        str | None, typer.Option(help="URL of an empty PostgreSQL database. Default: SQLite only.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the rows.")] = 0,
    out: Out = None,
) -> None:
    """Measure, and print the result as JSON."""
    given = {"rows": rows, "content_bytes": content_bytes, "rounds": rounds}
    found: dict[str, Any] = {"measured": f"{datetime.now(tz=UTC):%Y-%m-%d}", **given}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "records.db")
        found["sqlite"] = run(path, rows=rows, content_bytes=content_bytes, rounds=rounds, seed=seed)
    if postgres is not None:
        found["postgres"] = run(postgres, rows=rows, content_bytes=content_bytes, rounds=rounds, seed=seed)
    figures = [each for kind in ("sqlite", "postgres") if kind in found for each in found[kind]["filters"].values()]
    slowest = {f"slowest_{name}": max(each[name] for each in figures) for name in ("median_s", "cpu_s")}
    report(found | slowest, out)


if __name__ == "__main__":
    typer.run(main)
