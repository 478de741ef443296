"""Tables in DuckDB: CSV, Parquet, JSON and SQLite files, queried with SQL.

The tables are in memory. After loading, the database accepts no other file, extension or setting.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

MAX_ROWS = 1000
"""Maximum number of rows of a result."""

_SHOWN_COLUMNS = 40
_READERS = {
    "csv": "read_csv(?, all_varchar=false, sample_size=-1)",
    "parquet": "read_parquet(?)",
    "json": "read_json_auto(?)",
    "jsonl": "read_json_auto(?, format='newline_delimited')",
}


class Table:
    """Open tables."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.operations = {"describe": self.describe, "sql": self.sql}

    def describe(self) -> dict[str, Any]:
        """Return the number of rows, and a line for each table: its name, its columns and their types."""
        lines, num_rows = [], 0
        tables = self._connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'main' ORDER BY ALL"
        ).fetchall()
        for (name,) in tables:
            columns = self._connection.execute(
                "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = ? "
                "ORDER BY ordinal_position",
                [name],
            ).fetchall()
            (rows,) = self._connection.execute(f"SELECT count(*) FROM {quoted(name)}").fetchone()
            num_rows += rows
            shown = ", ".join(f"{quoted(column)} {kind}" for column, kind in columns[:_SHOWN_COLUMNS])
            more = f", {len(columns) - _SHOWN_COLUMNS} more" if len(columns) > _SHOWN_COLUMNS else ""
            lines.append(f"{quoted(name)}({shown}{more}), {rows:,} rows")
        return {"lines": lines, "size": {"tables": len(tables), "rows": num_rows}}

    def rehearse(self) -> Iterator[None]:
        """Run a small query, for the memory that any query writes."""
        self.sql("SELECT count(*) FROM range(10) GROUP BY range % 2 ORDER BY 1")
        yield

    def sql(self, query: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> list[dict[str, Any]]:
        """Run one statement that reads and return its rows, as column -> value."""
        statements = self._connection.extract_statements(query)
        if len(statements) != 1:
            raise ValueError(f"one statement expected, {len(statements)} given")
        kind = str(statements[0].type).rpartition(".")[2]
        if kind not in ("SELECT", "EXPLAIN"):
            raise ValueError(f"{kind}: the evidence can only be read; write SELECT")
        done = self._connection.execute(query, params or None)
        names = _unique([column[0] for column in done.description])
        rows = done.fetchmany(MAX_ROWS + 1)
        if len(rows) > MAX_ROWS:
            raise ValueError(f"the result has more than {MAX_ROWS:,} rows; aggregate, or add LIMIT")
        return [dict(zip(names, row, strict=True)) for row in rows]


def open_store(files: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> Table:
    """Load each file into a table of its name, and each table of a SQLite file under its own name.

    Raises:
        ValueError: an unknown format, two tables of the same name, or a file that cannot be read.
    """
    connection = duckdb.connect(
        ":memory:", config={"threads": 1, "async_threads": 0, "autoinstall_known_extensions": False}
    )
    # Only attached databases are compressed. Filters and groups then take about a third of the time.
    connection.execute("ATTACH ':memory:' AS evidence (COMPRESS)")
    connection.execute("USE evidence")
    loaded: set[str] = set()
    for file in files:
        for name in _load(connection, file):
            if name in loaded:
                raise ValueError(f"{file['name']}: a second table {name!r}")
            loaded.add(name)
    for statement in (
        "CHECKPOINT",
        "SET autoload_known_extensions=false",
        "SET allow_community_extensions=false",
        "SET memory_limit='512MB'",
        "SET max_expression_depth=500",
        "SET temp_directory=''",
        "SET enable_external_access=false",
        "SET lock_configuration=true",
    ):
        connection.execute(statement)
    return Table(connection)


def _load(connection: Any, file: Mapping[str, Any]) -> list[str]:
    """Load a file; return the names of its tables."""
    if file["format"] in ("sqlite", "db"):
        return _load_sqlite(connection, file["data"])
    if file["format"] not in _READERS:
        raise ValueError(
            f"{file['name']}: format {file['format']!r} given, expected {', '.join((*_READERS, 'sqlite'))}"
        )
    name = re.sub(r"\W", "_", Path(file["name"]).stem) or "table"
    with tempfile.NamedTemporaryFile(suffix=f".{file['format']}") as copy:
        copy.write(file["data"])
        copy.flush()
        try:
            connection.execute(f"CREATE TABLE {quoted(name)} AS SELECT * FROM {_READERS[file['format']]}", [copy.name])
        except duckdb.Error as error:
            raise ValueError(f"{file['name']}: not readable as {file['format']}: {error}") from None
    return [name]


def _load_sqlite(connection: Any, data: bytes) -> list[str]:
    """Copy each table of a SQLite database, through Python's own SQLite: DuckDB would have to load an extension."""
    import sqlite3

    source = sqlite3.connect(":memory:")
    try:
        source.deserialize(data)
        names = [row[0] for row in source.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        names = [name for name in names if not name.startswith("sqlite_")]
        for name in names:
            rows = source.execute(f"SELECT * FROM {quoted(name)}")
            columns = [column[0] for column in rows.description]
            first = rows.fetchmany(1000)
            kinds = [_kind_of(row[number] for row in first) for number in range(len(columns))]
            shape = ", ".join(f"{quoted(column)} {kind}" for column, kind in zip(columns, kinds, strict=True))
            connection.execute(f"CREATE TABLE {quoted(name)} ({shape})")
            marks = ", ".join("?" * len(columns))
            block = first
            while block:
                connection.executemany(f"INSERT INTO {quoted(name)} VALUES ({marks})", block)
                block = rows.fetchmany(1000)
    except (sqlite3.Error, duckdb.Error) as error:
        raise ValueError(f"not readable as a SQLite database: {error}") from None
    finally:
        source.close()
    return names


def _kind_of(values: Any) -> str:
    found = {type(value) for value in values if value is not None}
    if found == {int}:
        return "BIGINT"
    if found and found <= {int, float}:
        return "DOUBLE"
    return "BLOB" if found == {bytes} else "VARCHAR"


def _unique(names: Sequence[str]) -> list[str]:
    """Return the names of columns, with a number at names that occur before."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return found


def quoted(name: str) -> str:
    """Return a name as SQL: as it is if it is a plain lower-case word, otherwise in quotes."""
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'
