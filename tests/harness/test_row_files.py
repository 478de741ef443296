from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tirjudge_harness.items import InputError
from tirjudge_harness.row_files import is_row_file, read_rows, stem_of

ROWS = [{"id": "1", "text": 'a "quoted", text\nof two lines'}, {"id": "2", "text": "é\x00"}]


def written(path: Path) -> Path:
    """Write `ROWS` in the format of the suffix."""
    kind = path.name.removesuffix(".gz").rpartition(".")[2]
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    elif kind == "csv":
        cells = [f'{row["id"]},"{row["text"].replace(chr(34), chr(34) * 2)}"\r\n' for row in ROWS]
        path.write_text("id,text\r\n" + "".join(cells), encoding="utf-8", newline="")
    elif kind == "json":
        path.write_text(json.dumps(ROWS))
    else:
        path.write_text("\n\n".join(map(json.dumps, ROWS)))
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(path.read_bytes()))
    return path


@pytest.mark.parametrize("kind", ["json", "jsonl", "csv", "parquet"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_every_format_gives_the_same_rows(tmp_path: Path, kind: str, suffix: str) -> None:
    path = written(tmp_path / f"rows.{kind}{suffix}")
    assert is_row_file(path)
    assert [row.row for row in read_rows(path)] == ROWS


def test_jsonl_rows_have_line_numbers(tmp_path: Path) -> None:
    assert [row.number for row in read_rows(written(tmp_path / "rows.jsonl"))] == [1, 3]


def test_json_may_be_an_object_with_one_list(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({"version": 1, "data": ROWS}))
    assert [row.row for row in read_rows(path)] == ROWS


def test_a_byte_order_mark_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"\xef\xbb\xbfid\r\n1\r\n")
    assert [row.row for row in read_rows(path)] == [{"id": "1"}]


@pytest.mark.parametrize(
    "content",
    [
        "id;text\r\n1;a, b\r\n",
        "id\ttext\n1\ta, b\n",
        "id|text\n1|a, b\n",
        'id,text\n1,"a, b"\n',
        "sep=;\r\nid;text\r\n1;a, b\r\n",
        '"id","text"\r"1","a, b"\r',
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_separator_is_that_of_the_header_in_every_encoding_of_a_spreadsheet(
    tmp_path: Path, content: str, encoding: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(content.encode(encoding))
    assert [row.row for row in read_rows(path)] == [{"id": "1", "text": "a, b"}]


def test_a_tsv_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv"
    path.write_text("id\ttext\n1\ta\n")
    assert is_row_file(path)
    assert [row.row for row in read_rows(path)] == [{"id": "1", "text": "a"}]


def test_jsonl_in_utf_16_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes('{"a": "é"}\n{"a": "b"}\n'.encode("utf-16"))
    assert [row.row for row in read_rows(path)] == [{"a": "é"}, {"a": "b"}]
    path.write_bytes(b"\xff\xfe{")
    with pytest.raises(InputError, match="not UTF-16, although it begins with its mark"):
        read_rows(path)


def test_blank_rows_count_as_rows_and_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,text\n,\n1,a\n\n,\n2,b\n")
    assert [(row.number, row.row) for row in read_rows(path)] == [
        (2, {"id": "1", "text": "a"}),
        (5, {"id": "2", "text": "b"}),
    ]


def test_a_column_without_a_name_is_called_after_its_place(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(",text , \n0,a,\n")
    assert [row.row for row in read_rows(path)] == [{"column 1": "0", "text": "a", "column 3": ""}]


def test_nan_and_infinity_are_null(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": NaN, "b": -Infinity}')
    assert [row.row for row in read_rows(path)] == [{"a": None, "b": None}]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{oops", "not JSON"),
        (b"[1, 2]", "expected an object, got a list"),
        (b"null", "expected an object, got null"),
        (b'{"a": "\xff"}', "not JSON: 'utf-8' codec"),
        (b"[" * 100_000, "not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
    ],
)
def test_an_invalid_line_does_not_stop_the_others(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n' + content + b'\n{"a": 2}\n')
    first, broken, last = read_rows(path)
    assert (first.row, last.row) == ({"a": 1}, {"a": 2})
    assert broken.row is None
    assert problem in broken.problem
    assert broken.number == 2


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("1,2,3", "expected 2 cells, as in the header, got 3"),
        ("1", "expected 2 cells, as in the header, got 1"),
        ("1,\udcff", "text: not UTF-8"),
    ],
)
def test_an_invalid_csv_row_does_not_stop_the_others(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(f"id,text\n{line}\n2,b\n".encode(errors="surrogateescape"))
    broken, good = read_rows(path)
    assert broken.problem.startswith(problem)
    assert good.row == {"id": "2", "text": "b"}


def test_a_huge_cell_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id\n" + "x" * 1_000_000 + "\n")
    assert [len(row.row["id"]) for row in read_rows(path) if row.row is not None] == [1_000_000]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("rows.txt", b"", r"unknown suffix '\.txt'; expected json, jsonl, csv, tsv, parquet, optionally with \.gz"),
        ("rows", b"", "unknown suffix ''"),
        ("rows.jsonl", b"\n\n", "the file has no rows"),
        ("rows.jsonl", b'[{"a": 1}]', r"one JSON array, not one object per line; rename the file to \.json"),
        ("rows.jsonl", b'\n[\n{"a": 1},\n{"a": 2}\n]\n', "one JSON array, not one object per line"),
        (
            "rows.csv",
            gzip.compress(b"id\n1\n"),
            r"compressed with gzip; rename the file to rows\.csv\.gz, or decompress it",
        ),
        ("rows.csv.gz", gzip.compress(gzip.compress(b"id\n1\n")), "compressed with gzip; decompress it once"),
        ("rows.json", b"", r"not JSON: .*; if each line is an object, rename the file to \.jsonl"),
        ("rows.json", b'{"a": 1}\n{"a": 2}', "not JSON: Extra data"),
        ("rows.json", b'{"a": [], "b": []}', "expected one list of rows, got an object with 2 lists"),
        ("rows.json", b"3", "expected one list of rows, got a number with 0 lists"),
        ("rows.json", b"[]", "the file has no rows"),
        ("rows.csv", b"id,text\n", "the file has no rows"),
        ("rows.csv", b"id,id\n1,2\n", "the header has 2 columns with the name 'id'; rename them"),
        ("rows.csv", b'id,text\n1,"a\n2,b\n', "not CSV: unexpected end of data; a cell with quotes"),
        ("rows.csv", b'id,text\n1,"a \\"b\\" c"\n', "line 2: not CSV: ',' expected after '\"'"),
        ("rows.parquet", b"PAR1", "cannot be read as Parquet"),
        ("rows.jsonl.gz", b"not compressed", "cannot be read"),
        ("rows.jsonl.gz", gzip.compress(b"{}", mtime=0)[:-9], "cannot be read"),
    ],
)
def test_an_unusable_file_is_reported_in_one_line(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=problem) as raised:
        read_rows(path)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be read: .*No such file"):
        read_rows(tmp_path / "rows.jsonl")


def test_the_stem_has_no_format_suffix() -> None:
    names = ["a.jsonl", "a.b-1.csv.gz", "gpt-00000-of-00001.parquet", "state-of-art.json"]
    assert [stem_of(Path(name)) for name in names] == ["a", "a.b-1", "gpt", "state-of-art"]
