"""The suites of `benchmarks/pieces` still run: each benchmark once, without measuring."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.compare import PLUGINS

ROOT = Path(__file__).parents[1]
PIECES = ROOT / "benchmarks" / "pieces"


@pytest.mark.slow
def test_every_benchmark_runs_once() -> None:
    options = [*(f"-p{name}" for name in PLUGINS), "--benchmark-disable", "-rA"]
    command = [sys.executable, "-m", "pytest", *options, str(PIECES)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    for file in PIECES.glob("bench_*.py"):
        assert f"PASSED benchmarks/pieces/{file.name}::" in done.stdout, f"{file.name} has no benchmark"


def test_an_ordinary_run_of_pytest_collects_no_benchmark(pytestconfig) -> None:
    assert pytestconfig.getini("testpaths") == ["tests"]
    assert not list((ROOT / "tests").rglob("bench_*.py"))
    assert pytestconfig.pluginmanager.is_blocked("benchmark")
