"""Tables in DuckDB: CSV, Parquet, JSON and SQLite files, queried with SQL.

The tables are in memory. After loading, the database accepts no other file, extension or setting.

Values are read as they are written. Of CSV, the first line has the names of the columns, all rows must be as long as it, and
a column has a type only if all its values are in one form: numbers without leading zeros, dates and times of ISO 8601, true
and false. All other columns are text. DuckDB by itself would drop rows of another length, read `01/02/2024` and `epoch` as
dates and `0x1F` as 31, and make long numbers equal. Of JSON, strings stay text except dates and times of ISO 8601.
"""

from __future__ import annotations

import csv
import io
import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import duckdb

MAX_ROWS = 1000
"""Maximum number of rows of a result."""

QUERY_MEMORY_MB = 512
"""Maximum memory of DuckDB for a query in MiB, besides the tables."""

_SHOWN_COLUMNS = 40
_HEAD_CHARS = 1 << 20
_BLOCK_CHARS = 1 << 20
_MESSAGE_CHARS = 300
_HEAD_ROWS = 100
_DELIMITERS = ",;\t|"
_CSV = (
    "read_csv(?, delim={delimiter}, quote='\"', escape='\"', header=true, skip=0, comment='', strict_mode=true, "
    f"null_padding=false, sample_size={_HEAD_ROWS}, all_varchar=true)"
)
_READERS = {
    "csv": _CSV,
    "parquet": "read_parquet(?)",
    "json": "read_json_auto(?, format='array', sample_size=-1, {option})",
    "jsonl": "read_json_auto(?, format='newline_delimited', sample_size=-1, {option})",
}
_NO_DATES = "dateformat='%%', timestampformat='%%'"
"""Option of JSON: no string is a date or a timestamp, except a percent sign, which is neither."""
_ZONED = "TIMESTAMP WITH TIME ZONE"
_UTF8 = ("csv", "json", "jsonl")

_EXACT = 1 << 53
_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = f"{_DATE}[T ]([01][0-9]|2[0-3]):[0-9]{{2}}(:[0-9]{{2}}([.][0-9]{{1,6}})?)?"
_FORM = f"""CASE
WHEN regexp_full_match(cell, ' *-?(0|[1-9][0-9]*) *') THEN CASE
    WHEN TRY_CAST(cell AS BIGINT) BETWEEN -{_EXACT} AND {_EXACT} THEN 'SMALL'
    WHEN TRY_CAST(cell AS BIGINT) IS NOT NULL THEN 'BIGINT'
    WHEN TRY_CAST(cell AS HUGEINT) IS NOT NULL THEN 'HUGEINT'
    ELSE 'VARCHAR' END
WHEN regexp_full_match(cell, ' *-?((0|[1-9][0-9]*)?[.][0-9]+([eE][-+]?[0-9]+)?|[1-9][0-9]*[eE][-+][0-9]+) *') THEN CASE
    WHEN CAST(cell AS DOUBLE) = 0 AND regexp_matches(cell, '^[^eE]*[1-9]') THEN 'VARCHAR'
    WHEN isfinite(CAST(cell AS DOUBLE)) THEN 'DOUBLE'
    ELSE 'VARCHAR' END
WHEN regexp_full_match(cell, ' *{_DATE} *') THEN
    CASE WHEN TRY_CAST(cell AS DATE) >= '0001-01-01' THEN 'DATE' ELSE 'VARCHAR' END
WHEN regexp_full_match(cell, ' *{_TIME} *') THEN
    CASE WHEN TRY_CAST(cell AS TIMESTAMP) >= '0001-01-01' THEN 'TIMESTAMP' ELSE 'VARCHAR' END
WHEN regexp_full_match(cell, ' *{_TIME}(Z|[-+](0[0-9]|1[0-5]):[0-5][0-9]) *') THEN
    CASE WHEN TRY_CAST(cell AS {_ZONED}) >= '0001-01-02 00:00:00Z' THEN '{_ZONED}' ELSE 'VARCHAR' END
WHEN lower(cell) IN ('true', 'false') THEN 'BOOLEAN'
ELSE 'VARCHAR' END"""
"""Form of a cell of CSV: a type that keeps its value, or SMALL, a whole number that both BIGINT and DOUBLE keep. An exponent
needs a sign or a decimal point, because `12e5` can be an identifier."""

