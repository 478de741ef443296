from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.harness.batch.scripted_judge import pair
from tirjudge.types import Mode
from tirjudge_harness.batch import inputs
from tirjudge_harness.batch.inputs import BadRequestRow, RequestRow, files_of, row_ranges_of, rows_in
from tirjudge_harness.items import InputError


def read(path: Path) -> list[RequestRow | BadRequestRow]:
    return [row for part in row_ranges_of(str(path)) for row in rows_in(part)]


def rows_of(path: Path) -> list[RequestRow]:
    rows = read(path)
    assert all(isinstance(row, RequestRow) for row in rows), rows
    return [row for row in rows if isinstance(row, RequestRow)]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=3)
    else:
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("name", ["in.jsonl", "in.jsonl.gz", "in.parquet"])
def test_every_format_gives_the_same_rows(write_lines, tmp_path: Path, name: str, monkeypatch) -> None:
    monkeypatch.setattr(inputs, "RANGE_ROWS", 4)
    monkeypatch.setattr(inputs, "GZIP_RANGE_ROWS", 4)
    plain = [pair(n, votes=3) for n in range(10)]
    wanted = rows_of(write_lines(plain, name="wanted.jsonl"))
    path = write(tmp_path / name, plain)
    rows = rows_of(path)
    assert [(row.key, row.number, row.digest, row.request) for row in rows] == [
        (row.key, row.number, row.digest, row.request) for row in wanted
    ]
    assert [row.key for row in rows] == [f"k{n}" for n in range(10)]
    assert [row.number for row in rows] == list(range(1, 11))
    ranges = list(row_ranges_of(str(path)))
    assert len(ranges) > 2
    assert [row.number for row in rows_in(ranges[1])] == list(range(ranges[1].start, ranges[1].end))


def test_default_key_is_the_hash_of_the_request(write_lines) -> None:
    unnamed = {name: value for name, value in pair(1).items() if name != "key"}
    rows = rows_of(write_lines([unnamed, unnamed | {"stream": True}, unnamed | {"seed": 1}, {**unnamed, "key": 7}]))
    assert rows[0].key == rows[0].digest == rows[1].key
    assert rows[2].key != rows[0].key
    assert (rows[3].key, rows[3].digest) == ("7", rows[0].digest)


def test_default_mode_depends_on_the_number_of_responses(write_lines) -> None:
    rows = rows_of(
        write_lines([{"prompt": "p", "responses": ["a"] * n} for n in (1, 2, 3)] + [pair(0, mode="pointwise")])
    )
    assert [row.request.mode for row in rows] == [Mode.POINTWISE, Mode.PAIRWISE, Mode.LISTWISE, Mode.POINTWISE]


def test_null_in_parquet_means_the_default(tmp_path: Path) -> None:
    rows = [
        pair(0, votes=5, criteria=[{"text": "brief", "weight": 2.0}]),
        pair(1, criteria=[{"text": "true"}]),
        pair(2),
    ]
    read = rows_of(write(tmp_path / "in.parquet", rows))
    assert [row.request.votes for row in read] == [5, 1, 1]
    assert read[1].request.criteria is not None
    assert [criterion.weight for criterion in read[1].request.criteria] == [1.0]
    assert read[2].request.criteria is None


def test_a_conversation_is_read_from_parquet(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "p"}, {"role": "assistant", "content": "a"}]
    (row,) = rows_of(write(tmp_path / "in.parquet", [pair(0, prompt=talk)]))
    assert [message["role"] for message in row.request.model_dump()["prompt"]] == ["user", "assistant"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"{not json\n", "not JSON"),
        (b"\xff\n", "not JSON"),
        (b"[" * 50_000 + b"\n", "not JSON"),
        (b"[]\n", "not a JSON object"),
        ({"prompt": "p"}, "responses: not given"),
        (pair(0, vote=3), "vote: unknown field"),
        (pair(0, votes=0), "votes: 0 given"),
        (pair(0, mode="listwise", responses=["a"]), "listwise compares at least 2"),
        (pair(0, key=""), 'key: expected an integer or a string of 1 to 512 characters, got ""'),
        (pair(0, key="k" * 513), "key: "),
        (pair(0, key=True), "characters, got true"),
        (pair(0, key=["k"]), "characters, got a list of 1"),
    ],
)
def test_an_invalid_row_is_reported_and_skipped(write_lines, line: Any, says: str) -> None:
    path = write_lines([pair(1), b"\n", line, pair(2)])
    first, bad, last = read(path)
    assert isinstance(bad, BadRequestRow)
    assert says in bad.problem
    assert (bad.file, bad.number) == (str(path), 3)
    assert isinstance(first, RequestRow)
    assert isinstance(last, RequestRow)
    assert (first.key, last.key) == ("k1", "k2")


def test_a_lone_surrogate_in_a_key_is_replaced(write_lines) -> None:
    (row,) = rows_of(write_lines([pair(0, key="\ud800")]))
    assert row.key == "\ufffd"


def test_files_are_found_in_folders(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("b.jsonl", "a.parquet", "sub/c.jsonl.gz", "notes.txt", "_d.parquet", ".e.jsonl"):
        (tmp_path / name).touch()
    named = [Path(file).relative_to(tmp_path) for file in files_of([tmp_path / "b.jsonl", tmp_path])]
    assert [str(file) for file in named] == ["b.jsonl", "a.parquet", "sub/c.jsonl.gz"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no.jsonl", "no such file or folder"),
        ("in.csv", "unknown suffix '.csv'"),
        ("dir", "has no file with one of the suffixes"),
    ],
)
def test_invalid_inputs_are_rejected(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "in.csv").touch()
    (tmp_path / "dir").mkdir()
    with pytest.raises(InputError, match=says):
        files_of([tmp_path / name])


@pytest.mark.parametrize(
    ("name", "says"), [("in.jsonl.gz", "cannot be read"), ("in.parquet", "cannot be read as Parquet")]
)
def test_a_file_with_the_wrong_format_is_rejected(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / name).write_bytes(b"no\n" * 10)
    with pytest.raises(InputError, match=says):
        read(tmp_path / name)


def test_a_truncated_gzip_file_is_rejected(tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl.gz", [pair(n) for n in range(1000)])
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="cannot be read"):
        read(path)


def test_a_file_name_that_is_not_utf8_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    Path(os.fsdecode(bytes(tmp_path / "in") + b"/\xe9.jsonl")).write_text(json.dumps(pair(1)) + "\n")
    with pytest.raises(InputError, match="the file name is not valid UTF-8"):
        files_of([tmp_path / "in"])


def test_the_output_folder_is_not_an_input(write_lines, tmp_path: Path) -> None:
    given = write_lines([pair(1)])
    (tmp_path / "out" / "results").mkdir(parents=True)
    (tmp_path / "out" / "bad.jsonl").write_text("{}\n")
    assert files_of([tmp_path], out=tmp_path / "out") == [str(given.resolve())]
    with pytest.raises(InputError, match="all input files are in the output folder"):
        files_of([tmp_path / "out"], out=tmp_path / "out")
