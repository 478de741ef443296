"""`tirjudge serve --workers` with real vLLM: start, replacement of weights, and restart after a crash."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.processes import descendants, is_alive
from tests.vllm.checkpoint import make_less_sure
from tests.vllm.judging import held_out_requests, judge_all
from tests.vllm.server import SETTINGS, SMALL, STARTS_IN_S, started_with
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.model import fingerprint
from tirjudge.types import JudgeRequest, Judgment
from tirjudge_sandbox import SandboxPool

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

MAIN = [sys.executable, "-c", "from tirjudge.cli import main; main()"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A running `tirjudge serve`."""

    url: str
    key: str
    process: subprocess.Popen[str]

    def post(self, path: str, body: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.key}"}
        response = httpx2.post(f"{self.url}{path}", json=body, headers=headers, timeout=STARTS_IN_S)
        return response.raise_for_status().json()

    def judge(self, request: JudgeRequest) -> Judgment:
        return Judgment.model_validate(self.post("/v1/judge", request.model_dump(mode="json")))

    async def judge_with_retries(self, request: JudgeRequest) -> Judgment:
        """Judge, and retry while the server answers 503 because it has no engine."""
        async with asyncio.timeout(STARTS_IN_S):
            while True:
                try:
                    return await asyncio.to_thread(self.judge, request)
                except httpx2.HTTPStatusError as error:
                    if error.response.status_code != 503:
                        raise
                    await asyncio.sleep(1)


@pytest.fixture(scope="module")
def other(served: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A judge with the same architecture and different probabilities."""
    folder = tmp_path_factory.mktemp("other") / "judge"
    shutil.copytree(served, folder)
    make_less_sure(folder)
    return folder


@pytest.fixture(scope="module")
def serving(python: Path, served: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("serving")
    env = os.environ | SETTINGS | {"XDG_STATE_HOME": str(folder)}
    create = [*MAIN, "keys", "create", "root", "--scope", "admin", "--scope", "judge"]
    key = subprocess.run(create, env=env, capture_output=True, text=True, check=True).stdout.strip()
    command = [*MAIN, "serve", "--model", str(served), "--workers", "1", "--port", "0", "--no-cache"]
    command += ["--worker-command", shlex.join(started_with(python)), "--worker-args", shlex.join(SMALL)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        url = re.search(r"http://[\d.:]+", process.stdout.readline())
        assert url is not None, (folder / "log").read_text(errors="replace")[-3000:]
        yield Served(url=url[0], key=key, process=process)
    finally:
        process.terminate()
        process.communicate(timeout=60)


async def judged_by(folder: Path, requests: list[JudgeRequest], *, pool: SandboxPool) -> list[Judgment]:
    engine = EmbeddedEngine.load(folder)
    try:
        return await judge_all(requests, engine=engine, sandbox=pool, concurrency=4, checkpoint=folder)
    finally:
        engine.close()


def is_same(one: Judgment, other: Judgment) -> bool:
    """Whether two judgments have the same texts and probabilities. Different judges may write the same texts."""
    texts = [[(rollout.order, [turn.text for turn in rollout.turns]) for rollout in j.rollouts] for j in (one, other)]
    sure = [judgment.verdict.probabilities for judgment in (one, other)]
    return texts[0] == texts[1] and sure[0] == pytest.approx(sure[1], abs=1e-4)


async def test_a_worker_is_started_reloaded_and_restarted_with_the_new_weights(
    serving: Served, served: Path, other: Path, pool: SandboxPool
) -> None:
    requests = held_out_requests(6)
    by_served, by_other = [await judged_by(folder, requests, pool=pool) for folder in (served, other)]
    differing = next(i for i, pair in enumerate(zip(by_served, by_other, strict=True)) if not is_same(*pair))
    assert all(map(is_same, map(serving.judge, requests), by_served))
    reloaded = serving.post("/v1/admin/reload", {"checkpoint": str(other)})
    assert reloaded["model_version"] == fingerprint(other)
    judgments = [serving.judge(request) for request in requests]
    assert {judgment.model_version for judgment in judgments} == {fingerprint(other)}
    assert all(map(is_same, judgments, by_other))
    started = descendants(serving.process.pid, containing="vllm.entrypoints")
    (api,) = started - descendants(serving.process.pid, containing="worker_guard")
    os.kill(api, signal.SIGKILL)
    again = await serving.judge_with_retries(requests[differing])
    assert again.model_version == fingerprint(other)
    assert is_same(again, by_other[differing])
    assert not is_same(again, by_served[differing])
    assert not is_alive(api)
