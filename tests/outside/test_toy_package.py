"""Another package registers one plug-in of each kind. All of them work from the command line and over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.outside.conftest import serving

JUDGE = ("--judge", "toy:7", "--format", "toy/1", "--tool", "words")
SHORT, LONGER, LONGEST = "Rain.", "It rains today.", "It rains today, and then it rains again."

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(toy_environment: dict[str, str]) -> Run:
    """Runs `tirjudge` with the toy package installed."""

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [Path(sys.executable).with_name("tirjudge"), *arguments]
        return subprocess.run(command, env=toy_environment, capture_output=True, text=True, check=False)

    return run


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.slow
def test_a_file_is_judged_with_a_toy_format_tool_and_engine(run: Run, tmp_path: Path) -> None:
    row = {"id": 1, "mode": "pairwise", "prompt": "Describe rain.", "responses": [SHORT, LONGER], "label": 1}
    items = write(tmp_path / "items.jsonl", [row])
    done = run("judge", items, "--out", tmp_path / "out.jsonl", *JUDGE)
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--judge", "toy:x"), "toy:x given; give a score from 1 to 9"),
        (("--judge", "nosuch:x"), "unknown engine 'nosuch'; installed: chat, "),
        (("--judge", "nosuch:x"), ", toy, "),
        (
            ("--judge", "toy:7", "--format", "toy/2"),
            "unknown format 'toy/2'; installed: tirjudge/1, tirjudge/2, toy/1;",
        ),
        (("--judge", "toy:7", "--tool", "saw"), "unknown tool 'saw'; installed: python, words, "),
        (("--judge", "toy:7", "--tool", "saw"), ", letters, "),
        (
            ("--judge", "toy:7", "--tool", "saw"),
            "an entry point in the group tirjudge.tools or tirjudge.functions (docs/adding-kinds.md)",
        ),
        (("--format", "toy/1"), "tirjudge-tiny was trained for tirjudge/2"),
    ],
)
def test_error_for_an_unknown_kind_lists_the_installed_kinds(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    row = {"id": 1, "mode": "pairwise", "prompt": "p", "responses": ["a", "b"]}
    items = write(tmp_path / "items.jsonl", [row])
    done = run("judge", items, "--out", tmp_path / "out.jsonl", *arguments)
    assert done.returncode != 0
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


PROGRAM = """
import asyncio
from tirjudge.opening import open_functions
from tirjudge.tools.functions import Offer
from tirjudge_sandbox import SandboxPool

async def main():
    async with open_functions(["letters"]) as functions, SandboxPool(slots=1) as pool:
        result = await pool.run("print(letters('a 1 b'))", offer=Offer(functions=functions))
        print(result.stdout, result.calls[0].version)

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_program_calls_a_toy_function(toy_environment: dict[str, str]) -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=toy_environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["2", "2"], done.stderr


CHECKS = """
[[check]]
name = "length"
kind = "words"
least = 4
"""


@pytest.mark.slow
def test_a_file_is_judged_by_a_toy_check(run: Run, tmp_path: Path) -> None:
    (tmp_path / "checks.toml").write_text(CHECKS)
    row = {"id": 1, "prompt": "Describe rain.", "responses": [SHORT, LONGEST], "label": 1}
    items = write(tmp_path / "items.jsonl", [row])
    done = run("judge", items, "--out", tmp_path / "out.jsonl", "--judge", f"rules:{tmp_path / 'checks.toml'}")
    assert done.returncode == 0, done.stderr
    judgment = json.loads((tmp_path / "out.jsonl").read_text())["judgment"]
    assert judgment["verdict"]["best"] == 1
    assert judgment["checks"][0][0]["reasons"][0]["message"] == "1 words, expected at least 4"


@pytest.mark.slow
def test_a_file_is_ranked_with_a_toy_strategy(run: Run, tmp_path: Path) -> None:
    row = {"id": 1, "prompt": "Describe rain.", "responses": [SHORT, LONGEST, LONGER]}
    rows, out = write(tmp_path / "answers.jsonl", [row]), tmp_path / "ranked.jsonl"
    done = run("rerank", rows, "--out", out, "--method", "ladder", *JUDGE)
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text())["best"] == 1


@pytest.mark.slow
def test_a_toy_benchmark_is_judged_and_reported(run: Run, tmp_path: Path) -> None:
    rows = [
        {"number": 1, "question": "Describe rain.", "first": SHORT, "second": LONGER},
        {"number": 2, "question": "Describe rain.", "first": LONGEST, "second": LONGER},
    ]
    data = write(tmp_path / "rows.jsonl", rows)
    done = run("bench", "run", "toy-lengths", "--data", data, "--out", tmp_path / "runs", "--json", *JUDGE)
    assert done.returncode == 0, done.stderr
    report = run("bench", "report", tmp_path / "runs")
    assert report.returncode == 0, report.stderr
    assert "100.0" in report.stdout


@pytest.fixture(scope="module")
def url(toy_environment: dict[str, str]) -> Iterator[str]:
    """A server with the toy engine, format and tool."""
    with serving(*JUDGE, env=toy_environment) as url:
        yield url


@pytest.mark.slow
def test_a_server_judges_with_a_toy_format_tool_and_engine(url: str) -> None:
    request = {"mode": "pairwise", "prompt": "Describe rain.", "responses": [LONGER, LONGEST]}
    judgment = httpx2.post(f"{url}/v1/judge", json=request, timeout=60).json()
    assert judgment["verdict"]["best"] == 1
    assert judgment["rollouts"][0]["turns"][0]["tool"] == "words"
    assert httpx2.get(f"{url}/v1/models").json()["data"][0]["id"] == "toy-judge"


@pytest.mark.slow
def test_a_server_ranks_with_a_toy_strategy_and_lists_it_in_its_schema(url: str) -> None:
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


@pytest.mark.slow
def test_a_server_offers_the_toy_dialect(url: str) -> None:
    marks = httpx2.post(f"{url}/toy/marks", json={"question": "Describe rain.", "answers": [SHORT]}, timeout=60)
    assert marks.status_code == 200, marks.text
    assert 5 < marks.json()["marks"][0] < 8
