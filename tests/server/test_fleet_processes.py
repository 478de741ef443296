"""A fleet of real workers of the bundled judge, each a process: one is killed, one comes, and all are started and ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx2
import pytest

from tests.server.fleet_judging import decided, judge_all, requests
from tirjudge.engines.fleet import FleetEngine
from tirjudge.judge import Judge
from tirjudge.model import EngineOptions, bundled_checkpoint
from tirjudge.opening import open_model
from tirjudge.tools.python import PythonTool
from tirjudge.types import JudgeRequest
from tirjudge_sandbox import SandboxPool

NUM_JUDGMENTS = 24
MAIN = [sys.executable, "-c", "from tirjudge.cli import main; main()"]
TIRJUDGE_WORKER = f"{sys.executable} -c 'from tirjudge.cli import main; main()' worker"
PATIENCE_S = 120.0

Start = Callable[..., tuple[subprocess.Popen[str], str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a command that serves; gives its process, and its URL once it is ready."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str, **environment: str) -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            [*MAIN, *arguments, "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"XDG_STATE_HOME": str(tmp_path)} | environment,
        )
        started.append(process)
        assert process.stdout is not None
        found = re.search(r"http://[\d.:]+", process.stdout.readline())
        assert found
        return process, found[0]

    yield run
    for process in started:
        process.kill()
        process.communicate()


@asynccontextmanager
async def opened(urls: Callable[[], Sequence[str]]):
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


async def test_the_load_is_even_and_a_worker_that_is_killed_changes_no_verdict(start: Start) -> None:
    started = [start("worker") for _ in range(2)]
    asked = requests(NUM_JUDGMENTS)
    async with opened(lambda: [url for _, url in started]) as (judge, fleet):
        undisturbed = await judge_all(judge, asked)
        num_turns = [worker.num_turns for worker in fleet.workers]
        # Of six turns a judgment; `benchmarks/fleet.py` has enough of them to ask for less.
        assert max(num_turns) - min(num_turns) <= 3 * 6

        def kill(num_ended: int) -> None:
            if num_ended == NUM_JUDGMENTS // 3:
                assert fleet.workers[0].num_running > 0
                os.kill(started[0][0].pid, signal.SIGKILL)

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
    ends_at = monotonic() + PATIENCE_S
    while not condition():
        assert monotonic() < ends_at
        sleep(0.1)


def test_a_server_takes_up_a_worker_that_is_added_and_lets_go_of_one_that_is_removed(
    start: Start, tmp_path: Path
) -> None:
    urls, file = [start("worker")[1] for _ in range(2)], tmp_path / "engines"
    file.write_text(urls[0])
    _, server = start("serve", "--engines-file", str(file), "--no-cache")

    def workers() -> list[dict[str, Any]]:
        return httpx2.get(f"{server}/health").json()["workers"]["engine"]

    def judge(number: int) -> None:
        response = httpx2.post(
            f"{server}/v1/judge", json=requests(number)[-1].model_dump(mode="json"), timeout=PATIENCE_S
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
def test_one_command_starts_workers_and_none_outlives_it_however_it_ends(
    start: Start, random_checkpoint: Path, number: signal.Signals
) -> None:
    model = ["--model", str(random_checkpoint)]
    process, server = start("serve", *model, "--workers", "1", TIRJUDGE_WORKER_COMMAND=TIRJUDGE_WORKER)
    body = {"mode": "pairwise", "prompt": "Which is longer?", "responses": ["one", "three"]}
    judgment = httpx2.post(f"{server}/v1/judge", json=body, timeout=PATIENCE_S).json()
    assert (judgment["model"], judgment["verdict"]["forced"]) == ("random", True)
    [worker] = httpx2.get(f"{server}/health").json()["workers"]["engine"]
    assert httpx2.get(f"{worker['url']}/v1/models").status_code == 401
    started = with_in_command_line(worker["url"].rpartition(":")[2])
    assert len(started) == 2
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_S)
    wait_for(lambda: not with_in_command_line(worker["url"].rpartition(":")[2]))


def with_in_command_line(word: str) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if word.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_programs_run_in_sandbox_services_and_one_that_is_killed_is_left_out(start: Start, tmp_path: Path) -> None:
    with ExitStack() as stack:
        services = [start_sandbox(stack, key="s3cret") for _ in range(2)]
        options = [option for _, url in services for option in ("--sandbox", url)]
        _, server = start("serve", *options, TIRJUDGE_SANDBOX_KEY="s3cret")
        asked = requests(6)

        def judge(request: JudgeRequest) -> dict[str, Any]:
            response = httpx2.post(f"{server}/v1/judge", json=request.model_dump(mode="json"), timeout=PATIENCE_S)
            assert response.status_code == 200
            return response.json()

        judgments = [judge(request) for request in asked[:3]]
        services[0][0].kill()
        judgments += [judge(request) for request in asked[3:]]
        outcomes = {t["outcome"] for each in judgments for rollout in each["rollouts"] for t in rollout["turns"]}
        assert outcomes == {"ok", None}
        health = httpx2.get(f"{server}/health").json()
        assert health["sandbox"] in ("namespaces+cgroup", "namespaces", "landlock")
        problems = {worker["url"]: worker["problem"] for worker in health["workers"]["sandbox"]}
        assert "cannot be reached" in problems[services[0][1]]
        assert problems[services[1][1]] is None
        assert "s3cret" not in httpx2.get(f"{server}/metrics").text + str(health)


def start_sandbox(stack: ExitStack, *, key: str) -> tuple[subprocess.Popen[str], str]:
    """A service; it logs its URL as JSON."""
    process = subprocess.Popen(
        [*MAIN, "sandbox", "serve", "--port", "0", "--slots", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"TIRJUDGE_SANDBOX_KEYS": key},
    )
    stack.callback(process.communicate)
    stack.callback(process.kill)
    assert process.stdout is not None
    found = re.search(r"http://[\d.:]+", process.stdout.readline())
    assert found
    return process, found[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--engine", "gpu:8000"], "give a URL such as http://127.0.0.1:8000"),
        (["--engine", "http://127.0.0.1:9", "--workers", "1"], "give only one of them"),
        (["--workers", "1", "--worker-command", "no-such-command serve"], "there is no command 'no-such-command' here"),
        (["--engines-file", "/nowhere"], "/nowhere: No such file or directory"),
        (["--profile", "/nowhere"], "give --model alone"),
        (["--sandbox", "http://127.0.0.1:9"], "http://127.0.0.1:9: cannot be reached"),
    ],
)
def test_what_cannot_be_opened_is_one_line(arguments: list[str], said: str, random_checkpoint: Path) -> None:
    model = [] if "--engine" in arguments else ["--model", str(random_checkpoint)]
    done = subprocess.run(
        [*MAIN, "serve", "--port", "0", *model, *arguments], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("tirjudge serve: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
