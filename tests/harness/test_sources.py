from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tirjudge_harness.benchmark import Benchmark, HubSource, Row
from tirjudge_harness.columns import text, texts, whole
from tirjudge_harness.examples import Example, example
from tirjudge_harness.items import InputError
from tirjudge_harness.metric_tree import cells_by
from tirjudge_harness.sources import BadRow, load_examples


def examples(row: Row, part: str) -> Iterator[Example]:
    yield example(
        id=text(row, "name"),
        prompt=text(row, "task"),
        responses=texts(row, "answers"),
        correct=(whole(row, "best"),),
        subset=part,
    )


def benchmark(*parts: str, default: tuple[str, ...] = ()) -> Benchmark:
    return Benchmark(
        name="quiz",
        title="Quiz",
        citation="none",
        sources={part: HubSource(id="someone/quiz", split=part) for part in parts},
        parts=default,
        columns=("name", "task", "answers", "best"),
        examples=examples,
        sheet=cells_by("subset", parts),
    )


QUIZ = benchmark("old", "new", default=("new",))


def row(name: str, *, best: object = 0, **more: Any) -> dict[str, Any]:
    return {"name": name, "task": f"Task {name}", "answers": ["yes", "no"], "best": best, **more}


def written(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def loaded(
    data: Path | None, *, of: Benchmark = QUIZ, parts: tuple[str, ...] = ()
) -> tuple[list[Example], list[BadRow]]:
    bad: list[BadRow] = []
    return load_examples(of, data=data, parts=parts, on_bad=bad.append), bad


def test_a_broken_row_is_reported_with_its_file_and_number_and_the_rest_is_kept(tmp_path: Path) -> None:
    path = written(tmp_path / "new.jsonl", row("a"), row("b", best=2), {"name": "c"}, row("d", answers=3), [], row("e"))
    found, bad = loaded(path)
    assert [one.outline.id for one in found] == ["a", "e"]
    assert list(map(str, bad)) == [
        f"{path}: row 2: label 2 given, there are 2 responses, counted from 0",
        f"{path}: row 3: column 'task' is missing",
        f"{path}: row 4: answers: 3 given, a list wanted",
        f"{path}: row 5: a list given, an object wanted",
    ]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (
            [{"name": "a", "tusk": "b"}],
            "row 1: column 'task' is missing; quiz needs name, task, answers, best, or id, ",
        ),
        ([row("a", best=9), row("b", best=8)], "row 1: label 9 given.*; none of 2 rows can be used for quiz"),
        ([row("a", answers=[])], "row 1: label 0 given, there are 0 responses"),
    ],
)
def test_a_file_of_no_use_is_one_error_and_no_report(tmp_path: Path, rows: list[object], problem: str) -> None:
    path = written(tmp_path / "new.jsonl", *rows)
    reported: list[BadRow] = []
    with pytest.raises(InputError, match=problem) as raised:
        load_examples(QUIZ, data=path, on_bad=reported.append)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)
    assert reported == []


def test_what_strangers_wrote_does_not_command_the_terminal(tmp_path: Path) -> None:
    path = written(tmp_path / "new.jsonl", {"na\x1b[31m\nme": 1})
    with pytest.raises(InputError) as raised:
        loaded(path)
    assert str(raised.value).isprintable()


def test_a_folder_has_a_file_a_part_and_only_the_wanted_ones_are_read(tmp_path: Path) -> None:
    written(tmp_path / "old.jsonl", row("a"))
    written(tmp_path / "new.jsonl", row("b"))
    written(tmp_path / "notes.txt", "nothing to read")
    by_default, _ = loaded(tmp_path)
    assert [(one.outline.id, one.outline.subset) for one in by_default] == [("b", "new")]
    both, _ = loaded(tmp_path, parts=("new", "old"))
    assert [one.outline.id for one in both] == ["b", "a"]


def test_pieces_of_a_part_are_read_in_order(tmp_path: Path) -> None:
    for piece, name in ((1, "b"), (0, "a")):
        pq.write_table(pa.Table.from_pylist([row(name)]), tmp_path / f"new-0000{piece}-of-00002.parquet")
    found, _ = loaded(tmp_path)
    assert [one.outline.id for one in found] == ["a", "b"]


def test_a_folder_without_the_part_says_what_there_is(tmp_path: Path) -> None:
    written(tmp_path / "old.jsonl", row("a"))
    with pytest.raises(InputError, match=r"there is no new\.jsonl .*; there is old\.jsonl$"):
        loaded(tmp_path)