_JSON_FORM = f"""CASE
WHEN regexp_full_match(cell, '-?[0-9]+([.][0-9]+([eE][0-9]+)?|[eE][0-9]+)') AND isfinite(CAST(cell AS DOUBLE)) THEN 'DOUBLE'
ELSE {_FORM} END"""
"""Form of a value of JSON, as in `_FORM`: a number may have an exponent without a sign."""

_TEXT_OF_JSON = re.compile(r'"(?:[^"]|"")*"|\b(?:TIME|UUID)(?=[],)[]|$)')
"""In a type: a name in quotes, or a type that DuckDB gives to strings."""

_LONG = "[[:,]-?[0-9]{16,}[],}]"
"""A whole number of 16 digits or more in a nested value of JSON."""

_SQLITE_FORM = f"""CASE typeof({{cell}})
WHEN 'null' THEN NULL
WHEN 'integer' THEN iif({{cell}} BETWEEN -{_EXACT} AND {_EXACT}, 'SMALL', 'BIGINT')
WHEN 'real' THEN 'DOUBLE'
WHEN 'blob' THEN 'BLOB'
ELSE 'VARCHAR' END"""
"""Form of a value of SQLite, as in `_FORM`."""

_TYPES = {
    "BIGINT": {"SMALL", "BIGINT"},
    "HUGEINT": {"SMALL", "BIGINT", "HUGEINT"},
    "DOUBLE": {"SMALL", "DOUBLE"},
    "DATE": {"DATE"},
    "TIMESTAMP": {"DATE", "TIMESTAMP"},
    _ZONED: {_ZONED},
    "BOOLEAN": {"BOOLEAN"},
    "BLOB": {"BLOB"},
}
"""Type of a column -> forms of its values. The first type that fits is taken; without one, the column is text."""


