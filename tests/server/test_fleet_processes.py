"""A fleet of real workers of the bundled judge, each a process: workers are killed, added, removed, started and ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx2
import pytest

from tests.server.fleet_judging import decided, judge_all, requests
from tests.servers import TIRJUDGE, ServerProcess, serve_command
from tirjudge.engines.fleet import FleetEngine
from tirjudge.judge import Judge
from tirjudge.model import EngineOptions, bundled_checkpoint
from tirjudge.opening import open_model
from tirjudge.tools.python import PythonTool
from tirjudge.types import JudgeRequest
from tirjudge_sandbox import SandboxPool

pytestmark = pytest.mark.slow

NUM_JUDGMENTS = 24
WORKER_COMMAND = f"{TIRJUDGE[0]} {TIRJUDGE[1]} '{TIRJUDGE[2]}' worker"
TIMEOUT_S = 120.0
"""Maximum seconds of a request or a wait. A request that takes longer hangs."""

Start = Callable[..., ServerProcess]


@asynccontextmanager
async def open_fleet(urls: Callable[[], Sequence[str]]):
    """A judge over the workers at these URLs, and its engine."""
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(
            open_model("vllm", options=EngineOptions(profile=bundled_checkpoint(), urls=urls))
        )
        pool = await stack.enter_async_context(SandboxPool(slots=2))
        assert isinstance(model.engine, FleetEngine)
        yield (
            Judge(engine=model.engine, tools=[PythonTool(pool)], profile=model.profile, weights=model.weights),
            model.engine,
        )


async def test_load_is_balanced_and_killed_worker_changes_no_verdict(start: Start) -> None:
    started = [start("worker") for _ in range(2)]
    asked = requests(NUM_JUDGMENTS)
    async with open_fleet(lambda: [worker.url for worker in started]) as (judge, fleet):
        undisturbed = await judge_all(judge, asked)
        # The balance depends on the speed of both processes; `benchmarks/fleet.py` measures it on an idle machine.
        num_turns = [worker.num_turns for worker in fleet.workers]
        assert min(num_turns) >= sum(num_turns) / 4

        def kill(num_ended: int) -> None:
            if num_ended == NUM_JUDGMENTS // 3:
                os.kill(started[0].process.pid, signal.SIGKILL)

        disturbed = await judge_all(judge, asked, on_end=kill)
        assert [worker.problem is None for worker in fleet.workers] == [False, True]
    assert list(map(decided, disturbed)) == list(map(decided, undisturbed))
    assert len({judgment.id for judgment in disturbed}) == NUM_JUDGMENTS
    assert any(turn.code for judgment in disturbed for rollout in judgment.rollouts for turn in rollout.turns)


def num_generated(url: str) -> float:
    found = re.search(r"vllm:generation_tokens_total\{.*\} ([\d.]+)", httpx2.get(f"{url}/metrics").text)
    assert found
    return float(found[1])


def wait_for(condition: Callable[[], bool]) -> None:
    ends_at = monotonic() + TIMEOUT_S
    while not condition():
        assert monotonic() < ends_at
        sleep(0.1)


def test_engines_file_adds_and_removes_workers(start: Start, tmp_path: Path) -> None:
    urls, file = [start("worker").url for _ in range(2)], tmp_path / "engines"
    file.write_text(urls[0])
    server = start("serve", "--engines-file", str(file), "--no-cache").url

    def workers() -> list[dict[str, Any]]:
        return httpx2.get(f"{server}/health").json()["workers"]["engine"]

    def judge(number: int) -> None:
        response = httpx2.post(
            f"{server}/v1/judge", json=requests(number)[-1].model_dump(mode="json"), timeout=TIMEOUT_S
        )
        assert response.status_code == 200

    judge(1)
    assert (workers(), num_generated(urls[1])) == ([{"url": urls[0], "running": 0, "problem": None}], 0)
    file.write_text("\n".join(urls))
    wait_for(lambda: [worker["problem"] for worker in workers()] == [None, None])
    before = [num_generated(url) for url in urls]
    for number in (2, 3):
        judge(number)
    assert all(num_generated(url) > count for url, count in zip(urls, before, strict=True))
    metrics = httpx2.get(f"{server}/metrics").text
    assert all(f'tirjudge_engine_worker_up{{worker="{url}"}} 1.0' in metrics for url in urls)
    file.write_text(urls[1])
    wait_for(lambda: [worker["url"] for worker in workers()] == urls[1:])
    before = [num_generated(url) for url in urls]
    judge(4)
    assert num_generated(urls[0]) == before[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_serve_starts_workers_that_never_outlive_it(
    start: Start, random_checkpoint: Path, number: signal.Signals
) -> None:
    model = ["--model", str(random_checkpoint)]
    server = start("serve", *model, "--workers", "1", TIRJUDGE_WORKER_COMMAND=WORKER_COMMAND)
    body = {"mode": "pairwise", "prompt": "Which is longer?", "responses": ["one", "three"]}
    judgment = httpx2.post(f"{server.url}/v1/judge", json=body, timeout=TIMEOUT_S).json()
    assert (judgment["model"], judgment["verdict"]["forced"]) == ("random", True)
    [worker] = httpx2.get(f"{server.url}/health").json()["workers"]["engine"]
    assert httpx2.get(f"{worker['url']}/v1/models").status_code == 401
    port = worker["url"].rpartition(":")[2]
    assert len(processes_with_argument(port)) == 2
    server.stop(number)
    wait_for(lambda: not processes_with_argument(port))


def processes_with_argument(word: str) -> list[int]:
    """Ids of all processes that have this argument in their command line."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if word.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_programs_run_in_the_other_sandbox_service_if_one_is_killed(start: Start, tmp_path: Path) -> None:
    with ExitStack() as stack:
        services = [
            stack.enter_context(
                serve_command(
                    *("sandbox", "serve", "--slots", "1"),
                    state=tmp_path,
                    environment={"TIRJUDGE_SANDBOX_KEYS": "s3cret"},
                )
            )
            for _ in range(2)
        ]
        options = [option for service in services for option in ("--sandbox", service.url)]
        server = start("serve", *options, TIRJUDGE_SANDBOX_KEY="s3cret").url
        asked = requests(6)

        def judge(request: JudgeRequest) -> dict[str, Any]:
            response = httpx2.post(f"{server}/v1/judge", json=request.model_dump(mode="json"), timeout=TIMEOUT_S)
            assert response.status_code == 200
            return response.json()

        judgments = [judge(request) for request in asked[:3]]
        services[0].process.kill()
        judgments += [judge(request) for request in asked[3:]]
        outcomes = {t["outcome"] for each in judgments for rollout in each["rollouts"] for t in rollout["turns"]}
        assert outcomes == {"ok", None}
        health = httpx2.get(f"{server}/health").json()
        assert health["sandbox"] in ("namespaces+cgroup", "namespaces", "landlock")
        problems = {worker["url"]: worker["problem"] for worker in health["workers"]["sandbox"]}
        assert "cannot be reached" in problems[services[0].url]
        assert problems[services[1].url] is None
        assert "s3cret" not in httpx2.get(f"{server}/metrics").text + str(health)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine", "gpu:8000"], "give a URL such as http://127.0.0.1:8000"),
        (["--engine", "http://127.0.0.1:9", "--workers", "1"], "give only one of them"),
        (["--workers", "1", "--worker-command", "no-such-command serve"], "command not found: 'no-such-command'"),
        (["--engines-file", "/nowhere"], "/nowhere: No such file or directory"),
        (["--profile", "/nowhere"], "give --model alone"),
        (["--sandbox", "http://127.0.0.1:9"], "http://127.0.0.1:9"),
    ],
)
def test_invalid_engines_are_reported_in_one_line(arguments: list[str], message: str, random_checkpoint: Path) -> None:
    model = [] if "--engine" in arguments else ["--model", str(random_checkpoint)]
    done = subprocess.run(
        [*TIRJUDGE, "serve", "--port", "0", *model, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("tirjudge serve: ")
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