def test_rows_of_a_single_file_say_of_which_part_they_are(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.jsonl", row("a", split="old"), row("b", part="new"), row("c"))
    found, _ = loaded(path)
    assert [(one.outline.id, one.outline.subset) for one in found] == [("b", "new"), ("c", "new")]
    with pytest.raises(InputError, match="do not say which part they are of; name one with --part"):
        loaded(path, parts=("old", "new"))


def test_a_single_file_called_after_a_part_is_that_part(tmp_path: Path) -> None:
    path = written(tmp_path / "old.jsonl", row("a"))
    assert loaded(path)[0][0].outline.subset == "old"
    assert loaded(path, parts=("new",))[0][0].outline.subset == "new"


def test_a_file_with_nothing_of_the_wanted_part_says_so(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.jsonl", row("a", split="old"))
    with pytest.raises(InputError, match="all rows are of old; new wanted, see --part"):
        loaded(path)


def test_an_unknown_part_and_a_missing_file_are_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="part: 'odd' given; quiz has old, new"):
        loaded(tmp_path, parts=("odd",))
    with pytest.raises(InputError, match="there is no such file or folder"):
        loaded(tmp_path / "nothing")


def test_one_id_with_two_texts_is_two_examples_and_a_repeated_row_is_one(tmp_path: Path) -> None:
    path = written(tmp_path / "new.jsonl", row("a"), row("a", task="Another"), row("b"), row("a"))
    found, bad = loaded(path)
    assert [(one.outline.id, one.prompt) for one in found] == [("a", "Task a"), ("a#2", "Another"), ("b", "Task b")]
    assert [(report.number, report.problem) for report in bad] == [(4, f"repeats row 1 of {path}")]


def test_examples_of_one_prompt_share_a_cluster(tmp_path: Path) -> None:
    path = written(tmp_path / "new.jsonl", row("a"), row("b"), row("c", task="Task a", answers=["1", "2"]))
    assert [one.outline.cluster for one in loaded(path)[0]] == ["a", "b", "a"]


def test_a_subset_without_a_figure_is_not_lost_unseen(tmp_path: Path) -> None:
    neutral = {"id": "a", "prompt": "?", "responses": ["x", "y"], "label": 0, "subset": "middle"}
    path = written(tmp_path / "new.jsonl", {**neutral, "subset": "new"}, neutral | {"id": "b"})
    found, bad = loaded(path)
    assert len(found) == 1
    assert [report.problem for report in bad] == ["subset: 'middle' given, which no figure of quiz speaks of"]


def test_rows_of_the_shared_layout_need_no_columns_of_the_benchmark(tmp_path: Path) -> None:
    shared = {
        "id": 7,
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "?"}],
        "responses": ["x", "y", "z"],
        "label": None,
        "subset": "new",
        "meta": {"correct": [False, True, True], "difficulty": "hard", "cluster": "c", "answer": [1]},
    }
    path = written(tmp_path / "new.jsonl", row("a"), shared, shared | {"id": 8, "meta": {"correct": [2]}})
    _, marked, indexed = loaded(path)[0]
    assert (marked.outline.id, marked.outline.correct, marked.outline.cluster) == ("7", (1, 2), "c")
    assert marked.outline.tags == {"difficulty": "hard"}
    assert [message.role for message in marked.prompt] == ["system", "user"]  # type: ignore[union-attr]
    assert indexed.outline.correct == (2,)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"label": 2}, "label 2 given, there are 2 responses, counted from 0"),
        ({"label": -1}, "label -1 given, there are 2 responses, counted from 0"),
        ({"label": None}, "no response is said to be right: label is null, and there is no meta.correct"),
        ({"label": 0.5}, "label: 0.5 given, a whole number wanted"),
        ({"label": True}, "label: True given, a whole number wanted"),
        ({"label": "x"}, "label: 'x' given, a whole number wanted"),
        ({"meta": {"correct": [True]}}, "meta.correct: 1 given, one for each of 2 responses wanted"),
        ({"meta": {"correct": []}}, "no response is said to be right"),
        ({"meta": {"correct": [5]}}, "label 5 given, there are 2 responses, counted from 0"),
        ({"responses": ["x", None]}, "responses[1]: null given, a text wanted"),
        ({"responses": []}, "label 0 given, there are 0 responses, counted from 0"),
        ({"prompt": []}, "prompt: no message given, at least one wanted"),
        ({"prompt": None}, "prompt: null given, a list wanted"),
        ({"meta": "x"}, "meta: a text given that is no JSON: 'x'"),
        ({"responses": ["x"] * 1025}, "1025 responses given, 1 to 1024 wanted"),
    ],
)
def test_a_broken_row_of_the_shared_layout_is_reported(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    shared = {"id": "a", "prompt": "?", "responses": ["x", "y"], "label": 0, "subset": "new"}
    _, bad = loaded(written(tmp_path / "new.jsonl", row("a"), {**shared, **change}))
    assert [(report.number, report.problem) for report in bad] == [(2, problem)]


def test_half_characters_and_nul_are_loaded_and_can_be_encoded(tmp_path: Path) -> None:
    path = tmp_path / "new.jsonl"
    path.write_text('{"name": "a", "task": "x\\ud800y\\u0000", "answers": ["\\udfff", "b"], "best": 0}')
    (found,), _ = loaded(path)
    assert (found.prompt, found.responses) == ("x\ufffdy\x00", ("\ufffd", "b"))


def test_a_number_beyond_all_bounds_is_a_broken_row(tmp_path: Path) -> None:
    path = written(tmp_path / "new.jsonl", row("a"))
    path.write_text(path.read_text() + json.dumps(row("b")).replace('"best": 0', '"best": 1e999'))
    assert [report.problem for report in loaded(path)[1]] == ["best: inf given, a whole number wanted"]


def test_cells_of_csv_hold_lists_as_json(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text('name,task,answers,best\na,?,"[""yes"", ""no""]",1\nb,?,yes,0\n')
    (found,), bad = loaded(path)
    assert (found.responses, found.outline.correct) == (("yes", "no"), (1,))
    assert [report.problem for report in bad] == ["answers: a text given that is no JSON: 'yes'"]


def hub(tmp_path: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script without a network: the hub's own cache and offline mode are fixed when its library is imported."""
    environment = {
        **os.environ,
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }
    return subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)


LOAD = """
from tirjudge_harness.benchmark import HubSource
from tirjudge_harness.benchmarks.{module} import BENCHMARK
from tirjudge_harness.sources import load_examples
from dataclasses import replace
benchmark = replace(BENCHMARK, parts=(), sources={sources})
try:
    for found in load_examples(benchmark, data=None, on_bad=print):
        print(found.outline.id, found.outline.subset, found.outline.correct, len(found.responses))
except ValueError as error:
    print(type(error).__name__, error)
"""


def test_splits_of_a_repository_are_loaded_through_the_library(tmp_path: Path) -> None:
    """A repository of the hub's own layout, in a folder: configurations and splits in the header of its README."""
    folder = tmp_path / "repository"
    header = ["---", "configs:"]
    for config in ("codegen", "testgen"):
        header += [f"- config_name: {config}", "  data_files:"]
        for split in ("claude", "gemini"):
            header += [f"  - split: {split}", f"    path: {config}/{split}-*"]
            rows = [
                {
                    "question_id": "q1",
                    "question_content": "?",
                    "difficulty": "easy",
                    "pos_response": "1",
                    "neg_response": "2",
                    **({"pos_input": "a", "neg_input": "b"} if config == "testgen" else {}),
                }
            ]
            (folder / config).mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.Table.from_pylist(rows), folder / config / f"{split}-00000-of-00001.parquet")
    (folder / "README.md").write_text("\n".join([*header, "---", ""]))
    sources = "{" + ", ".join(
        f"{task!r}: HubSource(id={str(folder)!r}, config={task!r}, split='*')" for task in ("codegen", "testgen")
    )
    done = hub(tmp_path, LOAD.format(module="codejudgebench", sources=sources + "}"))
    assert done.stdout.splitlines() == [
        f"{task}/{split}/q1 {task} (0,) 2" for task in ("codegen", "testgen") for split in ("claude", "gemini")
    ], done.stderr


def test_one_file_of_a_repository_and_nested_columns_are_loaded_through_the_library(tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    folder.mkdir()
    rows = [
        {"id": n, "prompt": "?", "chosen": ["a", "b", "c"], "rejected": ["d", "e", "f"], "domain": domain}
        for n, domain in enumerate(["chat", "safety-refuse"])
    ]
    (folder / "total_dataset.json").write_text(json.dumps(rows))
    (folder / "other.json").write_text(json.dumps([{"x": 1}]))
    sources = f"{{'all': HubSource(id={str(folder)!r}, split='train', files='total_dataset.json')}}"
    done = hub(tmp_path, LOAD.format(module="rmbench", sources=sources))
    assert done.stdout.splitlines() == ["chat/0 chat (0, 1, 2) 6", "safety-refuse/1 safety (0, 1, 2) 6"], done.stderr


def test_a_hub_out_of_reach_is_one_line_that_names_the_way_out(tmp_path: Path) -> None:
    sources = "{'gpt': HubSource(id='nobody/nothing', split='gpt')}"
    done = hub(tmp_path, LOAD.format(module="judgebench", sources=sources))
    (line,) = done.stdout.splitlines()
    assert line.startswith("InputError nobody/nothing: cannot be had from the hub: ")
    assert line.endswith("; give its rows with --data FILE")
    assert "Traceback" not in done.stderr


def test_a_split_that_a_repository_does_not_have_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "train.jsonl").write_text(json.dumps(row("a")))
    sources = f"{{'gpt': HubSource(id={str(folder)!r}, split='gpt')}}"
    done = hub(tmp_path, LOAD.format(module="judgebench", sources=sources))
    assert done.stdout.startswith(f"InputError {folder}: cannot be had from the hub: ")
    assert "gpt" in done.stdout