class Table:
    """Open tables."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._keywords = {
            word
            for (word,) in connection.execute(
                "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'"
            ).fetchall()
        }
        self.operations = {"describe": self.describe, "sql": self.sql}

    def describe(self) -> dict[str, Any]:
        """Return the number of rows, and a line for each table: its name, its columns and their types."""
        lines, num_rows = [], 0
        tables = self._connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'main' ORDER BY ALL"
        ).fetchall()
        for (name,) in tables:
            columns = _columns(self._connection, name)
            (rows,) = self._connection.execute(f"SELECT count(*) FROM {quoted(name)}").fetchone()
            num_rows += rows
            shown = ", ".join(f"{self._shown(column)} {kind}" for column, kind in columns[:_SHOWN_COLUMNS])
            more = f", {len(columns) - _SHOWN_COLUMNS} more" if len(columns) > _SHOWN_COLUMNS else ""
            lines.append(f"{self._shown(name)}({shown}{more}), {rows:,} rows")
        return {"lines": lines, "size": {"tables": len(tables), "rows": num_rows}}

    def rehearse(self) -> Iterator[None]:
        """Run a small query, for the memory that any query writes."""
        self.sql("SELECT count(*) FROM range(10) GROUP BY range % 2 ORDER BY 1")
        yield

    def _shown(self, name: str) -> str:
        """Return a name as a query may write it: in quotes only if it needs them."""
        return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) and name not in self._keywords else quoted(name)

    def sql(self, query: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> list[dict[str, Any]]:
        """Run one statement that reads and return its rows, as column -> value."""
        try:
            return self._rows(query, params)
        except duckdb.Error as error:
            raise ValueError(_message(error)) from None

    def _rows(self, query: str, params: Sequence[Any] | Mapping[str, Any]) -> list[dict[str, Any]]:
        statements = self._connection.extract_statements(query)
        if len(statements) != 1:
            raise ValueError(f"one statement expected, {len(statements)} given")
        kind = str(statements[0].type).rpartition(".")[2]
        if kind not in ("SELECT", "EXPLAIN"):
            raise ValueError(f"{kind}: the evidence can only be read; write SELECT")
        done = self._connection.execute(query, params or None)
        names = _unique([column[0] for column in done.description])
        zoned = next((column[0] for column in done.description if _ZONED in str(column[1])), None)
        if zoned is not None:
            raise ValueError(f"{zoned}: {_ZONED} is not supported; cast it to TIMESTAMP or VARCHAR")
        rows = done.fetchmany(MAX_ROWS + 1)
        if len(rows) > MAX_ROWS:
            raise ValueError(f"the result has more than {MAX_ROWS:,} rows; aggregate, or add LIMIT")
        return [dict(zip(names, row, strict=True)) for row in rows]


_prepared: list[Any] = []
"""An empty database, for the next store of this process."""


def prepare() -> None:
    """Open an empty database, and read its catalog once, which creates the views of the catalog. Processes that are forked
    from this one need neither."""
    connection = _connect()
    _columns(connection, "")
    connection.execute("SELECT count(*) FROM duckdb_memory()").fetchall()
    _prepared.append(connection)


def _connect() -> Any:
    """Open an empty database."""
    config: dict[str, Any] = {"threads": 1, "async_threads": 0, "autoinstall_known_extensions": False}
    connection = duckdb.connect(":memory:", config=config)
    connection.execute("SET enable_progress_bar=false")
    # Only attached databases are compressed. Filters and groups then take about a third of the time.
    connection.execute("ATTACH ':memory:' AS evidence (COMPRESS)")
    connection.execute("USE evidence")
    return connection


def _columns(connection: Any, table: str) -> list[tuple[str, str]]:
    """Return the columns of a table with their types, in order."""
    return connection.execute(
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = ? ORDER BY ordinal_position",
        [table],
    ).fetchall()


def open_store(files: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> Table:
    """Load each file into a table of its name, and each table and view of a SQLite file under its own name.

    Args:
        files: the files.
        settings: `is_limited`, whether this process has limits of time and memory already.

    Raises:
        ValueError: an unknown format, two tables of the same name, or a file that cannot be read.
    """
    connection = _prepared.pop() if _prepared else _connect()
    if settings.get("is_limited"):
        connection.execute(f"SET memory_limit='{QUERY_MEMORY_MB}MiB'")
        connection.execute("SET temp_directory=''")
    loaded: set[str] = set()
    for file in files:
        _load(connection, file, loaded=loaded)
    [(used,)] = connection.execute("SELECT CAST(sum(memory_usage_bytes) AS BIGINT) FROM duckdb_memory()").fetchall()
    for statement in (
        "CHECKPOINT",
        "SET autoload_known_extensions=false",
        "SET allow_community_extensions=false",
        f"SET memory_limit='{(used >> 20) + QUERY_MEMORY_MB}MiB'",
        "SET max_expression_depth=500",
        "SET temp_directory=''",
        "SET TimeZone='UTC'",
        "SET enable_external_access=false",
        "SET lock_configuration=true",
    ):
        connection.execute(statement)
    return Table(connection)


def _load(connection: Any, file: Mapping[str, Any], *, loaded: set[str]) -> None:
    """Load a file, and add the names of its tables to `loaded`, in lower case."""
    name, format, data = file["name"], file["format"], file["data"]
    if format == "sqlite":
        _load_sqlite(connection, data, file=name, loaded=loaded)
        return
    if format not in _READERS:
        raise ValueError(f"{name}: format {format!r} given, expected {', '.join((*_READERS, 'sqlite'))}")
    table = re.sub(r"\W", "_", PurePosixPath(name).stem) or "table"
    _add(table, loaded, file=name)
    reader = _READERS[format]
    if format in _UTF8:
        data = _in_utf8(data, file=name)
    if format == "csv":
        reader = reader.format(delimiter=literal(_delimiter(data, file=name)))
    with tempfile.NamedTemporaryFile(suffix=f".{format}") as copy:
        copy.write(data)
        copy.flush()
        try:
            if format in ("json", "jsonl"):
                _load_json(connection, reader, path=copy.name, table=table, num_bytes=len(data))
            else:
                values = _typed(connection, reader, path=copy.name, num_bytes=len(data)) if format == "csv" else "*"
                connection.execute(f"CREATE TABLE {quoted(table)} AS SELECT {values} FROM {reader}", [copy.name])
        except duckdb.Error as error:
            problem = (_ragged(data) if format == "csv" else None) or _message(error, hidden=copy.name)
            raise ValueError(f"{name}: not readable as {format}: {problem}") from None
    _move_to_utc(connection, table)


def _add(table: str, loaded: set[str], *, file: str) -> None:
    """Note the name of a table. Raises ValueError if there is one: SQL does not tell upper from lower case."""
    if table.lower() in loaded:
        raise ValueError(f"{file}: a second table {table!r}")
    loaded.add(table.lower())


def _in_utf8(data: bytes, *, file: str) -> bytes:
    """Return a text file without its byte order mark.

    Raises:
        ValueError: it is empty or not UTF-8.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    if not data.strip():
        raise ValueError(f"{file}: empty")
    return data


