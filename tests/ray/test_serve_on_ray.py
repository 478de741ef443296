"""The server on Ray Serve: replicas that answer, stream, scale with what waits, and agree on what is recorded."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tirjudge.client import AsyncClient
from tirjudge.types import JudgeRequest, Judgment

PORT = 8431


@pytest.fixture
def arguments(random_checkpoint: Path) -> dict[str, Any]:
    return {
        "model": str(random_checkpoint),
        "records": "none",
        "insecure_open": "true",
        "slots": "1",
        "num_cpus": "0.5",
    }


@pytest.fixture
def serving(cluster: Any) -> Iterator[Any]:
    """Runs an application as `serve run` does, and gives its URL."""
    import ray
    from ray import serve
    from ray.serve._private.api import call_user_app_builder_with_args_if_necessary

    from tirjudge_server.ray_serve import build

    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")

    def run(arguments: dict[str, Any]) -> str:
        serve.start(http_options={"host": "127.0.0.1", "port": PORT})
        application = call_user_app_builder_with_args_if_necessary(build, arguments)
        serve.run(application, name="tirjudge", route_prefix="/")
        return f"http://127.0.0.1:{PORT}"

    try:
        yield run
    finally:
        serve.shutdown()
        ray.shutdown()


def num_replicas() -> int:
    from ray import serve

    (deployment,) = serve.status().applications["tirjudge"].deployments.values()
    return deployment.replica_states.get("RUNNING", 0)


async def until_replicas(number: int) -> None:
    async with asyncio.timeout(180):
        while await asyncio.to_thread(num_replicas) != number:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


def request(number: int, **fields: Any) -> JudgeRequest:
    asked = {"mode": "pairwise", "prompt": f"p{number}", "responses": ["a", "b"], "tools": "off"}
    return JudgeRequest.model_validate(asked | fields)


async def test_a_replica_answers_streams_and_is_healthy(serving, arguments) -> None:
    url = serving(arguments)
    async with AsyncClient(url) as client, httpx2.AsyncClient(base_url=url) as http:
        judgment = await client.judge(request(0, tools="auto"))
        assert judgment.verdict.status == "decided"
        events = [event async for event in client.stream(request(1))]
        assert [type(event).__name__ for event in events] == ["JudgmentCreated", "JudgmentTurn", "Judgment"]
        assert isinstance(events[-1], Judgment)
        assert (await http.get("/health")).json()["status"] == "ok"
        assert (await http.get("/ready")).json() == {"ready": True, "problem": None}
        assert "tirjudge_" in (await http.get("/metrics")).text
        refused = await http.post("/v1/judge", json={"mode": "pairwise"})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "prompt")


async def test_replicas_come_with_what_waits_and_go_with_it(serving, arguments) -> None:
    scaling = {"max_replicas": "2", "max_concurrency": "2", "upscale_delay_s": "0.5", "downscale_delay_s": "1"}
    url = serving(arguments | scaling)
    assert num_replicas() == 1
    enough, numbers = asyncio.Event(), itertools.count()

    async def keep_asking(client: AsyncClient) -> None:
        while not enough.is_set():
            await client.judge(request(next(numbers), votes=8, temperature=1.0))

    async with AsyncClient(url) as client, asyncio.TaskGroup() as group:
        for _ in range(8):  # two are judged, six wait
            group.create_task(keep_asking(client))
        await until_replicas(2)
        enough.set()
    await until_replicas(1)


def test_replicas_that_would_disagree_are_refused(arguments) -> None:
    from tirjudge_server.ray_serve import Arguments, ReplicasDisagree

    def settings(**given: Any):
        return Arguments.model_validate(arguments | given).settings({"TIRJUDGE_ENGINE_KEY": "secret"})

    for records in ("records.db", "sqlite:////tmp/records.db"):
        with pytest.raises(
            ReplicasDisagree, match="SQLite works for one replica only; with max_replicas above 1, use postgresql://"
        ):
            settings(records=records, max_replicas=2)
        assert settings(records=records).records == records
    with pytest.raises(ReplicasDisagree, match="files: a folder works for one replica only"):
        settings(files="/tmp/files", max_replicas=2)
    opened = settings(records="postgresql://judge@db/judge", max_replicas=2, engine="http://a:1, http://b:2")
    assert (opened.engine, opened.engine_key) == (["http://a:1", "http://b:2"], "secret")


def test_the_default_database_is_for_one_replica_too(arguments) -> None:
    from tirjudge_server.ray_serve import Arguments, ReplicasDisagree

    given = {name: value for name, value in arguments.items() if name != "records"} | {"max_replicas": 2}
    with pytest.raises(ReplicasDisagree):
        Arguments.model_validate(given).settings({})
    shared = Arguments.model_validate(given).settings({"TIRJUDGE_RECORDS": "postgresql://judge@db/judge"})
    assert shared.records == "postgresql://judge@db/judge"
