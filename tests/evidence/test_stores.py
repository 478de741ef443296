"""Stores of tables: what files say, hostile queries, changed files, and stores that come with requests."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import re
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.evidence.conftest import OpenStore, OpenStores, RunProgram, attached
from tirjudge.tools.functions import ToolError
from tirjudge.types import MAX_ATTACHED_BYTES, JudgeRequest
from tirjudge_evidence import stores
from tirjudge_evidence.functions import EvidenceSettings, Stores, open_stores
from tirjudge_evidence.inside import held, table

LOANS = "id,name,amount\n1,Ann,10.5\n2,Bob,20\n3,Cy,30\n"


def loaded(name: str, content: str | bytes, *, format: str = "csv", **settings: Any) -> table.Table:
    data = content.encode() if isinstance(content, str) else content
    return table.open_store([{"name": name, "format": format, "data": data}], settings)


def rows(content: str | bytes, *, format: str = "csv") -> list[dict[str, Any]]:
    return loaded("t", content, format=format).sql("SELECT * FROM t")


def database(script: str) -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.executescript(script)
    return connection.serialize()


def parquet(values: dict[str, Any]) -> bytes:
    written = io.BytesIO()
    pq.write_table(pa.table(values), written, compression="zstd")
    return written.getvalue()


# ---------------------------------------------------------------------------------------------------------------- contents


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("\ufeffid,name\n1,a\n", [{"id": 1, "name": "a"}]),
        ("id;x\n1;1,5\n", [{"id": 1, "x": "1,5"}]),
        ('id,name\n1,"a, ""b"""\n2,"two\nlines"\n', [{"id": 1, "name": 'a, "b"'}, {"id": 2, "name": "two\nlines"}]),
        ("id,name\n", []),
        ("name,city\nann,rome\n", [{"name": "ann", "city": "rome"}]),
        ("a,a,A\n1,2,3\n", [{"a": 1, "a_1": 2, "A_2": 3}]),
        ("zip,ok,country\n00123,true,NO\n", [{"zip": "00123", "ok": True, "country": "NO"}]),
        ("d,e\n2024-01-31,01/02/2024\n", [{"d": "2024-01-31", "e": "01/02/2024"}]),
        ("n\n123456789012345678901234567890\n", [{"n": 123456789012345678901234567890}]),
    ],
    ids=[
        "bom",
        "semicolons",
        "quotes",
        "header only",
        "text only",
        "duplicates",
        "as written",
        "dates",
        "large number",
    ],
)
def test_a_csv_file_is_read_as_it_is_written(content: str, expected: list[dict[str, Any]]) -> None:
    found = [{name: str(value) if name == "d" else value for name, value in row.items()} for row in rows(content)]
    assert found == expected


def column(*cells: str) -> tuple[str, list[Any]]:
    """Type and values of a column of a CSV file with these cells; dates and times as text of ISO 8601."""
    store = loaded("t", "c,other\n" + "".join(f"{cell},x\n" for cell in cells))
    values = [value for row in store.sql("SELECT c FROM t") for value in row.values()]
    kind = store.describe()["lines"][0].removeprefix("t(c ").partition(", other")[0]
    return kind, [held.to_json(value) for value in values]


