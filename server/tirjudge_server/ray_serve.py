"""The server on Ray Serve: autoscaled replicas of the application that `tirjudge serve` runs.

    serve run tirjudge_server.ray_serve:build engine=http://10.0.0.5:8000 records=none insecure_open=true max_replicas=8

Each replica has a separate queue, judge and sandbox; Serve sends each request to one replica. The records hold all state
that outlives a request. With several replicas the records must be a database that all replicas can reach, or `none`.
"""

# No `from __future__ import annotations`: Serve takes the arguments for a model only if the annotation is that class.

import asyncio
import math
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator
from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy

from tirjudge.errors import TirjudgeError
from tirjudge_server.records.database import url_of
from tirjudge_server.records.options import NONE
from tirjudge_server.serving import Application, open_application
from tirjudge_server.settings import ServerSettings

NETWORK = "0.0.0.0"
"""Bind address that is assumed for Serve's proxies, so that a server without keys needs `insecure_open`."""

EXTRA_REQUESTS = 64
"""Concurrent requests of a replica that need no queue place: health checks, metrics, ending streams."""

DEPTH = "depth"
"""Name of the autoscaling metric: running and waiting judgments."""


class ReplicasDisagree(TirjudgeError, ValueError):
    """Several replicas cannot share the given storage."""


def _listed(given: Any) -> Any:
    return [part for part in given.replace(",", " ").split() if part] if isinstance(given, str) else given


Names = Annotated[list[str], BeforeValidator(_listed)]
"""A list, or a string of names with commas or spaces in between."""


