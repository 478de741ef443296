"""A Ray cluster on this machine: real processes, small stores, no dashboard, nothing told to anybody."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.harness.conftest import write_lines as write_lines

ROOT = Path(__file__).parents[2]
NODE = {"num_cpus": 2, "object_store_memory": 100 * 1024 * 1024}
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "PYTHONPATH": str(ROOT),  # for the scripted judge
    "RAY_worker_niceness": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "0.5",
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.2",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: pip install 'tirjudge[ray]'")
    quiet = pytest.mark.filterwarnings("ignore")  # Ray's own, and those of what it starts
    for item in items:
        if item.path.is_relative_to(ROOT / "tests" / "ray"):
            for marker in (pytest.mark.ray, missing, quiet):
                item.add_marker(marker)


@pytest.fixture(scope="session", autouse=True)
def ray_folder() -> Iterator[Path]:
    """Where Ray puts its files, with its environment. It reads some of that when it is imported, which no test does before
    it runs."""
    folder = Path(tempfile.mkdtemp(prefix="ray"))  # short, because sockets lie in it
    (folder / "ray").mkdir()
    with pytest.MonkeyPatch.context() as patched:
        for name, value in {**SETTINGS, "RAY_TMPDIR": str(folder)}.items():
            patched.setenv(name, value)
        yield folder / "ray"
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def cluster(ray_folder: Path) -> Iterator[Any]:
    """One node of two logical cores, which the driver joins; `add_node(**NODE)` adds another, which may be killed."""
    from ray.cluster_utils import Cluster

    started = Cluster()
    try:
        started.add_node(**NODE, include_dashboard=False, temp_dir=str(ray_folder))
        yield started
    finally:
        started.shutdown()