@pytest.mark.parametrize(
    "cells",
    [
        ["2024-01-01", "infinity", "epoch"],
        ["2024-01-01", "unknown"],
        ["2024/03/01"],
        [r"2024\03\01"],
        ["2024 03 01"],
        ["2024-3-1"],
        ["2024-02-30"],
        ["0000-01-01"],
        ["2024-01-01 (BC)"],
        ["2024-01-01T24:00"],
        ["2024-01-01T10:00:00.1234567"],
        ["2024-01-01T10:00+99:00"],
        ["2024-01-01T10:00", "2024-01-01T10:00Z"],
        ["12:30"],
        ["0x1F"],
        ["-007"],
        ["00.5"],
        ["+5"],
        ["1_000"],
        ["5."],
        ["12e5"],
        ["1e400"],
        ["1.0e+400"],
        ["1.0e-400"],
        ["nan", "inf", "-infinity"],
        ["1" * 41, "1" * 40 + "2"],
        ["1", "170141183460469231731687303715884105728"],
        ["1.5", "9007199254740993", "9007199254740992"],
        ["1", "true"],
        ["1", "2024-01-01"],
        ["1.9", "1.10", "1.10.2"],
    ],
    ids=str,
)
def test_cells_that_are_not_plain_numbers_or_iso_8601_dates_stay_text(cells: list[str]) -> None:
    assert column(*cells) == ("VARCHAR", cells)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", "", "-2", " 3 ", "0"], ("BIGINT", [1, None, -2, 3, 0])),
        (["9007199254740993", "-9223372036854775808"], ("BIGINT", [9007199254740993, -9223372036854775808])),
        (["1", "9223372036854775808", "-" + "9" * 38], ("HUGEINT", [1, 9223372036854775808, -int("9" * 38)])),
        (["1.10", "1.1", "20", "9007199254740992", ".5"], ("DOUBLE", [1.1, 1.1, 20.0, 9007199254740992.0, 0.5])),
        (["1e-07", "2.5E3", "0.0e-5", "-0.25"], ("DOUBLE", [1e-07, 2500.0, 0.0, -0.25])),
        (["2024-02-29", ""], ("DATE", ["2024-02-29", None])),
        (["2024-02-29", "2024-03-01 09:30"], ("TIMESTAMP", ["2024-02-29T00:00:00", "2024-03-01T09:30:00"])),
        (["2024-02-29T23:59:59.25"], ("TIMESTAMP", ["2024-02-29T23:59:59.250000"])),
        (["2024-03-01T00:30:00+02:00"], ("TIMESTAMP", ["2024-02-29T22:30:00"])),
        (["True", "FALSE", ""], ("BOOLEAN", [True, False, None])),
        (["", ""], ("VARCHAR", [None, None])),
    ],
)
def test_columns_of_numbers_dates_and_booleans_have_types(cells: list[str], expected: tuple[str, list[Any]]) -> None:
    assert column(*cells) == expected