class Arguments(BaseModel):
    """Arguments of `serve run tirjudge_server.ray_serve:build`, or of `args` in a config file.

    Arguments that `tirjudge serve` has as options have the same name and meaning there.

    Secrets are read from the environment of the process that builds the application: `TIRJUDGE_ENGINE_KEY`,
    `TIRJUDGE_SANDBOX_KEY`, and `TIRJUDGE_RECORDS` if `records` is not given.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Path | None = None
    """Checkpoint folder on every node, or the profile folder of the model behind `engine`; None: the bundled judge."""
    judge: str | None = None
    """KIND:ADDRESS of a model that every node can reach, instead of `model` and `engine`."""
    format: str | None = None
    """Prompt format; None: the format of the checkpoint."""
    chat_template_kwargs: str | None = None
    """Options of the chat template, as a JSON object; None: those of the checkpoint, or no thinking."""
    tool: Names = ["python"]
    """Tools that the model may call."""
    engine: Names = []
    """URLs of vLLM servers that every node can reach; empty: the model runs in the replicas."""
    sandbox: Names = []
    """URLs of sandbox services; empty: programs run on the nodes of the replicas."""
    slots: PositiveInt | None = None
    """Concurrent programs per replica; None: one per core."""
    allow_unsafe_sandbox: bool = False
    """Whether programs may run without isolation."""
    records: str | None = None
    """`postgresql://...`, `none`, or, with one replica, the path of a SQLite file."""
    files: str = NONE
    """Folder of files and batches, for a single replica; `none`: no files and batches."""
    cache: bool = True
    """Whether requests that were judged before are answered from the records."""
    allowed_host: Names = []
    """Host names by which callers reach Serve's proxies, besides `localhost` and IP addresses. A server without keys
    rejects other host names."""
    insecure_open: bool = False
    """Whether callers need no key."""
    max_concurrency: PositiveInt = 16
    """Maximum number of concurrent judgments per replica."""
    max_queue: Annotated[int, Field(ge=0)] = 256
    """Maximum number of waiting requests per replica; further requests get a 429."""
    deadline_s: PositiveFloat = 600.0
    """Maximum seconds of a judgment."""
    max_body_mb: PositiveInt = 16
    """Maximum size of a request body in MiB."""
    grace_s: PositiveFloat = 30.0
    """Seconds that running requests get when their replica is stopped."""
    dialects: str = "all"
    """`all`, `none`, or names of dialects with commas in between."""
    min_replicas: PositiveInt = 1
    """Minimum number of replicas."""
    max_replicas: PositiveInt = 1
    """Maximum number of replicas."""
    target_depth: PositiveFloat | None = None
    """Target number of running and waiting judgments per replica; None: `max_concurrency`."""
    upscale_delay_s: Annotated[float, Field(ge=0.0)] = 10.0
    """Seconds for which the depth must be above the target before replicas are added."""
    downscale_delay_s: Annotated[float, Field(ge=0.0)] = 300.0
    """Seconds for which the depth must be below the target before replicas are removed."""
    num_cpus: PositiveFloat = 1.0
    """CPUs that Ray reserves for a replica."""

    @model_validator(mode="after")
    def _replicas_agree(self) -> "Arguments":
        if self.max_replicas < self.min_replicas:
            raise ValueError(
                f"max_replicas: {self.max_replicas} given; min_replicas is {self.min_replicas}, use that or more"
            )
        return self

    def settings(self, environment: Mapping[str, str]) -> ServerSettings:
        """The server settings of each replica.

        Args:
            environment: the environment variables with the secrets.

        Raises:
            ReplicasDisagree: the records or the files work for one replica only, and `max_replicas` is above 1.
            RecordsError: `records` is not a database URL or path.
        """
        records = self.records or environment.get("TIRJUDGE_RECORDS")
        if self.max_replicas > 1 and records != NONE and url_of(records).drivername == "sqlite":
            raise ReplicasDisagree(
                "records: SQLite works for one replica only; with max_replicas above 1, use postgresql://USER@HOST/NAME or "
                "none"
            )
        if self.max_replicas > 1 and self.files != NONE:
            raise ReplicasDisagree("files: a folder works for one replica only; with max_replicas above 1, use none")
        shared = {field.name for field in fields(ServerSettings)} & type(self).model_fields.keys() - {"records"}
        return ServerSettings(
            **{name: getattr(self, name) for name in shared},
            host=NETWORK,
            records=records,
            engine_key=environment.get("TIRJUDGE_ENGINE_KEY"),
            sandbox_key=environment.get("TIRJUDGE_SANDBOX_KEY"),
        )


class Replica:
    """The server of one replica. It is opened and closed with the replica.

    Args:
        settings: settings of the server.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._stop = asyncio.Event()
        self._opened: asyncio.Future[Application] = asyncio.get_running_loop().create_future()
        self._holding = asyncio.create_task(self._hold())

    async def __serve_build_asgi_app__(self) -> FastAPI:
        return (await self._opened).app

    async def check_health(self) -> None:
        """Report this replica as unhealthy once its engine has ended, so that Ray Serve replaces the replica.

        Raises:
            RuntimeError: the engine of this replica has ended.
        """
        ended = (await self._opened).service.engine_ended()
        if ended is not None:
            raise RuntimeError(ended)

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """The metric for `by_depth`."""
        admission = (await self._opened).service.admission
        return {DEPTH: float(admission.num_running + admission.num_waiting)}

    async def __del__(self) -> None:
        self._stop.set()
        await asyncio.wait([self._holding])

    async def _hold(self) -> None:
        """Open and close the application in one task: its task groups must be closed by the task that opened them."""
        try:
            async with open_application(self._settings) as opened:
                self._opened.set_result(opened)
                await self._stop.wait()
                opened.service.draining.begin(grace_s=0.0)
        except Exception as error:
            if self._opened.done():
                raise
            self._opened.set_exception(error)


def by_depth(context: AutoscalingContext) -> tuple[float, dict[str, Any]]:
    """Number of replicas for the running and waiting judgments of all replicas. Serve applies the bounds and delays."""
    depths = (context.aggregated_metrics or {}).get(DEPTH, {})
    if not depths or context.config is None:
        return context.target_num_replicas, {}
    return math.ceil(sum(depths.values()) / context.config.target_ongoing_requests), {}


def build(arguments: Arguments) -> serve.Application:
    """The application, for `serve run`, `serve build` and config files.

    Raises:
        ReplicasDisagree, RecordsError: see `Arguments.settings`.
    """
    settings = arguments.settings(os.environ)
    scaling = AutoscalingConfig(
        min_replicas=arguments.min_replicas,
        max_replicas=arguments.max_replicas,
        target_ongoing_requests=arguments.target_depth or arguments.max_concurrency,
        upscale_delay_s=arguments.upscale_delay_s,
        downscale_delay_s=arguments.downscale_delay_s,
        policy=AutoscalingPolicy(policy_function=by_depth),
    )
    deployment = serve.deployment(
        name="tirjudge",
        autoscaling_config=scaling,
        max_ongoing_requests=arguments.max_concurrency + arguments.max_queue + EXTRA_REQUESTS,
        graceful_shutdown_timeout_s=arguments.grace_s,
        ray_actor_options={"num_cpus": arguments.num_cpus},
    )
    return deployment(serve.ingress()(Replica)).bind(settings)
