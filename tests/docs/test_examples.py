"""The scripts of `examples` run as they are, and the list of them is complete."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SHARED = "running_server.py"
"""A module that the examples import."""

PRINTS = {
    "best_of_n.py": "The sea is wide. It is blue. It moves.",
    "in_process.py": "'red fox': score",
    "judge_many.py": "response 0",
    "judge_pairs.py": "verdict: decided, best 0",
    "own_benchmark.py": "accuracy",
    "own_function.py": "called price with {'fruit': 'apple'}: 0.4",
    "reward_function.py": "'the red fox': 0.",
    "rules_without_model.py": "no-promises: the answer promises nothing",
}
"""Script -> a part of its output."""


def run(name: str, folder: Path) -> str:
    """Run a script; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:__main__", str(EXAMPLES / name)],
        cwd=folder,
        env={**os.environ, "XDG_STATE_HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_list_has_every_example() -> None:
    scripts = {path.name for path in EXAMPLES.glob("*.py")} - {SHARED}
    listed = re.findall(
        r"^\| \[`(\w+\.py)`\]\((\w+\.py)\) \|", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert [name for name, _ in listed] == [target for _, target in listed]
    assert {name for name, _ in listed} == scripts == set(PRINTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rules_without_model.py"])
def test_an_example_without_a_sandbox_runs(name: str, tmp_path: Path) -> None:
    assert PRINTS[name] in run(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PRINTS))
def test_every_example_runs(name: str, tmp_path: Path) -> None:
    assert PRINTS[name] in run(name, tmp_path)