def _delimiter(data: bytes, *, file: str) -> str:
    """Return the delimiter of a CSV file: the one that is most frequent in its first line, outside quotes.

    Raises:
        ValueError: the first line is empty, which should have the names of the columns.
    """
    line = re.split(r"[\r\n]", data[:_HEAD_CHARS].decode(errors="ignore"), maxsplit=1)[0]
    if not line.strip():
        raise ValueError(f"{file}: the first line is empty; it must have the names of the columns")
    outside = "".join(line.split('"')[::2])
    return max(_DELIMITERS, key=outside.count)


def _ragged(data: bytes) -> str | None:
    """Return what is wrong with the first row that is not as long as the first line. None: no such row."""
    text = data.decode()
    csv.field_size_limit(max(csv.field_size_limit(), len(data)))
    try:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(data, file=""), strict=True)
        names = next(rows)
        for row in rows:
            if row and len(row) != len(names):
                return f"the row at line {rows.line_num} has {len(row)} of {len(names)} values"
    except csv.Error as error:
        return str(error)
    return (
        "lines end in different ways (CRLF and LF)"
        if "\r\n" in text and text.count("\n") > text.count("\r\n")
        else None
    )


def _typed(connection: Any, reader: str, *, path: str, num_bytes: int) -> str:
    """Return the columns of a CSV file for SELECT, with their types."""
    names = [name for name, *_ in connection.execute(f"DESCRIBE SELECT * FROM {reader}", [path]).fetchall()]
    cells = {name: quoted(name) for name in names}
    kinds = _kinds(connection, reader, cells=cells, form=_FORM, params=[path], num_bytes=num_bytes)
    return ", ".join(
        quoted(name) if kind in ("", "VARCHAR") else f"CAST({quoted(name)} AS {kind}) AS {quoted(name)}"
        for name, kind in kinds.items()
    )


def _kinds(
    connection: Any, source: str, *, cells: Mapping[str, str], form: str, params: Sequence[Any], num_bytes: int
) -> dict[str, str]:
    """Return the type of each column, empty for a column without filled cells. Of a long file, a column that has text in its
    first rows is not examined further.

    Args:
        source: what SELECT reads from, with `params`.
        cells: column -> expression of its cells as text.
        form: expression of the form of `cell`.
    """
    kinds = dict.fromkeys(cells, "")
    for limit in (f"LIMIT {_HEAD_ROWS}", "") if num_bytes > _HEAD_CHARS else ("",):
        candidates = [name for name, kind in kinds.items() if kind != "VARCHAR"]
        if candidates:
            values = ", ".join(f"{cells[name]} AS {quoted(name)}" for name in candidates)
            unpivoted = f"UNPIVOT (SELECT {values} FROM {source} {limit}) ON COLUMNS(*) INTO NAME name VALUE cell"
            query = f"SELECT name, list(DISTINCT {form}) FROM ({unpivoted}) GROUP BY name"
            kinds |= {name: _type_of(forms) for name, forms in connection.execute(query, params).fetchall()}
    return kinds