@pytest.mark.parametrize(
    ("last", "kind"), [("2", "BIGINT"), ("2.5", "DOUBLE"), ("1" * 41, "VARCHAR"), ("2024-01-01", "VARCHAR")]
)
def test_the_last_cell_of_a_long_file_counts(last: str, kind: str) -> None:
    store = loaded("t", "a,text,late\n" + "1,x,\n" * 300_000 + f"{last},x,5\n")
    assert store.describe()["lines"] == [f"t(a {kind}, text VARCHAR, late BIGINT), 300,001 rows"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "t: empty"),
        (b"\nid\n1\n", "the first line is empty"),
        ("id\ncafé\n".encode("latin-1"), "t: not UTF-8 at byte 6"),
        (b"id,name\n1,a\n2\n", "the row at line 3 has 1 of 2 values"),
        (b"id,name\n1,a\n2,b,c\n", "the row at line 3 has 3 of 2 values"),
        (b'id,name\n1,"a\n2,b\n', "not readable as csv: unexpected end of data"),
        (b"id,name\r\n1,a\n2,b\n", "lines end in different ways"),
    ],
)
def test_a_csv_file_that_cannot_be_read_in_full_is_refused(content: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        rows(content)


def test_a_row_of_another_length_is_found_at_the_end_of_a_long_file() -> None:
    with pytest.raises(ValueError, match="the row at line 30002 has 1 of 2 values"):
        rows("id,name\n" + "1,a\n" * 30_000 + "2\n")


def test_names_that_sql_reserves_are_shown_in_quotes() -> None:
    store = loaded("select.csv", "order,from,plain\n1,2,3\n")
    assert store.describe()["lines"] == ['"select"("order" BIGINT, "from" BIGINT, plain BIGINT), 1 rows']
    assert store.sql('SELECT "order" FROM "select"') == [{"order": 1}]


def test_two_tables_of_the_same_name_are_refused() -> None:
    files = [{"name": name, "format": "csv", "data": b"a\n1\n"} for name in ("loans.csv", "Loans.csv")]
    with pytest.raises(ValueError, match="a second table 'Loans'"):
        table.open_store(files, {})


def test_json_and_parquet_keep_types() -> None:
    assert rows('[{"a": 1, "b": {"c": [1, 2]}}, {"a": 2}]', format="json") == [
        {"a": 1, "b": {"c": [1, 2]}},
        {"a": 2, "b": None},
    ]
    assert rows('{"a": "01/02/2024"}\n{"a": "x"}\n', format="jsonl") == [{"a": "01/02/2024"}, {"a": "x"}]
    assert rows(parquet({"x": [1, None], "s": ["é", ""]}), format="parquet") == [
        {"x": 1, "s": "é"},
        {"x": None, "s": ""},
    ]


def test_the_last_value_of_a_long_json_file_counts() -> None:
    store = loaded("t", '{"a": 1}\n' * 30_000 + '{"a": 1.5}\n', format="jsonl")
    assert store.sql("SELECT max(a) AS a FROM t") == [{"a": 1.5}]


def json_column(*values: str) -> tuple[str, list[Any]]:
    """Type and values of a column of JSON Lines with these values, written as JSON; dates and times as text of ISO 8601."""
    store = loaded("t", "".join(f'{{"c": {value}, "other": 1}}\n' for value in values), format="jsonl")
    kind = store.describe()["lines"][0].removeprefix("t(c ").partition(", other BIGINT)")[0]
    return kind, [held.to_json(row["c"]) for row in store.sql("SELECT c FROM t")]


@pytest.mark.parametrize(
    "texts",
    [
        ["2024-01-01", "epoch", "infinity"],
        ["2024-3-1", "2024-01-01"],
        ["2024-01-01", ""],
        ["2024/03/01"],
        ["01/02/2024"],
        ["10:00", "11:30"],
        ["6F9619FF-8B86-D011-B42D-00CF4FC964FF"],
        ["12", "13"],
        ["1.10", "1e5"],
        ["true", "null"],
        [' é\n"'],
    ],
    ids=str,
)
def test_strings_of_json_that_are_not_iso_8601_dates_stay_as_they_are(texts: list[str]) -> None:
    assert json_column(*map(json.dumps, texts)) == ("VARCHAR", texts)
    assert json_column(*(json.dumps({"d": [text]}) for text in texts)) == (
        "STRUCT(d VARCHAR[])",
        [{"d": [text]} for text in texts],
    )
    assert rows(json.dumps(texts), format="json") == [{"json": text} for text in texts]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (['"2024-02-29"', "null"], ("DATE", ["2024-02-29", None])),
        (
            ['"2024-02-29"', '"2024-03-01 09:30"'],
            ("TIMESTAMP", ["2024-02-29T00:00:00", "2024-03-01T09:30:00"]),
        ),
        (['"2024-03-01T00:30:00+02:00"'], ("TIMESTAMP", ["2024-02-29T22:30:00"])),
        (["1e5", "1E30", "-2.5e-7", "3"], ("DOUBLE", [1e5, 1e30, -2.5e-7, 3.0])),
        (["18446744073709551615", "-1"], ("HUGEINT", [18446744073709551615, -1])),
        (["1" * 30, "1" * 29 + "2"], ("HUGEINT", [int("1" * 30), int("1" * 29 + "2")])),
        (["1" * 40, "1" * 39 + "2"], ("VARCHAR", ["1" * 40, "1" * 39 + "2"])),
        (["9007199254740993", "1.5"], ("VARCHAR", ["9007199254740993", "1.5"])),
        (["1e400"], ("VARCHAR", ["1e400"])),
        (["true", "null"], ("BOOLEAN", [True, None])),
        (["1", '"x"'], ("JSON", ["1", '"x"'])),
    ],
)
def test_columns_of_json_have_types_that_keep_their_values(values: list[str], expected: tuple[str, list[Any]]) -> None:
    assert json_column(*values) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            ['{"id": 1234567890123456789, "x": 0.5}', '{"id": 2, "s": "[1234567890123456789,\\"1]"}'],
            (
                "STRUCT(id BIGINT, x DOUBLE, s VARCHAR)",
                [
                    {"id": 1234567890123456789, "x": 0.5, "s": None},
                    {"id": 2, "x": None, "s": '[1234567890123456789,"1]'},
                ],
            ),
        ),
        (['{"x":9007199254740993}', '{"x":0.5}'], ("JSON", ['{"x":9007199254740993}', '{"x":0.5}'])),
        (["[" + "1" * 30 + "]"], ("JSON", ["[" + "1" * 30 + "]"])),
        (
            ['{"TIME": "10:00", "t, TIME": 1}'],
            ('STRUCT("TIME" VARCHAR, "t, TIME" BIGINT)', [{"TIME": "10:00", "t, TIME": 1}]),
        ),
    ],
)
def test_nested_values_of_json_keep_long_numbers(values: list[str], expected: tuple[str, list[Any]]) -> None:
    assert json_column(*values) == expected


