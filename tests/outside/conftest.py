"""The toy package, installed in a temporary folder, and a server that finds it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

TOY = Path(__file__).parent / "toys" / "tirjudge_toy"
ENTRY_POINTS = """
[tirjudge.formats]
toy/1 = tirjudge_toy.format:FORMAT
[tirjudge.tools]
words = tirjudge_toy.tool:TOOL
[tirjudge.functions]
letters = tirjudge_toy.functions:KIND
[tirjudge.checks]
words = tirjudge_toy.check:KIND
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


@pytest.fixture(scope="session")
def toy_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the toy package and its metadata, as pip installs them."""
    folder = tmp_path_factory.mktemp("packages")
    shutil.copytree(TOY, folder / "tirjudge_toy", ignore=shutil.ignore_patterns("__pycache__"))
    metadata = folder / "tirjudge_toy-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: tirjudge-toy\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder


@pytest.fixture(scope="module")
def toy_environment(toy_package: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables of processes that find the toy package, with an empty state folder."""
    path = os.pathsep.join(filter(None, [str(toy_package), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": path, "XDG_STATE_HOME": str(tmp_path_factory.mktemp("state"))}


@contextmanager
def serving(*arguments: str, env: Mapping[str, str]) -> Iterator[str]:
    """Run `tirjudge serve` in a new process and yield its URL."""
    process = subprocess.Popen(
        [Path(sys.executable).with_name("tirjudge"), "serve", "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if "ready at http://" not in line:
            process.kill()
            pytest.fail(process.communicate()[1])
        yield line.split()[4]
    finally:
        process.terminate()
        process.communicate(timeout=60)
