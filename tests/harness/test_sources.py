from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
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


def test_an_invalid_row_is_reported_with_file_and_number(tmp_path: Path) -> None:
    path = written(tmp_path / "new.jsonl", row("a"), row("b", best=2), {"name": "c"}, row("d", answers=3), [], row("e"))
    found, bad = loaded(path)
    assert [one.outline.id for one in found] == ["a", "e"]
    assert list(map(str, bad)) == [
        f"{path}: row 2: label: 2 is not an index of the 2 responses (counted from 0)",
        f"{path}: row 3: column 'task' is missing",
        f"{path}: row 4: answers: expected a list, got 3",
        f"{path}: row 5: expected an object, got a list",
    ]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (
            [{"name": "a", "tusk": "b"}],
            "row 1: column 'task' is missing; quiz needs name, task, answers, best, or id, .*; the row has name, tusk$",
        ),
        ([row("a", best=9), row("b", best=8)], "row 1: label: 9 is not .*; none of the 2 rows is valid for quiz"),
        ([row("a", answers=[])], "row 1: label: 0 is not an index of the 0 responses"),
    ],
)
def test_an_unusable_file_is_one_error(tmp_path: Path, rows: list[object], problem: str) -> None:
    path = written(tmp_path / "new.jsonl", *rows)
    reported: list[BadRow] = []
    with pytest.raises(InputError, match=problem) as raised:
        load_examples(QUIZ, data=path, on_bad=reported.append)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)
    assert reported == []


def test_control_characters_in_rows_do_not_reach_the_terminal(tmp_path: Path) -> None:
    path = written(tmp_path / "new.jsonl", {"na\x1b[31m\nme": 1})
    with pytest.raises(InputError) as raised:
        loaded(path)
    assert str(raised.value).isprintable()


def test_only_requested_parts_of_a_folder_are_read(tmp_path: Path) -> None:
    written(tmp_path / "old.jsonl", row("a"))
    written(tmp_path / "new.jsonl", row("b"))
    written(tmp_path / "notes.txt", "nothing to read")
    by_default, _ = loaded(tmp_path)
    assert [(one.outline.id, one.outline.subset) for one in by_default] == [("b", "new")]
    both, _ = loaded(tmp_path, parts=("new", "old"))
    assert [one.outline.id for one in both] == ["b", "a"]


def test_shards_of_a_part_are_read_in_order(tmp_path: Path) -> None:
    for piece, name in ((1, "b"), (0, "a")):
        pq.write_table(pa.Table.from_pylist([row(name)]), tmp_path / f"new-0000{piece}-of-00002.parquet")
    found, _ = loaded(tmp_path)
    assert [one.outline.id for one in found] == ["a", "b"]


def test_a_missing_part_is_reported_with_the_files_of_the_folder(tmp_path: Path) -> None:
    written(tmp_path / "old.jsonl", row("a"))
    with pytest.raises(InputError, match=r"new\.jsonl .* is missing; the folder has old\.jsonl$"):
        loaded(tmp_path)