def test_keys_of_json_that_differ_in_case_are_two_columns() -> None:
    assert rows('{"a": "10:00", "A": "epoch"}\n{"A": "x"}\n', format="jsonl") == [
        {"a": "10:00", "A_1": "epoch"},
        {"a": None, "A_1": "x"},
    ]


def test_the_last_string_of_a_long_json_file_counts() -> None:
    store = loaded("t", '{"a": "2024-01-01"}\n' * 60_000 + '{"a": "epoch", "b": "10:00"}\n', format="jsonl")
    assert store.describe()["lines"] == ["t(a VARCHAR, b VARCHAR), 60,001 rows"]


@pytest.mark.parametrize(
    ("format", "content"),
    [
        ("json", b'{"a": 1}'),
        ("json", b"[" * 100_000),
        ("jsonl", b'{"a": 1}\n{"a"\n'),
        ("jsonl", b'{"n": [{"a": 1, "a": 2}]}'),
        ("parquet", b"PAR1....PAR1"),
    ],
)
def test_a_broken_file_is_refused_without_a_path(format: str, content: bytes) -> None:
    with pytest.raises(ValueError, match=f"^t: not readable as {format}: ") as error:
        rows(content, format=format)
    assert "/tmp" not in str(error.value)


def test_a_sqlite_database_keeps_tables_views_and_values() -> None:
    store = loaded(
        "bank.db",
        database(
            "CREATE TABLE t(id INTEGER PRIMARY KEY, x REAL, mixed, b BLOB);"
            "INSERT INTO t VALUES(9223372036854775807, 1.5, 'a', x'00ff'), (2, NULL, 3, NULL);"
            "CREATE TABLE w(k TEXT PRIMARY KEY, v INT) WITHOUT ROWID; INSERT INTO w VALUES('a', 1);"
            'CREATE VIEW "order" AS SELECT k FROM w; CREATE TABLE empty(x);'
        ),
        format="sqlite",
    )
    assert store.sql("SELECT * FROM t ORDER BY id") == [
        {"id": 2, "x": None, "mixed": "3", "b": None},
        {"id": 9223372036854775807, "x": 1.5, "mixed": "a", "b": b"\x00\xff"},
    ]
    assert store.sql('SELECT v, "order".k FROM w JOIN "order" USING (k)') == [{"v": 1, "k": "a"}]
    assert store.describe()["size"] == {"tables": 4, "rows": 4}


