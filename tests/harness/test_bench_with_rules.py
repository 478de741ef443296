"""`tirjudge bench run` with checks: a judge without a model, and gates over a model."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.harness.commands import MAIN, CommandResult, run_command
from tirjudge_harness.run import load_run

Run = Callable[[Sequence[str]], CommandResult]

RIVERS = {"Brenhold": "Ost", "Costmere": "Wend", "Dunfell": "Arl", "Eastrow": "Ivel"}
SETS = ("natural", "neighbor", "gptinst", "gptout", "manual")
RULES = """
[[store]]
name = "rivers"
kind = "table"
files = ["rivers.csv"]

[[check]]
name = "river"
kind = "sql"
store = "rivers"
query = "SELECT 1 FROM rivers WHERE town = $town AND river = $river"
extract = "Through (?P<town>[A-Za-z]+) flows the (?P<river>[A-Za-z]+)"
expect = "rows"
gate = "decides"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with rules, their table, and rows of LLMBar. The label of one of the 20 rows is wrong."""
    (tmp_path / "rivers.csv").write_text("".join(f"{a},{b}\n" for a, b in {"town": "river", **RIVERS}.items()))
    (tmp_path / "rules.toml").write_text(RULES)
    (tmp_path / "rows").mkdir()
    rivers = list(RIVERS.values())
    for number, name in enumerate(SETS):
        rows: list[dict[str, Any]] = []
        for i, (town, river) in enumerate(RIVERS.items()):
            answers = [f"Through {town} flows the {river}.", f"Through {town} flows the {rivers[i - 1]}."]
            label = 1 + (i + number) % 2
            one, two = answers if label == 1 else answers[::-1]
            is_wrong = name == "natural" and i == 0
            rows.append(
                {"input": f"Which river flows through {town}? ({name})", "output_1": one, "output_2": two,
                 "label": 3 - label if is_wrong else label}
            )  # fmt: skip
        (tmp_path / "rows" / f"{name}.json").write_text(json.dumps(rows))
    return tmp_path


def arguments(folder: Path, *judge: str, out: str = "run") -> list[str]:
    return ["bench", "run", "llmbar", "--data", str(folder / "rows"), "--out", str(folder / out), "--json", *judge]


def process(given: Sequence[str]) -> CommandResult:
    """Run `tirjudge` as a process."""
    done = subprocess.run([*MAIN, *given], capture_output=True, text=True, check=False)
    return CommandResult(status=done.returncode, stdout=done.stdout, stderr=done.stderr)


def figures_of(done: CommandResult) -> dict[str, float]:
    assert done.status == 0, done.stderr
    [result] = json.loads(done.stdout)
    assert (result["counts"]["examples"], result["num_missing"]) == (20, 0)
    assert list(result["manifest"]["judge"]["checks"]) == ["river"]
    return {figure["name"]: figure["value"] for figure in result["figures"]}


def check_rules(folder: Path, run: Run) -> None:
    figures = figures_of(run(arguments(folder, "--judge", f"rules:{folder / 'rules.toml'}")))
    assert {name: figures[name] for name in SETS} == {"natural": 0.75} | dict.fromkeys(SETS[1:], 1.0)
    assert all(not decision.forced for one in load_run(folder / "run").judged for decision in one.decisions)


def check_gates(folder: Path, checkpoint: Path, run: Run) -> None:
    model = ("--model", str(checkpoint), "--tools", "off")
    figures = figures_of(run(arguments(folder, *model, "--checks", str(folder / "rules.toml"))))
    assert {name: figures[name] for name in SETS} == {"natural": 0.75} | dict.fromkeys(SETS[1:], 1.0)


@pytest.mark.slow
def test_rules_judge_a_benchmark_without_a_model(folder: Path) -> None:
    check_rules(folder, run_command)


@pytest.mark.slow
def test_gates_decide_a_benchmark_over_a_random_model(folder: Path, random_checkpoint: Path) -> None:
    check_gates(folder, random_checkpoint, run_command)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "verdict"),
    [
        ("pairwise", "Verdict: response B is better, confidence 1.000, checked"),
        ("pointwise", "Verdict: response B is better, scores A 1.00, B 10.00, confidence 1.000, checked"),
    ],
)
def test_one_request_is_judged_by_rules(folder: Path, mode: str, verdict: str) -> None:
    responses = ["Through Costmere flows the Ost.", "Through Costmere flows the Wend."]
    request = {"mode": mode, "prompt": "Which river flows through Costmere?", "responses": responses}
    (folder / "request.json").write_text(json.dumps(request))
    done = run_command(["judge", str(folder / "request.json"), "--judge", f"rules:{folder / 'rules.toml'}"])
    assert done.status == 0, done.stderr
    assert "Response A fails the check river" in done.stdout
    assert "Response B fails" not in done.stdout
    assert verdict in done.stdout


@pytest.mark.slow  # two processes
def test_bench_with_rules_and_with_gates_as_processes(folder: Path, random_checkpoint: Path) -> None:
    check_rules(folder, process)
    (folder / "run").rename(folder / "rules")
    check_gates(folder, random_checkpoint, process)


@pytest.mark.slow
def test_a_run_is_not_continued_with_other_checks(folder: Path, random_checkpoint: Path) -> None:
    rules = folder / "rules.toml"
    model = ("--model", str(random_checkpoint), "--tools", "off", "--limit", "1")
    given = arguments(folder, *model, "--checks", str(rules))
    assert run_command(given).status == 0
    rules.write_text(RULES.replace("Through (?P<town>", "(?P<town>"))
    refused = run_command(given)
    assert (refused.status, "judge.checks" in refused.stderr) == (2, True), refused.stderr
