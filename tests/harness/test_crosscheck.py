"""`benchmarks/crosscheck.py`, on a folder with the layout that the script expects."""

from __future__ import annotations

import gzip
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

SCRIPTS = Path(__file__).parents[2] / "benchmarks"

Crosscheck = Callable[..., tuple[int, dict[str, Any]]]

GAMES = [
    ("p", "mmlu-pro-law", "A>B", ["A>B", "A=B"]),
    ("q", "mmlu-pro-law", "A>B", ["A>B", "A>B"]),
    ("r", "livecodebench", "B>A", ["B>A", "A>B"]),
]
"""Pair, source, label, and the decisions in both orders. The majority decisions are, in order: right, tie, right."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [
        {
            "judge": "j",
            "split": "gpt",
            "pair_id": id,
            "source": source,
            "label": label,
            "decisions": decisions,
            "scores": None,
        }
        for id, source, label, decisions in GAMES
    ]
    runs = [
        {
            "benchmark": "humanevalplus",
            "model": "m",
            "published": {"humaneval": {"pass@1": 66.7}, "humaneval+": {"pass@1": 33.3}},
            "status": {"0": [["pass", "pass"]], "1": [["pass", "fail"]], "2": [["fail", "fail"]]},
        }
    ]
    for name, lines in (("games", rows), ("runs", runs)):
        with gzip.open(tmp_path / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    return tmp_path


@pytest.fixture
def crosscheck(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Crosscheck:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    main = importlib.import_module("crosscheck").main

    def run(*cases: dict[str, Any], tables: Path | None = None) -> tuple[int, dict[str, Any]]:
        (folder / "expected.json").write_text(json.dumps({"cases": cases}), encoding="utf-8")
        out, status = folder / "out.json", 0
        try:
            main(folder, tables=tables, out=out)
        except typer.Exit as ended:
            status = ended.exit_code
        return status, json.loads(out.read_text(encoding="utf-8"))

    return run


def games(**official: float) -> dict[str, Any]:
    select = {"judge": "j", "split": "gpt"}
    return {
        "id": "games",
        "kind": "judgebench",
        "file": "games.jsonl.gz",
        "select": select,
        "official_code_output": official,
        "published": {"overall": 66.6},
    }


def test_published_values_are_reproduced(crosscheck: Crosscheck) -> None:
    code = {"id": "code", "kind": "code", "file": "runs.jsonl.gz"}
    status, found = crosscheck(games(overall=66.67, knowledge=50.0, coding=100.0), code)
    assert status == 0
    assert found["counts"] == {"same": 5, "cut": 1, "explained": 0, "differs": 0}
    ours = {one["figure"]: one["ours"] for one in found["figures"]}
    assert ours["overall, decisions"] == pytest.approx(200 / 3)
    assert ours["humaneval pass@1"] == pytest.approx(200 / 3)
    assert ours["humaneval+ pass@1"] == pytest.approx(100 / 3)


def test_an_unexplained_difference_fails(crosscheck: Crosscheck) -> None:
    status, found = crosscheck(games(knowledge=50.01))
    assert status == 1
    (wrong,) = [one for one in found["figures"] if one["verdict"] == "differs"]
    assert (wrong["figure"], wrong["ours"]) == ("knowledge, decisions", 50.0)
    assert wrong["difference"] == pytest.approx(-0.01)


def test_averages_of_rounded_values_may_differ_by_a_tenth(folder: Path, crosscheck: Crosscheck) -> None:
    wide = "judge,ppe_mmlu_pro,ppe_math,ppe_gpqa,ppe_mbpp_plus,ppe_ifeval,ppe_avg,rewardbench,rm_bench,judgebench\n"
    (folder / "table1_main.csv").write_text(
        f"{wide}a,60,70,80,90,50,70.1,,,\nb,60,70,80,90,50,70.2,,,\nc,60,70,,,,65,,,\n", encoding="utf-8"
    )
    (folder / "table2_rewardbench2.csv").write_text(
        "judge,if,math,factuality,focus,safety,avg\na,10,20,30,40,50,30.0\n", encoding="utf-8"
    )
    benchmarks = {
        "rewardbench": ("chat", "chat_hard", "safety", "reasoning", "avg"),
        "rm_bench": ("chat", "math", "code", "safety", "avg"),
        "judgebench": ("math", "code", "knowledge", "reasoning", "avg"),
    }
    columns = [f"{benchmark}_{part}" for benchmark, parts in benchmarks.items() for part in parts]
    # Plain means of four; JudgeBench is weighted by 56, 42, 154 and 98 pairs: (56*50 + 42*100 + 154*0 + 98*100) / 350 = 48.
    values = [90, 80, 70, 60, 75.0, 90, 80, 70, 60, 75.0, 50, 100, 0, 100, 48.0]
    (folder / "table5_subsets.csv").write_text(
        f"judge,{','.join(columns)}\na,{','.join(map(str, values))}\n", encoding="utf-8"
    )
    status, found = crosscheck({"id": "tables", "kind": "tir"}, tables=folder)
    verdicts = {(one["case"], one["figure"]): one["verdict"] for one in found["figures"]}
    assert verdicts == {
        ("tir: a", "PPE average"): "same",
        ("tir: b", "PPE average"): "differs",
        ("tir: a", "RewardBench average"): "same",
        ("tir: a", "RM-Bench average"): "same",
        ("tir: a", "JudgeBench average"): "same",
        ("tir: a", "RewardBench 2 average"): "same",
    }
    assert status == 1