def test_whole_numbers_of_sqlite_beside_decimals_do_not_become_equal() -> None:
    content = database(
        "CREATE TABLE t(a, b); INSERT INTO t VALUES(9007199254740993, 1), (9007199254740992, 2.5), (0.5, 3)"
    )
    assert [list(row.values()) for row in rows(content, format="sqlite")] == [
        ["9007199254740993", 1.0],
        ["9007199254740992", 2.5],
        ["0.5", 3.0],
    ]


def test_a_corrupt_sqlite_database_is_refused() -> None:
    whole = database("CREATE TABLE t(a); INSERT INTO t SELECT randomblob(900) FROM pragma_function_list LIMIT 40;")
    for content in (b"", b"no database", whole[:6000], whole[:4096] + os.urandom(len(whole) - 4096)):
        with pytest.raises(ValueError, match="SQLite database"):
            loaded("bank.db", content, format="sqlite")


def test_times_with_a_zone_are_in_utc() -> None:
    store = loaded("t", '[{"at": "2024-01-01T00:00:00+02:00"}]', format="json")
    assert str(store.sql('SELECT "at" FROM t')[0]["at"]) == "2023-12-31 22:00:00"
    with pytest.raises(ValueError, match="cast it to TIMESTAMP or VARCHAR"):
        store.sql("SELECT now() AS now")


# ----------------------------------------------------------------------------------------------------------------- queries


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("COPY facts TO '/tmp/x'", "COPY: the evidence can only be read"),
        ("SELECT * FROM read_csv('/etc/passwd')", "file system operations are disabled"),
        ("SELECT * FROM '/etc/passwd'", "does not exist|disabled"),
        ("SELECT * FROM glob('/etc/*')", "disabled"),
        ("SELECT * FROM sniff_csv('/etc/passwd')", "disabled"),
        ("SELECT * FROM query('SELECT * FROM read_text(''/etc/passwd'')')", "disabled"),
        ("SELECT * FROM query('COPY facts TO ''/tmp/x''')", "Expected a single SELECT"),
        ("EXPLAIN ANALYZE COPY facts TO '/tmp/x'", "disabled"),
        ("FROM 'http://127.0.0.1:9/x.csv'", "disabled"),
        ("SELECT * FROM parquet_metadata('http://127.0.0.1:9/x')", "disabled"),
        ("EXPORT DATABASE '/tmp/x'", "EXPORT: the evidence can only be read"),
        ("IMPORT DATABASE '/tmp'", "can only be read"),
        ("INSTALL httpfs", "LOAD: the evidence can only be read"),
        ("ATTACH '/tmp/a.db'", "ATTACH: the evidence can only be read"),
        ("SET memory_limit='10GB'", "SET: the evidence can only be read"),
        ("PRAGMA enable_profiling", "PRAGMA: the evidence can only be read"),
        ("SELECT set_config('x', 'y')", "does not exist"),
        ("CALL pragma_version()", "can only be read"),
        ("SELECT getenv('PATH')", "getenv does not exist"),
        ("DROP TABLE facts", "DROP: the evidence can only be read"),
        ("WITH x AS (SELECT 1) DELETE FROM facts", "DELETE: the evidence can only be read"),
        ("SELECT 1; SELECT 2", "one statement expected, 2 given"),
        ("", "one statement expected, 0 given"),
        ("SELECT * FROM range(1001)", "more than 1,000 rows"),
        ("SELECT repeat('a', 2000000) FROM range(2)", "bytes, the limit is 1,048,576"),
        ("SELECT " + "(" * 2000 + "1" + ")" * 2000, "depth|Parser|recursion"),
        ("SELECT nope FROM facts", 'Referenced column "nope" not found'),
        ("SELECT * FROM facts WHERE id = ?", "parameter"),
    ],
)
def test_sql_reads_tables_and_nothing_else(query: str, problem: str) -> None:
    store = loaded("facts.csv", LOANS)
    with pytest.raises(ValueError, match=problem):
        limit_answer(store.sql(query))


