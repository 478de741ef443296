"""The server on Ray Serve: answers, streams, autoscaling of replicas, and settings that replicas must share."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.judgments import build_request
from tests.ray.conftest import RayCluster
from tests.ray.driver import Driver
from tirjudge.client import AsyncClient
from tirjudge.types import JudgeRequest, Judgment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.ray,
    # Ray may end a driver whose raylet does not answer in time, on a loaded machine. The tested code is not the cause.
    pytest.mark.flaky(reruns=1, only_rerun="DriverEndedByRay"),
]


@pytest.fixture
def arguments(random_checkpoint: Path) -> dict[str, Any]:
    return {
        "model": str(random_checkpoint),
        "records": "none",
        "insecure_open": "true",
        "slots": "1",
        "num_cpus": "0.5",
    }


async def start(driver: Driver, cluster: RayCluster, arguments: dict[str, Any]) -> str:
    """Run the application, and return its URL."""
    job = "tests.ray.serve_jobs:run"
    return await asyncio.to_thread(driver.call, job, address=cluster.address, arguments=arguments)


async def until_replicas(driver: Driver, number: int) -> None:
    async with asyncio.timeout(240):
        while await asyncio.to_thread(driver.call, "tests.ray.serve_jobs:num_replicas") != number:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


def request(number: int, **fields: Any) -> JudgeRequest:
    return build_request(f"p{number}", **{"tools": "off", **fields})


async def test_a_replica_answers_streams_and_is_healthy(cluster, driver, arguments) -> None:
    url = await start(driver, cluster, arguments)
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


async def test_replicas_are_added_for_pending_requests_and_removed_when_idle(cluster, driver, arguments) -> None:
    scaling = {"max_replicas": "2", "max_concurrency": "2", "upscale_delay_s": "0.5", "downscale_delay_s": "1"}
    url = await start(driver, cluster, arguments | scaling)
    await until_replicas(driver, 1)
    enough, numbers = asyncio.Event(), itertools.count()

    async def keep_asking(client: AsyncClient) -> None:
        while not enough.is_set():
            await client.judge(request(next(numbers), votes=8, temperature=1.0))

    async with AsyncClient(url) as client, asyncio.TaskGroup() as group:
        for _ in range(8):  # two requests are judged, six are pending
            group.create_task(keep_asking(client))
        await until_replicas(driver, 2)
        enough.set()
    await until_replicas(driver, 1)


def test_stores_that_replicas_cannot_share_are_refused(arguments) -> None:
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


def test_the_default_database_is_refused_for_several_replicas(arguments) -> None:
    from tirjudge_server.ray_serve import Arguments, ReplicasDisagree

    given = {name: value for name, value in arguments.items() if name != "records"} | {"max_replicas": 2}
    with pytest.raises(ReplicasDisagree):
        Arguments.model_validate(given).settings({})
    shared = Arguments.model_validate(given).settings({"TIRJUDGE_RECORDS": "postgresql://judge@db/judge"})
    assert shared.records == "postgresql://judge@db/judge"
