"""The server on Ray Serve: autoscaled replicas of the application that `tirjudge serve` runs.

    serve run tirjudge_server.ray_serve:build engine=http://10.0.0.5:8000 records=none insecure_open=true max_replicas=8

Each replica has a queue, a judge and a sandbox of its own; Serve sends a request to one of them. What is remembered over
requests is in the records alone, so several replicas need a database that all of them reach, or none.
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
"""Where Serve's proxies listen is decided elsewhere; a server without keys is refused as if everybody reached them."""

ASIDE = 64
"""Requests of a replica beside those that are judged or wait: health, metrics, streams that end."""

DEPTH = "depth"


class ReplicasDisagree(TirjudgeError, ValueError):
    """Several replicas would each remember something else."""


def _listed(given: Any) -> Any:
    return [part for part in given.replace(",", " ").split() if part] if isinstance(given, str) else given


Names = Annotated[list[str], BeforeValidator(_listed)]
"""A list, or a text with commas or spaces between."""


class Arguments(BaseModel):
    """Arguments of `serve run tirjudge_server.ray_serve:build`, or of `args` in a config file.

    Those that `tirjudge serve` has too have the same name and meaning there.

    What is secret is taken from the environment of the process that builds the application: `TIRJUDGE_ENGINE_KEY`,
    `TIRJUDGE_SANDBOX_KEY`, and `TIRJUDGE_RECORDS` where `records` is not given.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Path | None = None
    """Folder of the checkpoint on every node, or of the profile of the model behind `engine`; None: the bundled judge."""
    judge: str | None = None
    """KIND:ADDRESS of a model, reached from every node, instead of `model` and `engine`."""
    format: str | None = None
    """How the model is asked; None: as its checkpoint says."""
    tool: Names = ["python"]
    """Tools that the model may call."""
    engine: Names = []
    """URLs of vLLM servers, reached from every node; none: the model runs in the replicas."""
    sandbox: Names = []
    """URLs of sandbox services; none: programs run on the nodes of the replicas."""
    slots: PositiveInt | None = None
    """Programs side by side in a replica; None: one a core."""
    allow_unsafe_sandbox: bool = False
    records: str | None = None
    """`postgresql://...`, `none`, or, with one replica, the path of a SQLite file."""
    files: str = NONE
    """Folder of files and batches, with one replica."""
    cache: bool = True
    allowed_host: Names = []
    """Names by which callers reach Serve's proxies, besides `localhost` and IP addresses. Without keys no other is taken."""
    insecure_open: bool = False
    """Whether everybody may judge who reaches Serve's proxies."""
    max_concurrency: PositiveInt = 16
    """Judgments side by side in a replica."""
    max_queue: Annotated[int, Field(ge=0)] = 256
    """Requests that may wait in a replica; one more gets a 429."""
    deadline_s: PositiveFloat = 600.0
    max_body_mb: PositiveInt = 16
    grace_s: PositiveFloat = 30.0
    """What is under way in a replica that is stopped gets so long."""
    dialects: str = "all"
    min_replicas: PositiveInt = 1
    max_replicas: PositiveInt = 1
    target_depth: PositiveFloat | None = None
    """Judgments running and waiting that one replica is to have; None: as many as it judges side by side."""
    upscale_delay_s: Annotated[float, Field(ge=0.0)] = 10.0
    """More replicas are started when there is too much for so long."""
    downscale_delay_s: Annotated[float, Field(ge=0.0)] = 300.0
    """And stopped when there is too little for so long."""
    num_cpus: PositiveFloat = 1.0
    """What a replica takes of a node, as Ray counts it."""

    @model_validator(mode="after")
    def _replicas_agree(self) -> "Arguments":
        if self.max_replicas < self.min_replicas:
            raise ValueError(f"max_replicas: {self.max_replicas} given; at least min_replicas, {self.min_replicas}")
        return self

    def settings(self, environment: Mapping[str, str]) -> ServerSettings:
        """What each replica is opened with.

        Raises:
            ReplicasDisagree: the records or the files are for one replica, and there may be several.
            RecordsError: the records are not a database.
        """
        records = self.records or environment.get("TIRJUDGE_RECORDS")
        if self.max_replicas > 1 and records != NONE and url_of(records).drivername == "sqlite":
            raise ReplicasDisagree(
                "records: SQLite is for one replica; with max_replicas above 1, use postgresql://USER@HOST/NAME or none"
            )
        if self.max_replicas > 1 and self.files != NONE:
            raise ReplicasDisagree("files: for one replica; with max_replicas above 1, use none")
        shared = {field.name for field in fields(ServerSettings)} & type(self).model_fields.keys() - {"records"}
        return ServerSettings(
            **{name: getattr(self, name) for name in shared},
            host=NETWORK,
            records=records,
            engine_key=environment.get("TIRJUDGE_ENGINE_KEY"),
            sandbox_key=environment.get("TIRJUDGE_SANDBOX_KEY"),
        )


class Replica:
    """One server, opened in its replica and closed with it.

    Args:
        settings: of the server.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._stop = asyncio.Event()
        self._opened: asyncio.Future[Application] = asyncio.get_running_loop().create_future()
        self._holding = asyncio.create_task(self._hold())

    async def __serve_build_asgi_app__(self) -> FastAPI:
        return (await self._opened).app

    async def check_health(self) -> None:
        """
        Raises:
            RuntimeError: the engine of this replica has ended for good, and another replica is to take its place.
        """
        ended = (await self._opened).service.engine_ended()
        if ended is not None:
            raise RuntimeError(ended)

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """What `by_depth` goes by."""
        admission = (await self._opened).service.admission
        return {DEPTH: float(admission.num_running + admission.num_waiting)}

    async def __del__(self) -> None:
        self._stop.set()
        await asyncio.wait([self._holding])

    async def _hold(self) -> None:
        """Everything is opened and closed by one task, as what it opens needs."""
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
    """How many replicas what runs and waits in all of them is enough for. Serve keeps to the bounds and the delays."""
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
        max_ongoing_requests=arguments.max_concurrency + arguments.max_queue + ASIDE,
        graceful_shutdown_timeout_s=arguments.grace_s,
        ray_actor_options={"num_cpus": arguments.num_cpus},
    )
    return deployment(serve.ingress()(Replica)).bind(settings)