def limit_answer(result: list[dict[str, Any]]) -> None:
    """Refuse a long result, as `held.answer` does."""
    num_bytes = len(str(result))
    if num_bytes > 1 << 20:
        raise ValueError(f"the result has {num_bytes:,} bytes, the limit is 1,048,576; select less")


@pytest.mark.slow
async def test_a_runaway_query_is_stopped_and_the_store_stays_usable(open_one: OpenStore) -> None:
    store = await open_one("table", {"loans.csv": LOANS}, timeout_s=0.3)
    for query in (
        "SELECT count(*) FROM range(100000000) a, range(1000000) b",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
    ):
        with pytest.raises(ToolError, match=r"stopped after \d+\.\d s, the limit is 0\.3 s of CPU time; ask for less"):
            await store.ask("sql", query=query)
    with pytest.raises(ToolError, match=r"Out of Memory Error: failed to allocate data|needs more than"):
        await store.ask("sql", query="SELECT repeat('a', 2000000000) AS a")
    with pytest.raises(ToolError, match=r"the result has 2,000,0\d\d bytes, the limit is 1,048,576"):
        await store.ask("sql", query="SELECT repeat('a', 2000000) AS a")
    assert await store.ask("sql", query="SELECT name FROM loans WHERE id = ?", params=[2]) == [{"name": "Bob"}]


def test_a_slow_query_shows_no_progress() -> None:
    """DuckDB prints its progress to the standard output, which has the answer."""
    assert loaded("facts.csv", LOANS).sql("SELECT current_setting('enable_progress_bar') AS shown") == [
        {"shown": False}
    ]