def _load_json(connection: Any, reader: str, *, path: str, table: str, num_bytes: int) -> None:
    """Load a JSON file, through a table of its values as they are written: `raw`, with the same columns.

    The first query reads all values, not only their types, because that refuses an object with a key twice.
    """
    typed = connection.execute(f"SELECT any_value(COLUMNS(*)) FROM {reader.format(option=_NO_DATES)}", [path])
    described = [(name, str(kind)) for name, kind, *_ in typed.description]
    typed.fetchall()
    for depth in (1, 0):
        source = reader.format(option=f"maximum_depth={depth}")
        connection.execute(f"CREATE OR REPLACE TEMP TABLE raw AS SELECT * FROM {source}", [path])
        if all(kind == "JSON" for _, kind, *_ in connection.execute("DESCRIBE temp.raw").fetchall()):
            break
    kinds = {
        name: _TEXT_OF_JSON.sub(lambda found: found[0] if found[0][0] == '"' else "VARCHAR", kind)
        for name, kind in described
    }
    values = ", ".join(_json_values(connection, kinds, num_bytes=num_bytes))
    connection.execute(f"CREATE TABLE {quoted(table)} AS SELECT {values} FROM temp.raw")
    connection.execute("DROP TABLE temp.raw")


def _json_values(connection: Any, kinds: Mapping[str, str], *, num_bytes: int) -> Iterator[str]:
    """Yield the columns of the table `raw` for SELECT, with their types.

    Args:
        kinds: column -> type without dates, whose decimals may be long whole numbers.
    """
    texts = {name: f"{quoted(name)}->>'$'" for name in kinds}
    unsure = {name: texts[name] for name, kind in kinds.items() if kind in ("VARCHAR", "DOUBLE")}
    found = _kinds(connection, "temp.raw", cells=unsure, form=_JSON_FORM, params=[], num_bytes=num_bytes)
    for name, kind in kinds.items():
        value = quoted(name)
        if kind == "VARCHAR" and found[name] not in ("DATE", "TIMESTAMP", _ZONED):
            value = texts[name]
        elif name in found:
            value = f"CAST({texts[name]} AS {found[name]})"
        elif kind != "JSON" and not ("DOUBLE" in kind and _is_rounded(connection, value, kind=kind)):
            value = f"TRY_CAST({value} AS {kind})"
        yield f"{value} AS {quoted(name)}"


def _is_rounded(connection: Any, value: str, *, kind: str) -> bool:
    """Whether a type rounds a long whole number in a column of nested values.

    Neighbours in a list may share a comma and count once. All of them have one type, so the two counts still differ.
    """
    written, typed = (
        rf"""len(regexp_extract_all(regexp_replace({text}, '"(\\.|[^"\\])*"', '', 'g'), '{_LONG}'))"""
        for text in (f"CAST({value} AS VARCHAR)", f"CAST(to_json(TRY_CAST({value} AS {kind})) AS VARCHAR)")
    )
    query = (
        f"SELECT bool_or({written} <> {typed}) FROM temp.raw WHERE regexp_matches(CAST({value} AS VARCHAR), '{_LONG}')"
    )
    [(is_rounded,)] = connection.execute(query).fetchall()
    return bool(is_rounded)


def _type_of(forms: Iterable[str]) -> str:
    """Return the type of a column whose filled cells have these forms."""
    found = set(forms)
    return next((kind for kind, allowed in _TYPES.items() if found and found <= allowed), "VARCHAR")


def _move_to_utc(connection: Any, table: str) -> None:
    """Change columns of times with a time zone, which Python reads only with another package, to times in UTC."""
    for name in (quoted(name) for name, kind in _columns(connection, table) if kind == _ZONED):
        connection.execute(f"ALTER TABLE {quoted(table)} ALTER {name} TYPE TIMESTAMP USING timezone('UTC', {name})")


def _message(error: Exception, *, hidden: str = "\0") -> str:
    """Return an error without a path, without the text of the file, and without advice on options that users cannot set."""
    text = str(error).replace(hidden, "the file")
    for advice in ("\nPossible", " Try setting", "\nDatabase is launched", " This limit was set", "\n\nLINE "):
        text = text.partition(advice)[0]
    kept = [line.strip() for line in text.split("\n") if not line.startswith("Original Line")]
    return " ".join(kept).removeprefix("Invalid Input Error: ").strip()[:_MESSAGE_CHARS]


