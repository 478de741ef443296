from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.harness.commands import run_command
from tirjudge_harness.benchmark import BENCHMARKS, BuiltInSource
from tirjudge_harness.foreign_rows import benchmarks_of
from tirjudge_harness.items import InputError
from tirjudge_harness.sources import load_examples

JUDGEBENCH = {
    "pair_id": "1", "source": "mmlu-pro-math", "question": "q", "response_A": "a", "response_B": "b", "label": "A>B",
}  # fmt: skip
RMBENCH = {"id": "chat/1", "prompt": "p", "chosen": ["a", "b", "c"], "rejected": ["d", "e", "f"], "domain": "chat"}
COMMON = {"id": "1", "prompt": "p", "responses": ["a", "b"], "label": 0, "subset": "math"}


def refusal(tmp_path: Path, benchmark: str, row: dict[str, Any]) -> str:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(InputError) as raised:
        load_examples(BENCHMARKS.named(benchmark), data=path, on_bad=lambda bad: None)
    return str(raised.value)


def test_the_columns_of_another_benchmark_are_recognized(tmp_path: Path) -> None:
    said = refusal(tmp_path, "judgebench", RMBENCH)
    assert "column 'pair_id' is missing" in said
    assert said.endswith("the rows look like those of rmbench")
    # The columns of RewardBench are there, but `chosen` is a list.
    said = refusal(tmp_path, "rewardbench", RMBENCH)
    assert "none of the 1 rows is valid for rewardbench; the rows look like those of rmbench" in said
    assert refusal(tmp_path, "rmbench", JUDGEBENCH).endswith("the rows look like those of judgebench")
    assert "look like" not in refusal(tmp_path, "rmbench", {"a": 1})


@pytest.mark.parametrize(
    ("named", "command"),
    [
        ("rmbench", "`tirjudge bench run rmbench --data {path}`"),
        ("RM-Bench", "`tirjudge bench run rmbench --data {path}`"),
        ("gsm8k_bo4", "`tirjudge bench run --data {path}`, as rows of your own"),
    ],
)
def test_the_field_benchmark_is_compared(tmp_path: Path, named: str, command: str) -> None:
    said = refusal(tmp_path, "judgebench", COMMON | {"benchmark": named})
    path = tmp_path / "rows.jsonl"
    assert said == f"{path}: row 1 belongs to {named!r}, not to judgebench; run it by {command.format(path=path)}"


@pytest.mark.parametrize("named", ["judgebench", "JudgeBench", "judgebench_gpt", "gpt", "", None])
def test_rows_of_the_benchmark_itself_are_read(tmp_path: Path, named: str | None) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(COMMON | {"benchmark": named}) + "\n")
    assert len(load_examples(BENCHMARKS.named("judgebench"), data=path, on_bad=pytest.fail)) == 1


def test_a_benchmark_is_recognized_by_all_its_columns() -> None:
    assert benchmarks_of([JUDGEBENCH]) == ["judgebench"]
    assert benchmarks_of([JUDGEBENCH], but=BENCHMARKS.named("judgebench")) == []
    assert benchmarks_of([{"prompt": "p", "chosen": "a", "rejected": "b"}]) == []
    assert benchmarks_of([]) == []


def test_a_subset_that_no_metric_counts_is_not_that_of_a_benchmark() -> None:
    pair = {"id": 1, "prompt": "p", "chosen": "a", "rejected": "b"}
    assert benchmarks_of([pair | {"subset": "math"}]) == []
    assert benchmarks_of([pair | {"subset": "hep-python"}]) == ["m-rewardbench"]
    assert benchmarks_of([pair | {"subset": "hep-python"}, pair | {"subset": "math"}]) == []


def test_the_items_of_this_package_are_recognized() -> None:
    for name in ("selfcheck", "forged-code", "evidence-claims"):
        source = next(iter(BENCHMARKS.named(name).sources.values()))
        assert isinstance(source, BuiltInSource)
        assert benchmarks_of(source.rows()[:3]) == [name]


def test_the_command_refuses_rows_of_another_benchmark_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(COMMON | {"benchmark": "rmbench"}) + "\n")
    done = run_command(["bench", "run", "judgebench", "--data", str(path), "--out", str(tmp_path / "run")])
    assert done.status == 2
    assert done.stderr.count("\n") == 1
    assert "belongs to 'rmbench', not to judgebench" in done.stderr