def test_an_answer_is_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A library may print before the answer: DuckDB shows the progress of a statement that takes two seconds."""
    monkeypatch.syspath_prepend(str(Path(held.__file__).parent))
    file = {"name": "loans.csv", "format": "csv", "data": base64.b64encode(LOANS.encode()).decode()}
    print("\r100% of something", end="")
    query = {"operation": "sql", "arguments": {"query": "SELECT count(*) AS n FROM loans"}}
    held.answer(json.dumps(query), json.dumps({"kind": "table", "files": [file]}))
    assert capsys.readouterr().out.splitlines()[-1] == '{"result":[{"n":3}]}'


async def test_a_statement_that_explain_runs_changes_only_the_process_of_its_query(open_one: OpenStore) -> None:
    store = await open_one("table", {"loans.csv": LOANS})
    assert await store.ask("sql", query="EXPLAIN ANALYZE DELETE FROM loans")
    assert await store.ask("sql", query="SELECT count(*) AS n FROM loans") == [{"n": 3}]


# ------------------------------------------------------------------------------------------------------- registered stores


async def test_a_store_that_changed_on_disk_is_refused(open_one: OpenStore, tmp_path: Path) -> None:
    store = await open_one("table", {"loans.csv": LOANS})
    path = tmp_path / "loans.csv"
    query = "SELECT count(*) AS n FROM loans"
    os.utime(path)
    assert await store.ask("sql", query=query) == [{"n": 3}]
    path.write_text(LOANS + "4,Di,40\n")
    with pytest.raises(ToolError, match=r"^loans\.csv: the file of the store changed after it was opened"):
        await store.ask("sql", query=query)
    (tmp_path / "new").write_text(LOANS)
    (tmp_path / "new").rename(path)
    assert await store.ask("sql", query=query) == [{"n": 3}]
    (tmp_path / "new").write_text(LOANS.replace("Ann", "Eve"))
    (tmp_path / "new").rename(path)
    with pytest.raises(ToolError, match="changed after it was opened"):
        await store.ask("sql", query=query)
    path.unlink()
    with pytest.raises(ToolError, match=r"loans\.csv: the file of the store is gone"):
        await store.ask("sql", query=query)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"files": ["nope.csv"]}, r"nope\.csv: no such file"),
        ({"files": ["a.xlsx"]}, r"a\.xlsx: unknown suffix; a store of kind table takes \.csv"),
        ({"files": ["bad.csv"]}, r"facts: bad\.csv: not readable as csv: the row at line 2 has 1 of 2 values"),
        ({"files": []}, "at least 1 item"),
        ({"files": ["a.csv"], "timeout_s": 0}, "greater than 0"),
        ({"files": ["a.csv"], "name": "../x"}, "pattern"),
        ({"files": ["a.csv"], "valid_from": "2024-02-01", "valid_until": "2024-01-01"}, "is after valid_until"),
    ],
)
async def test_a_store_that_cannot_be_opened_says_why(
    opened: OpenStores, tmp_path: Path, entry: dict[str, Any], problem: str
) -> None:
    for name, text in {"a.csv": "a\n1\n", "a.xlsx": "x", "bad.csv": "a,b\n1\n"}.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=problem):
        await opened({"name": "facts", "kind": "table", **entry})


async def test_missing_libraries_are_logged_at_the_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_stores(EvidenceSettings()):
        assert caplog.text == ""
    monkeypatch.setattr(stores, "PACKAGES", {"table": ("duckdb", "no-such-library")})
    async with open_stores(EvidenceSettings()):
        assert "evidence lacks no-such-library, so" in caplog.text
        assert "pip install 'tirjudge[evidence]'" in caplog.text


async def test_a_link_and_an_absolute_path_are_files_of_the_operator(opened: OpenStores, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "loans.csv").write_text(LOANS)
    (tmp_path / "link.csv").symlink_to(tmp_path / "data" / "loans.csv")
    files = [{"path": "link.csv", "name": "linked"}, str(tmp_path / "data" / "loans.csv")]
    stores = await opened({"name": "facts", "kind": "table", "files": files, "authority": 3, "world": "closed"})
    card = stores.registered["facts"].card
    assert (card.size, card.authority, card.world) == ({"tables": 2, "rows": 6}, 3, "closed")


# --------------------------------------------------------------------------------------------------------- attached stores


@pytest.mark.slow
async def test_a_store_of_a_request_is_visible_to_this_request_only(
    opened: OpenStores, run_program: RunProgram
) -> None:
    stores = await opened()
    code = "print(stores()[0]['lines'], sql('mine', 'SELECT * FROM t'))"
    other = "try: print(sql('mine', 'SELECT * FROM t'))\nexcept ToolError as error: print(error)\nprint(stores())"
    first, second, third = await asyncio.gather(
        run_program(code, stores, attached("mine", "a\n1\n")),
        run_program(code, stores, attached("mine", "a\n2\n")),
        run_program(other, stores),
    )
    assert first.stdout == "['t(a BIGINT), 1 rows'] [{'a': 1}]\n"
    assert second.stdout == "['t(a BIGINT), 1 rows'] [{'a': 2}]\n"
    assert third.stdout == "sql: store 'mine' does not exist; available: none\n[]\n"
    assert first.calls[1].sources["mine"] != second.calls[1].sources["mine"]
    assert third.calls[0].sources == {}


@pytest.mark.slow
async def test_an_attached_store_with_the_name_of_a_registered_one_is_refused(
    opened: OpenStores, tmp_path: Path, run_program: RunProgram
) -> None:
    (tmp_path / "loans.csv").write_text(LOANS)
    stores = await opened({"name": "loans", "kind": "table", "files": ["loans.csv"]})
    code = (
        "for call in (stores, lambda: sql('loans', 'SELECT 1')):\n try: print(call())\n except ToolError as e: print(e)"
    )
    result = await run_program(code, stores, attached("loans", "a\n1\n"))
    assert result.stdout.count("two stores are named 'loans'") == 2, result
    assert (await run_program("print(sql('loans', 'SELECT 1 AS x'))", stores)).stdout == "[{'x': 1}]\n"


@pytest.fixture
async def bare(opened: OpenStores) -> Stores:
    return await opened()


@pytest.mark.slow
async def test_hostile_attached_files_end_in_an_error_of_the_call(bare: Stores, run_program: RunProgram) -> None:
    bomb = parquet({"x": pa.DictionaryArray.from_arrays(pa.array([0] * 2000, pa.int8()), pa.array(["a" * 1_000_000]))})
    assert len(bomb) < 10_000
    code = (
        "for name in ('bomb', 'path', 'wrong'):\n"
        "    try: print(name, sql(name, 'SELECT 1 AS x'))\n"
        "    except ToolError as error: print(name, error)\n"
        "print(sql('path', 'SELECT * FROM passwd'))"
    )
    result = await run_program(
        code,
        bare,
        attached("bomb", bomb, format="parquet"),
        attached("path", "a\n1\n", file="../../etc/passwd.csv"),
        attached("wrong", "words", kind="documents", format="csv"),
    )
    lines = result.stdout.splitlines()
    stopped = (
        "t: not readable as parquet: Out of Memory Error|the query was stopped after"  # on a slow machine, by its time
    )
    assert re.match(f"bomb sql: (?:{stopped})", lines[0]), result
    assert lines[1:] == [
        "path [{'x': 1}]",
        "wrong sql: wrong is a store of kind documents, which has no sql",
        "[{'a': 1}]",
    ]


@pytest.mark.parametrize(
    ("view", "problem"),
    [
        (
            "SELECT load_extension('/tmp/x.so') AS x",
            "t: not readable as a SQLite database: unsafe use of load_extension",
        ),
        ("SELECT hex(zeroblob(1000000000)) AS x", "string or blob too big"),
        ("SELECT writefile('/tmp/x', 'x') AS x", "no such function: writefile"),
    ],
)
def test_hostile_views_of_a_sqlite_database_are_refused(view: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        rows(database(f"CREATE VIEW v AS {view}"), format="sqlite")


@pytest.mark.slow
async def test_an_attached_file_of_the_maximum_size_is_read(bare: Stores, run_program: RunProgram) -> None:
    text = "a,b\n" + "1,2\n" * (MAX_ATTACHED_BYTES // 4 - 1)
    assert len(text) == MAX_ATTACHED_BYTES
    result = await run_program("print(sql('large', 'SELECT count(*) AS n FROM t'))", bare, attached("large", text))
    assert result.stdout == "[{'n': 1048575}]\n", result


@pytest.mark.parametrize(
    ("evidence", "problem"),
    [
        ([attached("a", "x" * (MAX_ATTACHED_BYTES + 1))], "4,194,305 bytes given, the limit is 4,194,304"),
        ([attached("a", "x"), attached("a", "x")], "two stores named 'a'"),
        ([attached("../a", "x")], "pattern"),
        ([attached(f"s{number}", "x") for number in range(17)], "at most 16 items"),
        ([{"name": "a", "kind": "table", "files": [{"name": "t", "format": "csv", "base64": "?"}]}], "base64"),
        ([{"name": "a", "kind": "table", "files": [{"name": "t", "format": "csv"}]}], "expected `text` or `base64`"),
        ([{"name": "a", "kind": "table", "files": [{"name": "t", "format": "xlsx", "text": ""}]}], "format"),
        ([{"name": "a", "kind": "table", "files": [{"path": "/etc/passwd"}]}], "path"),
    ],
)
def test_a_request_with_wrong_evidence_is_refused(evidence: list[dict[str, Any]], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        JudgeRequest.model_validate({"mode": "pointwise", "prompt": "p", "responses": ["r"], "evidence": evidence})
