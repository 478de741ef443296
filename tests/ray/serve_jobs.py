"""The server on Ray Serve. These functions run in a driver process (see `tests.ray.driver`)."""

from __future__ import annotations

import atexit
import logging
import socket
from typing import Any

import ray
from ray import serve
from ray.serve._private.api import call_user_app_builder_with_args_if_necessary
from ray.serve._private.common import ReplicaState

from tirjudge_server.ray_serve import build


def run(*, address: str, arguments: dict[str, Any]) -> str:
    """Run the application as `serve run` does, and return its URL."""
    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    atexit.register(ray.shutdown)
    atexit.register(serve.shutdown)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    application = call_user_app_builder_with_args_if_necessary(build, arguments)
    serve.run(application, name="tirjudge", route_prefix="/")
    return f"http://127.0.0.1:{port}"


def num_replicas() -> int:
    """Return the number of running replicas."""
    (deployment,) = serve.status().applications["tirjudge"].deployments.values()
    return deployment.replica_states.get(ReplicaState.RUNNING, 0)
