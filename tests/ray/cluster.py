"""A Ray cluster on this machine. These functions run in a driver process (see `tests.ray.driver`)."""

from __future__ import annotations

import atexit
from typing import Any

from ray.cluster_utils import Cluster

NODE: dict[str, Any] = {"num_cpus": 2, "object_store_memory": 100 * 1024 * 1024}

MAX_STARTS = 5
"""Maximum number of attempts to start the cluster. Ray gives a node 30 seconds, which a loaded machine may exceed."""

_clusters: list[Cluster] = []
_added: list[Any] = []


def start(*, folder: str) -> dict[str, str]:
    """Start a cluster of one node with two logical cores. Return its address and the folder of its logs."""
    for attempt in range(1, MAX_STARTS + 1):
        cluster = Cluster()
        atexit.register(cluster.shutdown)
        try:
            head = cluster.add_node(**NODE, include_dashboard=False, temp_dir=folder)
        except Exception as error:
            if attempt == MAX_STARTS or "timed out during startup" not in str(error):
                raise
            cluster.shutdown()
        else:
            _clusters.append(cluster)
            return {"address": str(cluster.address), "logs": str(head.get_logs_dir_path())}
    raise AssertionError


def add_node() -> None:
    """Add a second node."""
    _added.append(_clusters[-1].add_node(**NODE))


def kill_node() -> None:
    """Kill the processes of the node that was added last."""
    _clusters[-1].remove_node(_added.pop(), allow_graceful=False)