def test_rows_of_a_single_file_name_their_part(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.jsonl", row("a", split="old"), row("b", part="new"), row("c"))
    found, _ = loaded(path)
    assert [(one.outline.id, one.outline.subset) for one in found] == [("b", "new"), ("c", "new")]
    with pytest.raises(InputError, match="do not name their part; choose one with --part"):
        loaded(path, parts=("old", "new"))


def test_the_part_is_taken_from_the_name_of_a_single_file(tmp_path: Path) -> None:
    path = written(tmp_path / "old.jsonl", row("a"))
    assert loaded(path)[0][0].outline.subset == "old"
    assert loaded(path, parts=("new",))[0][0].outline.subset == "new"


def test_a_file_without_rows_of_the_requested_part_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.jsonl", row("a", split="old"))
    with pytest.raises(InputError, match="no row of new; all rows belong to old, see --part"):
        loaded(path)


def test_an_unknown_part_and_a_missing_file_are_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--part: quiz has no part 'odd'; choose old, new"):
        loaded(tmp_path, parts=("odd",))
    with pytest.raises(InputError, match="no such file or folder"):
        loaded(tmp_path / "nothing")


def test_ids_are_made_unique_and_duplicate_rows_are_reported(tmp_path: Path) -> None:
    path = written(tmp_path / "new.jsonl", row("a"), row("a", task="Another"), row("b"), row("a"), row("a", best=1))
    found, bad = loaded(path)
    assert [(one.outline.id, one.prompt) for one in found] == [("a", "Task a"), ("a#2", "Another"), ("b", "Task b")]
    assert [(report.number, report.problem) for report in bad] == [
        (4, f"duplicate of row 1 of {path}"),
        (5, f"duplicate of row 1 of {path}, with another label; keep one of them"),
    ]


def test_examples_of_one_prompt_share_a_cluster(tmp_path: Path) -> None:
    path = written(tmp_path / "new.jsonl", row("a"), row("b"), row("c", task="Task a", answers=["1", "2"]))
    assert [one.outline.cluster for one in loaded(path)[0]] == ["a", "b", "a"]


def test_a_subset_without_a_metric_is_reported(tmp_path: Path) -> None:
    neutral = {"id": "a", "prompt": "?", "responses": ["x", "y"], "label": 0, "subset": "middle"}
    path = written(tmp_path / "new.jsonl", {**neutral, "subset": "new"}, neutral | {"id": "b"})
    found, bad = loaded(path)
    assert len(found) == 1
    assert [report.problem for report in bad] == ["subset: no metric of quiz includes the subset 'middle'"]


def test_the_common_layout_needs_no_columns_of_the_benchmark(tmp_path: Path) -> None:
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
        ({"label": 2}, "label: 2 is not an index of the 2 responses (counted from 0)"),
        ({"label": -1}, "label: -1 is not an index of the 2 responses (counted from 0)"),
        ({"label": None}, "no response is marked as right: label and meta.correct are missing"),
        ({"label": 0.5}, "label: expected an integer, got 0.5"),
        ({"label": True}, "label: expected an integer, got True"),
        ({"label": "x"}, "label: expected an integer, got 'x'"),
        ({"meta": {"correct": [True]}}, "meta.correct: expected 2 values, one per response, got 1"),
        ({"meta": {"correct": []}}, "no response is marked as right"),
        ({"meta": {"correct": [5]}}, "label: 5 is not an index of the 2 responses (counted from 0)"),
        ({"responses": ["x", None]}, "responses[1]: expected a string, got null"),
        ({"responses": []}, "label: 0 is not an index of the 0 responses (counted from 0)"),
        ({"prompt": []}, "prompt: expected at least one message, got none"),
        ({"prompt": None}, "prompt: expected a list, got null"),
        ({"meta": "x"}, "meta: not valid JSON: 'x'"),
        ({"responses": ["x"] * 1025}, "expected 1 to 1024 responses, got 1025"),
    ],
)
def test_an_invalid_row_in_the_common_layout_is_reported(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    shared = {"id": "a", "prompt": "?", "responses": ["x", "y"], "label": 0, "subset": "new"}
    _, bad = loaded(written(tmp_path / "new.jsonl", row("a"), {**shared, **change}))
    assert [(report.number, report.problem) for report in bad] == [(2, problem)]


def test_lone_surrogates_are_replaced_and_nul_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "new.jsonl"
    path.write_text('{"name": "a", "task": "x\\ud800y\\u0000", "answers": ["\\udfff", "b"], "best": 0}')
    (found,), _ = loaded(path)
    assert (found.prompt, found.responses) == ("x\ufffdy\x00", ("\ufffd", "b"))


def test_an_infinite_number_is_an_invalid_row(tmp_path: Path) -> None:
    path = written(tmp_path / "new.jsonl", row("a"))
    path.write_text(path.read_text() + json.dumps(row("b")).replace('"best": 0', '"best": 1e999'))
    assert [report.problem for report in loaded(path)[1]] == ["best: expected an integer, got inf"]


def test_cells_of_csv_hold_lists_as_json(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text('name,task,answers,best\na,?,"[""yes"", ""no""]",1\nb,?,yes,0\n')
    (found,), bad = loaded(path)
    assert (found.responses, found.outline.correct) == (("yes", "no"), (1,))
    assert [report.problem for report in bad] == ["answers: not valid JSON: 'yes'"]


class FakeDatasets(ModuleType):
    """A double of the package `datasets`, whose import takes seconds. The slow tests below use the real package."""

    def __init__(self, splits: dict[str, list[dict[str, Any]]]) -> None:
        super().__init__("datasets")
        self.exceptions = ModuleType("datasets.exceptions")
        self.exceptions.DatasetsError = type("DatasetsError", (Exception,), {})  # type: ignore[attr-defined]
        self.splits = splits
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def load_dataset(self, id: str, **arguments: Any) -> Any:
        self.calls.append((id, arguments))
        if arguments["split"] is None:
            return self.splits
        if arguments["split"] not in self.splits:
            raise ValueError("Unknown split")
        return self.splits[arguments["split"]]


@pytest.fixture
def datasets(monkeypatch: pytest.MonkeyPatch) -> FakeDatasets:
    fake = FakeDatasets({"old": [row("a")], "new": [row("b"), row("c", best=5)]})
    monkeypatch.setitem(sys.modules, "datasets", fake)
    monkeypatch.setitem(sys.modules, "datasets.exceptions", fake.exceptions)
    return fake


def test_default_parts_are_loaded_from_the_hub(datasets: FakeDatasets) -> None:
    found, bad = loaded(None)
    assert [one.outline.id for one in found] == ["b"]
    assert [str(one) for one in bad] == [
        "someone/quiz/new@main: row 2: label: 5 is not an index of the 2 responses (counted from 0)"
    ]
    arguments = {"name": None, "data_files": None, "split": "new", "revision": "main"}
    assert datasets.calls == [("someone/quiz", arguments)]


def test_all_splits_of_a_part_are_loaded_with_their_names(datasets: FakeDatasets) -> None:
    del datasets.splits["new"][1]
    every = replace(QUIZ, sources={"new": HubSource(id="someone/quiz", split="*", config="c")}, parts=())
    found, bad = loaded(
        None, of=replace(every, examples=lambda row, part: examples({**row, "task": row["split"]}, part))
    )
    assert [(one.outline.id, one.prompt) for one in found] == [("a", "old"), ("b", "new")]
    assert bad == []


def test_a_failed_download_names_the_alternative(datasets: FakeDatasets) -> None:
    del datasets.splits["new"]
    with pytest.raises(
        InputError, match="someone/quiz: cannot be downloaded: Unknown split; give the rows with --data FILE"
    ):
        loaded(None)


def hub(tmp_path: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script without a network in a new process, because `datasets` reads these variables when it is imported."""
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


@pytest.mark.slow
def test_splits_of_a_repository_are_loaded(tmp_path: Path) -> None:
    """A local folder in the layout of a hub repository, with configurations and splits in the header of its README."""
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


@pytest.mark.slow
def test_one_file_of_a_repository_is_loaded(tmp_path: Path) -> None:
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


@pytest.mark.slow
def test_an_unreachable_hub_is_reported_in_one_line_with_advice(tmp_path: Path) -> None:
    sources = "{'gpt': HubSource(id='unknown/repository', split='gpt')}"
    done = hub(tmp_path, LOAD.format(module="judgebench", sources=sources))
    (line,) = done.stdout.splitlines()
    assert line.startswith("InputError unknown/repository: cannot be downloaded: ")
    assert line.endswith("; give the rows with --data FILE")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_missing_split_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "train.jsonl").write_text(json.dumps(row("a")))
    sources = f"{{'gpt': HubSource(id={str(folder)!r}, split='gpt')}}"
    done = hub(tmp_path, LOAD.format(module="judgebench", sources=sources))
    assert done.stdout.startswith(f"InputError {folder}: cannot be downloaded: ")
    assert "gpt" in done.stdout
