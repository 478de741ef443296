from __future__ import annotations

import json
from pathlib import Path

import pytest

from tirjudge.types import Mode
from tirjudge_harness.examples import models_of
from tirjudge_harness.item_files import read_item_file
from tirjudge_harness.items import InputError, JudgeSettings, read_tasks
from tirjudge_harness.own_data.mapping import GivenColumns

GOOD = {"id": "good", "prompt": "p", "responses": ["a", "b"]}


@pytest.mark.parametrize("name", ["in.jsonl", "in.jsonl.gz"])
def test_lines_become_requests_by_the_number_of_responses(write_lines, name: str) -> None:
    path = write_lines(
        [
            {"id": 1, "prompt": "p", "responses": ["a"]},
            {"id": "2", "prompt": "p", "responses": ["a", "b"], "label": 1, "subset": "hard", "meta": {}},
            b"\n",
            {"id": "3", "prompt": [{"role": "user", "content": "p"}], "responses": ["a", "b", "c"], "label": None},
        ],
        name=name,
    )
    tasks, bad = read_tasks(path, settings=JudgeSettings(seed=7))
    assert bad == []
    assert [task.request.mode for task in tasks] == [Mode.POINTWISE, Mode.PAIRWISE, Mode.LISTWISE]
    assert [task.item.label for task in tasks] == [None, 1, None]
    assert {task.request.seed for task in tasks} == {7}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"{not json\n", "not JSON"),
        (b"\xff\n", "not JSON"),
        (b"[" * 50_000 + b"\n", "not JSON"),
        (b'{"id": "x", "prompt": "p", "responses": ["a", "b"], "label": NaN}\n', "NaN"),
        (b"[]\n", "not a JSON object"),
        ({"id": None, "prompt": "p", "responses": ["a", "b"]}, "null given"),
        ({"id": "x", "responses": ["a", "b"]}, "prompt: not given"),
        ({"id": "x", "prompt": "p"}, "responses: not given"),
        ({"id": "x", "prompt": "p", "responses": []}, "responses: a list of 0 given; give at least 1"),
        (
            {"id": "x", "prompt": "p", "responses": ["a", "b"], "label": 2},
            "label: 2 is not an index of the 2 responses",
        ),
        ({"id": "x", "prompt": "p", "responses": ["a", "b"], "label": -1}, "label: -1 given"),
        ({"id": "x", "prompt": "p", "responses": ["a", "b"], "label": "0"}, 'label: "0" given'),
        ({"id": "x", "prompt": "p", "responses": ["a", "b"], "label": True}, "label: true given"),
    ],
)
def test_an_invalid_line_is_reported_and_skipped(write_lines, line: dict | bytes, says: str) -> None:
    tasks, bad = read_tasks(write_lines([GOOD, line, GOOD | {"id": "last"}]), settings=JudgeSettings())
    assert [task.item.id for task in tasks] == ["good", "last"]
    assert [one.number for one in bad] == [2]
    assert says in bad[0].problem


def test_three_responses_are_invalid_in_pairwise_mode(write_lines) -> None:
    lines = [GOOD, GOOD | {"id": "three", "responses": ["a", "b", "c"]}]
    tasks, bad = read_tasks(write_lines(lines), settings=JudgeSettings(mode=Mode.PAIRWISE))
    assert len(tasks) == 1
    assert bad[0].problem == "responses: pairwise compares exactly 2 responses, 3 given"


def test_a_byte_order_mark_is_removed(write_lines) -> None:
    tasks, bad = read_tasks(write_lines([b"\xef\xbb\xbf" + json.dumps(GOOD).encode()]), settings=JudgeSettings())
    assert ([task.item.id for task in tasks], bad) == (["good"], [])


def test_an_array_in_a_file_of_lines_is_an_error_that_says_so(write_lines) -> None:
    for content in (json.dumps([GOOD]), f"[\n{json.dumps(GOOD)},\n{json.dumps(GOOD)}\n]"):
        with pytest.raises(InputError, match=r"one JSON array, not one object per line; rename the file to \.json"):
            read_item_file(write_lines([content.encode()]), settings=JudgeSettings())


def test_the_same_id_twice_is_an_error_that_names_both_lines(write_lines) -> None:
    with pytest.raises(InputError, match=r"lines 1 and 3 have the same id, 'good'"):
        read_tasks(write_lines([GOOD, GOOD | {"id": "other"}, GOOD]), settings=JudgeSettings())


