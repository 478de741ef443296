"""A package from outside registers one of each kind; all of it works from the command line and over HTTP as it is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

TOY = Path(__file__).parent / "toys" / "tirjudge_toy"
TIRJUDGE = Path(sys.executable).with_name("tirjudge")
JUDGE = ("--judge", "toy:7", "--format", "toy/1", "--tool", "words")
ENTRY_POINTS = """
[tirjudge.formats]
toy/1 = tirjudge_toy.format:FORMAT
[tirjudge.tools]
words = tirjudge_toy.tool:TOOL
[tirjudge.engines]
toy = tirjudge_toy.engine:ENGINE
[tirjudge.strategies]
ladder = tirjudge_toy.strategy:STRATEGY
[tirjudge.dialects]
toy = tirjudge_toy.dialect:DIALECT
[tirjudge.trainers]
toy = tirjudge_toy.trainer:TRAINER
[tirjudge.benchmarks]
toy-lengths = tirjudge_toy.benchmark:BENCHMARK
"""
SHORT, LONGER, LONGEST = "Rain.", "It rains today.", "It rains today, and then it rains again."


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an installer leaves behind: the package, and a record of its entry points."""
    folder = tmp_path_factory.mktemp("packages")
    shutil.copytree(TOY, folder / "tirjudge_toy", ignore=shutil.ignore_patterns("__pycache__"))
    record = folder / "tirjudge_toy-1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: tirjudge-toy\nVersion: 1.0\n")
    (record / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder


def environment(packages: Path, state: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(packages), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": path, "XDG_STATE_HOME": str(state)}


def run(*arguments: str | Path, packages: Path, state: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TIRJUDGE, *arguments], env=environment(packages, state), capture_output=True, text=True, check=False
    )


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_format_tool_and_engine_judge_a_file(packages: Path, tmp_path: Path) -> None:
    row = {"id": 1, "mode": "pairwise", "prompt": "Describe rain.", "responses": [SHORT, LONGER], "label": 1}
    items = write(tmp_path / "items.jsonl", [row])
    done = run("judge", items, "--out", tmp_path / "out.jsonl", *JUDGE, packages=packages, state=tmp_path)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "out.jsonl").read_text())
    assert record["correct"] == 1.0
    judgment = record["judgment"]
    assert (judgment["model"], judgment["verdict"]["best"]) == ("toy-judge", 1)
    turns = judgment["rollouts"][0]["turns"]
    assert [(turn.get("tool"), turn["code"], turn["outcome"]) for turn in turns] == [
        ("words", "a", "ok"),
        ("words", "b", "ok"),
        (None, None, None),
    ]
    assert sorted(turn["output"] for turn in turns[:2]) == ["1", "3"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--judge", "toy:x"), "toy:x given; a score from 1 to 9 is needed"),
        (("--judge", "nosuch:x"), "engine: 'nosuch' given; known are chat, embedded, toy, vllm, vllm-inprocess"),
        (("--judge", "toy:7", "--format", "toy/2"), "format: 'toy/2' given; known are tirjudge/1, toy/1"),
        (("--judge", "toy:7", "--tool", "saw"), "tool: 'saw' given; known are python, words"),
        (("--format", "toy/1"), "tirjudge-tiny was trained for tirjudge/1"),
    ],
)
def test_a_kind_that_does_not_exist_is_refused_with_those_that_do(
    packages: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    row = {"id": 1, "mode": "pairwise", "prompt": "p", "responses": ["a", "b"]}
    items = write(tmp_path / "items.jsonl", [row])
    done = run("judge", items, "--out", tmp_path / "out.jsonl", *arguments, packages=packages, state=tmp_path)
    assert done.returncode != 0
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_strategy_ranks_a_file(packages: Path, tmp_path: Path) -> None:
    row = {"id": 1, "prompt": "Describe rain.", "responses": [SHORT, LONGEST, LONGER]}
    rows, out = write(tmp_path / "answers.jsonl", [row]), tmp_path / "ranked.jsonl"
    done = run("rerank", rows, "--out", out, "--method", "ladder", *JUDGE, packages=packages, state=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text())["best"] == 1


def test_a_benchmark_is_judged_and_reported(packages: Path, tmp_path: Path) -> None:
    rows = [
        {"number": 1, "question": "Describe rain.", "first": SHORT, "second": LONGER},
        {"number": 2, "question": "Describe rain.", "first": LONGEST, "second": LONGER},
    ]
    data = write(tmp_path / "rows.jsonl", rows)
    done = run(
        "bench", "run", "toy-lengths", "--data", data, "--out", tmp_path / "runs", "--json", *JUDGE,
        packages=packages, state=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = run("bench", "report", tmp_path / "runs", packages=packages, state=tmp_path)
    assert report.returncode == 0, report.stderr
    assert "100.0" in report.stdout


@pytest.fixture(scope="module")
def url(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    process = subprocess.Popen(
        [TIRJUDGE, "serve", "--port", "0", *JUDGE],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(packages, tmp_path_factory.mktemp("state")),
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if "ready at http://" not in line:
        process.kill()
        pytest.fail(process.communicate()[1])
    yield line.split()[4]
    process.terminate()
    process.communicate(timeout=60)


def test_a_server_judges_with_format_tool_and_engine(url: str) -> None:
    request = {"mode": "pairwise", "prompt": "Describe rain.", "responses": [LONGER, LONGEST]}
    judgment = httpx2.post(f"{url}/v1/judge", json=request, timeout=60).json()
    assert judgment["verdict"]["best"] == 1
    assert judgment["rollouts"][0]["turns"][0]["tool"] == "words"
    assert httpx2.get(f"{url}/v1/models").json()["data"][0]["id"] == "toy-judge"


def test_a_server_ranks_by_the_strategy_and_names_it_in_its_schema(url: str) -> None:
    request = {"prompt": "Describe rain.", "responses": [SHORT, LONGEST, LONGER], "method": "ladder"}
    answer = httpx2.post(f"{url}/v1/rerank", json=request, timeout=60)
    assert answer.status_code == 200, answer.text
    assert answer.json()["best"] == 1
    reward = {"prompt": "p", "responses": [SHORT, LONGER], "mode": "cohort", "strategy": "ladder"}
    (item,) = httpx2.post(f"{url}/v1/reward", json=reward, timeout=60).json()["data"]
    assert [each["reward"] for each in item["rewards"]] == [0.0, 1.0]
    unknown = httpx2.post(f"{url}/v1/rerank", json=request | {"method": "nosuch"})
    assert unknown.status_code == 400
    assert "'ladder'" in unknown.text
    assert '"ladder"' in httpx2.get(f"{url}/openapi.json").text


def test_a_server_speaks_the_dialect(url: str) -> None:
    marks = httpx2.post(f"{url}/toy/marks", json={"question": "Describe rain.", "answers": [SHORT]}, timeout=60)
    assert marks.status_code == 200, marks.text
    assert 5 < marks.json()["marks"][0] < 8
