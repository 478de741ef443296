"""Items: messages name the position of an error in a file, and training and held-out items share no prompt."""

import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tirjudge.types import ChatMessage, Mode
from tirjudge_training.items import TrainingItem, read_items, validation_split, write_items

TEXT = TrainingItem(
    id="a",
    mode=Mode.PAIRWISE,
    prompt="2 + 2?",
    responses=("4", "5"),
    best=0,
    task="math",
    source="sums",
    verifiable=True,
    order=(1, 0),
    licence="MIT",
    generator="a model",
)
TALK = replace(
    TEXT,
    id="b",
    mode=Mode.LISTWISE,
    prompt=(ChatMessage(role="user", content="Hi"), ChatMessage(role="assistant", content="Hello 'ä'")),
    responses=("x", "", "z"),
    best=None,
    verifiable=False,
    order=(2, 0, 1),
    licence="",
)
ROW: dict[str, Any] = {
    "id": "r",
    "mode": "pointwise",
    "prompt": "2 + 2?",
    "responses": ["4", "5"],
    "best": 1,
    "task": "math",
    "source": "sums",
    "verifiable": True,
    "order": [0, 1],
}


@pytest.mark.parametrize("name", ["items.parquet", "items.jsonl", "items.jsonl.gz"])
def test_items_survive_a_round_trip_through_a_file(name: str, tmp_path: Path) -> None:
    write_items([TEXT, TALK], tmp_path / name)
    assert read_items(tmp_path / name) == [TEXT, TALK]
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["items.parquet", "items.jsonl"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"best": 2}, "best: 2 given with 2 responses, must be 0 to 1, or null"),
        ({"responses": ["4"]}, "responses: pointwise needs exactly 2, got 1"),
        ({"order": [0, 0]}, "order: expected each of 0 to 1 once, got [0, 0]"),
        ({"mode": "sidewise"}, "mode: Input should be 'pointwise', 'pairwise', 'listwise' or 'rules'"),
        ({"best": "one"}, "best: Input should be a valid integer"),
        ({"verifiable": None}, "verifiable: Input should be a valid boolean"),
    ],
)
def test_error_for_an_invalid_value_names_file_row_and_column(
    name: str, change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    bad = {**ROW, "id": "s", **change}
    _write_rows([ROW, bad] if name.endswith("jsonl") else [bad], tmp_path / name)
    row = 2 if name.endswith("jsonl") else 1
    with pytest.raises(ValueError) as raised:
        read_items(tmp_path / name)
    assert str(raised.value) == f"{tmp_path / name}, row {row}: {message}"


@pytest.mark.parametrize("column", sorted(ROW))
def test_error_names_a_missing_column(column: str, tmp_path: Path) -> None:
    path = tmp_path / "items.parquet"
    _write_rows([{key: value for key, value in ROW.items() if key != column}], path)
    with pytest.raises(ValueError, match=f'row 1: the column "{column}" is missing'):
        read_items(path)


def test_unknown_columns_are_ignored(tmp_path: Path) -> None:
    _write_rows([{**ROW, "split": "train"}], tmp_path / "items.jsonl")
    (item,) = read_items(tmp_path / "items.jsonl")
    assert (item.id, item.best, item.shown()) == ("r", 1, ((0,), (1,)))


def test_duplicate_id_is_rejected(tmp_path: Path) -> None:
    _write_rows([ROW, {**ROW, "id": "s"}, ROW], tmp_path / "items.jsonl")
    with pytest.raises(ValueError, match=r'row 3: id: "r" is also in row 1'):
        read_items(tmp_path / "items.jsonl")
    with pytest.raises(ValueError, match='"a" occurs more than once'):
        write_items([TEXT, TEXT], tmp_path / "twice.parquet")
    assert not (tmp_path / "twice.parquet").exists()


def test_files_that_are_not_item_files_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"no parquet")
    (tmp_path / "broken.jsonl").write_text(json.dumps(ROW) + "\n{")
    with gzip.open(tmp_path / "list.jsonl.gz", "wt") as file:
        file.write("[]\n")
    for name, message in [
        ("none.jsonl", "no such file; `tirjudge train data build --out .*` makes train.parquet"),
        ("", r"is a folder; give a file, such as .*train\.parquet"),
        ("broken.parquet", "not Parquet"),
        ("broken.jsonl", "line 2: not JSON"),
        ("list.jsonl.gz", "line 1: not a JSON object"),
    ]:
        with pytest.raises(ValueError, match=message):
            read_items(tmp_path / name)
    (tmp_path / "items.csv").write_text("id")
    with pytest.raises(ValueError, match=r"give a \.parquet, \.jsonl or"):
        read_items(tmp_path / "items.csv")


def test_request_does_not_force_verdicts_and_keeps_the_order_of_responses() -> None:
    request = TEXT.request(seed=3, temperature=1, tools="off", max_tool_calls=2)
    assert (request.force_verdict, request.temperature, request.seed) == (False, 1.0, 3)
    assert (request.responses, request.tools, request.max_tool_calls) == (["4", "5"], "off", 2)
    assert TEXT.shown() == ((1, 0),)
    assert TALK.request(seed=0, temperature=0.5).prompt == list(TALK.prompt)


def test_each_task_and_mode_has_its_share_held_out_without_shared_prompts() -> None:
    items = [
        replace(TEXT, id=f"{task}{n}{mode}", prompt=f"{task} {n // 2}", task=task, mode=mode, order=(0, 1))
        for task, size in (("math", 400), ("code", 40))
        for n in range(size)
        for mode in (Mode.PAIRWISE, Mode.POINTWISE)
    ]
    training, held_out = validation_split(items, share=0.05, seed=1)
    # 5 % of 400 are 20, 5 % of 40 are 2. Each prompt has four items, two of each mode, so the shares are exact.
    assert Counter((item.task, item.mode) for item in held_out) == {
        ("math", "pairwise"): 20, ("math", "pointwise"): 20, ("code", "pairwise"): 2, ("code", "pointwise"): 2,
    }  # fmt: skip
    assert not {item.prompt for item in training} & {item.prompt for item in held_out}
    assert sorted(item.id for item in (*training, *held_out)) == sorted(item.id for item in items)
    again = validation_split(items[::-1], share=0.05, seed=1)[1]
    assert {item.id for item in again} == {item.id for item in held_out}
    assert validation_split(items, share=0.05, seed=2)[1] != held_out


def test_task_with_two_prompts_has_a_held_out_item_and_with_one_prompt_has_no_held_out_item() -> None:
    pair = [replace(TEXT, id=str(n), prompt=str(n)) for n in range(2)]
    alone = [replace(TEXT, id="alone", task="code")]
    training, held_out = validation_split([*pair, *alone], share=0.05)
    assert [item.task for item in held_out] == ["math"]
    assert sorted(item.task for item in training) == ["code", "math"]
    assert validation_split(pair, share=0.0) == (pair, [])
    with pytest.raises(ValueError, match=r"share: .* got 1"):
        validation_split(pair, share=1)


def _write_rows(rows: list[dict[str, Any]], path: Path) -> None:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
