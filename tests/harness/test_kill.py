"""A short version of `benchmarks/harness_kill.py`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "harness_kill.py"


@pytest.mark.slow
def test_decisions_do_not_change_when_runner_server_and_sandbox_are_killed(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    command = [sys.executable, str(SCRIPT), "--items", "40", "--kills", "3", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(out.read_text())
    assert result["kills"] == {"runner": 1, "server": 1, "sandbox": 1}
    assert result["num_judged"] == {"undisturbed": 40, "disturbed": 40}
    assert result["num_decisions_that_differ"] == result["num_questions_on_record_twice"] == 0
    assert (result["num_starts_of_the_runner"], result["num_starts_of_the_server"]) == (2, 2)
