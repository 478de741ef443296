"""A Ray cluster on this machine: real processes, small stores, no dashboard, no usage statistics.

Neither the cluster nor a driver runs in the process of pytest; `tests.ray.driver` says why.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.harness.conftest import write_lines as write_lines
from tests.ray.driver import ROOT, Driver

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "PYTHONPATH": str(ROOT),  # actors import the scripted judge
    "RAY_worker_niceness": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "0.5",
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.2",
}

OpenDriver = Callable[[], Driver]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: pip install 'tirjudge[ray]'")
    quiet = pytest.mark.filterwarnings("ignore")  # warnings of Ray and of its dependencies
    for item in items:
        if item.path.is_relative_to(ROOT / "tests" / "ray"):
            for marker in (missing, quiet):
                item.add_marker(marker)


@pytest.fixture(scope="session")
def ray_folder() -> Iterator[Path]:
    """A folder for the files of Ray. Its path is short, because it contains sockets."""
    folder = Path(tempfile.mkdtemp(prefix="ray"))
    (folder / "ray").mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def open_driver(ray_folder: Path) -> Iterator[OpenDriver]:
    """Starts driver processes, and ends them after the session."""
    drivers: list[Driver] = []

    def open_one() -> Driver:
        environment = {**SETTINGS, "RAY_TMPDIR": str(ray_folder)}
        drivers.append(Driver(environment=environment, log=ray_folder / f"driver-{len(drivers)}.log"))
        return drivers[-1]

    yield open_one
    for driver in reversed(drivers):
        driver.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class RayCluster:
    """A running cluster."""

    driver: Driver
    """The process that started the cluster. It can add and kill a second node."""
    address: str
    logs: Path
    """Folder of the log files of the first node."""

    def add_node(self) -> None:
        self.driver.call("tests.ray.cluster:add_node")

    def kill_node(self) -> None:
        self.driver.call("tests.ray.cluster:kill_node")


@pytest.fixture(scope="session")
def clusters() -> list[RayCluster]:
    """All clusters of the session; the last one may be running."""
    return []


@pytest.fixture
def cluster(clusters: list[RayCluster], open_driver: OpenDriver, ray_folder: Path) -> RayCluster:
    """The cluster that all tests share. If its process has ended, a new one is started."""
    if not clusters or not clusters[-1].driver.is_running:
        driver = open_driver()
        started = driver.call("tests.ray.cluster:start", folder=str(ray_folder / "ray"))
        clusters.append(RayCluster(driver=driver, address=started["address"], logs=Path(started["logs"])))
    return clusters[-1]


@pytest.fixture
def driver(open_driver: OpenDriver) -> Iterator[Driver]:
    """A driver process of one test."""
    opened = open_driver()
    yield opened
    opened.close()