def test_the_message_of_a_missing_file_names_it_once(tmp_path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.jsonl: cannot be read: No such file or directory$"):
        read_tasks(tmp_path / "nowhere.jsonl", settings=JudgeSettings())


def test_a_missing_file_and_a_file_that_is_not_gzip_are_errors(write_lines, tmp_path) -> None:
    for path in (tmp_path / "nowhere.jsonl", write_lines([GOOD]).rename(tmp_path / "plain.jsonl.gz")):
        with pytest.raises(InputError, match="cannot be read"):
            read_tasks(path, settings=JudgeSettings())


def test_an_empty_file_is_an_error(write_lines) -> None:
    with pytest.raises(InputError, match=r"in\.jsonl: the file is empty"):
        read_tasks(write_lines([b"\n\n"]), settings=JudgeSettings())


def test_lines_without_ids_get_hashes_of_their_texts(write_lines) -> None:
    line = {"prompt": "p", "responses": ["a", "b"]}
    tasks, bad = read_tasks(write_lines([line, line, line | {"prompt": "q"}, line]), settings=JudgeSettings())
    first, second, other, third = (task.item.id for task in tasks)
    assert bad == []
    assert (second, third) == (f"{first}#2", f"{first}#3")
    assert other not in (first, second, third)


def test_lines_may_name_models_and_a_subset(write_lines) -> None:
    names = {"model_a": " large ", "model_b": "small", "subset": "math"}
    other = {"model_a": 7, "model_b": "small", "subset": ["math"], "id": 5, "label": None}
    lines = [GOOD | names | {"label": 1}, GOOD | other, GOOD | {"id": "q", "prompt": "q"}]
    tasks, bad = read_tasks(write_lines(lines), settings=JudgeSettings())
    assert bad == []
    first, second, third = (task.outline for task in tasks)
    assert (models_of(first), first.subset, first.correct) == (("large", "small"), "math", (1,))
    assert (models_of(second), second.subset, second.correct, second.id) == (None, "", (), "5")
    assert (first.cluster, second.cluster, third.cluster) == (first.id, first.id, "q")


def test_a_reference_is_a_part_of_the_request(write_lines) -> None:
    tasks, _ = read_tasks(write_lines([GOOD, GOOD | {"id": "other", "reference": "r"}]), settings=JudgeSettings())
    assert [task.request.reference for task in tasks] == [None, "r"]
    assert tasks[0].item.sha256 != tasks[1].item.sha256


@pytest.mark.parametrize(
    ("name", "content", "labels"),
    [
        ("a.csv", "prompt,chosen,rejected\np,good,bad\n", [0]),
        ("a.csv", "prompt,response_a,response_b,winner\np,bad,good,B\nq,x,y,tie\nr,x,y,\n", [1, None, None]),
        ("a.csv", "question;answer_1;answer_2\np;x;y\n", [None]),
        ("a.csv", "prompt,response\np,x\n", [None]),
        ("a.csv", "prompt,response_a,response_b,label\np,x,y,blue\n", [None]),
        ("a.jsonl", '{"prompt": "p", "chosen": "good", "rejected": "bad"}\n', [0]),
        ("a.json", '[{"prompt": "p", "responses": ["x", "y", "z"], "best": "C"}, {"prompt": "q", "responses": ["x", "y"]}]',
         [2, None]),
    ],
)  # fmt: skip
def test_own_columns_become_items_with_and_without_labels(
    tmp_path: Path, name: str, content: str, labels: list[int | None]
) -> None:
    path = tmp_path / name
    path.write_text(content)
    read = read_item_file(path, settings=JudgeSettings())
    assert [task.item.label for task in read.tasks] == labels
    assert read.problems == []
    assert read.meaning


def test_unlabeled_rows_with_other_names_are_read_by_named_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("The task;first text;second text\np;x;y\n")
    with pytest.raises(InputError, match="--response-column"):
        read_item_file(path, settings=JudgeSettings())
    given = GivenColumns(prompt=("The task",), responses=("first text", "second text"))
    (task,) = read_item_file(path, settings=JudgeSettings(), given=given).tasks
    assert (task.item.prompt, task.item.responses, task.item.label, task.number) == ("p", ["x", "y"], None, 1)


def test_named_columns_are_read_from_lines_with_responses_too(write_lines) -> None:
    path = write_lines([{"question": "p", "prompt": "other", "responses": ["x", "y"]}])
    given = GivenColumns(prompt=("question",), responses=("responses",))
    assert read_item_file(path, settings=JudgeSettings(), given=given).tasks[0].item.prompt == "p"


def test_an_invalid_row_of_own_columns_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("prompt,chosen,rejected\np,good,bad\nq,,bad\n")
    read = read_item_file(path, settings=JudgeSettings())
    assert len(read.tasks) == 1
    assert "row 2: chosen" in read.problems[0]