def _load_sqlite(connection: Any, data: bytes, *, file: str, loaded: set[str]) -> None:
    """Copy each table and view of a SQLite database, through Python's own SQLite: DuckDB would have to load an extension."""
    import sqlite3

    source = sqlite3.connect(":memory:")
    try:
        if not data.startswith(b"SQLite format 3\0"):
            raise ValueError(f"{file}: not a SQLite database")
        source.deserialize(data)
        source.execute("PRAGMA trusted_schema=OFF")
        listed = source.execute(
            "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type IN ('table', 'view')"
        )
        names = sorted(name for (name,) in listed if not name.startswith("sqlite_"))
        if not names:
            raise ValueError(f"{file}: no tables")
        for name in names:
            _add(name, loaded, file=file)
            _copy(source, connection, name=name)
    except (sqlite3.Error, duckdb.Error, UnicodeError) as error:
        raise ValueError(f"{file}: not readable as a SQLite database: {_message(error)}") from None
    finally:
        source.close()


def _copy(source: Any, connection: Any, *, name: str) -> None:
    """Copy a table of SQLite as JSON. A column has a type if all its values have it, otherwise it is text."""
    columns = [row[0] for row in source.execute(f"SELECT * FROM {quoted(name)} LIMIT 0").description]
    found = ", ".join(f"group_concat(DISTINCT {_SQLITE_FORM.format(cell=quoted(column))})" for column in columns)
    forms = source.execute(f"SELECT {found} FROM {quoted(name)}").fetchone()
    kinds = [_type_of(each.split(",") if each else ()) for each in forms]
    keys = [f"c{number}" for number in range(len(columns))]
    shape = ", ".join(
        f"{quoted(column)} {kind}" for column, kind in zip(_unique(columns, fold=True), kinds, strict=True)
    )
    connection.execute(f"CREATE TABLE {quoted(name)} ({shape})")
    types = ", ".join(
        f"{key}: '{'VARCHAR' if kind == 'BLOB' else kind}'" for key, kind in zip(keys, kinds, strict=True)
    )
    values = ", ".join(f"unhex({key})" if kind == "BLOB" else key for key, kind in zip(keys, kinds, strict=True))
    insert = (
        f"INSERT INTO {quoted(name)} SELECT {values} FROM read_json(?, format='newline_delimited', columns={{{types}}})"
    )
    with tempfile.NamedTemporaryFile(mode="w", suffix=".jsonl", encoding="utf-8") as copy:
        for block in _blocks(source.execute(f"SELECT * FROM {quoted(name)}"), keys=keys, kinds=kinds):
            copy.seek(0)
            copy.truncate()
            copy.write(block)
            copy.flush()
            connection.execute(insert, [copy.name])


def _blocks(rows: Iterable[Sequence[Any]], *, keys: Sequence[str], kinds: Sequence[str]) -> Iterator[str]:
    """Yield rows as lines of JSON, in texts of about 1 MiB: a process in the sandbox may not write large files."""
    lines, num_chars = [], 0
    for row in rows:
        values = (
            value.hex()
            if isinstance(value, bytes)
            else str(value)
            if kind == "VARCHAR" and value is not None
            else value
            for kind, value in zip(kinds, row, strict=True)
        )
        lines.append(json.dumps(dict(zip(keys, values, strict=True)), ensure_ascii=False))
        num_chars += len(lines[-1])
        if num_chars > _BLOCK_CHARS:
            yield "\n".join(lines)
            lines, num_chars = [], 0
    if lines:
        yield "\n".join(lines)


def _unique(names: Sequence[str], *, fold: bool = False) -> list[str]:
    """Return the names of columns, with a number at names that occur before; with `fold`, also in other case."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        key = name.lower() if fold else name
        seen[key] = seen.get(key, 0) + 1
        found.append(name if seen[key] == 1 else f"{name}_{seen[key]}")
    return found


def quoted(name: str) -> str:
    """Return a name for SQL, in quotes."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"
