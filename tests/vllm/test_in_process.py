"""The in-process vLLM engine, in an environment with vLLM."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.vllm.server import SETTINGS

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


def test_the_in_process_engine_passes_the_tests_of_every_engine(python: Path, served: Path):
    script = Path(__file__).with_name("in_process.py")
    command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", "-W", "ignore", str(script)]
    env = os.environ | SETTINGS | {"TIRJUDGE_TEST_MODEL": str(served)}
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None and int(passed[1]) >= 20  # noqa: PT018
