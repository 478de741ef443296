"""Started workers: their command lines, and that real processes are restarted and leave no process."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import AsyncMock

import httpx2
import pytest

from tests.endless import endless
from tests.processes import descendants, is_alive
from tests.waiting import until
from tirjudge.engines import fleet
from tirjudge.engines.vllm import VLLMEngine
from tirjudge.errors import EngineUnavailable
from tirjudge_server import vllm_workers, worker_guard
from tirjudge_server.opening import open_judging
from tirjudge_server.settings import ServerSettings
from tirjudge_server.vllm_command import (
    WorkerModel,
    Workers,
    WorkersRefused,
    shares,
    visible_gpus,
    worker_command,
    worker_environment,
)
from tirjudge_server.vllm_workers import open_workers

SERVED = WorkerModel(model="Qwen/Qwen3-8B", name="Qwen/Qwen3-8B", context_tokens=16384)
TIRJUDGE_WORKER = f"{sys.executable} -c 'from tirjudge.cli import main; main()' worker"
MARK = "WHOSE_PROCESS"


def test_the_command_line_of_vllm() -> None:
    workers = Workers(num_workers=8, tensor_parallel=2, arguments="--max-model-len 8192 --gpu-memory-utilization '0.8'")
    line = (
        "vllm serve Qwen/Qwen3-8B --served-model-name Qwen/Qwen3-8B --max-model-len 16384 --host 127.0.0.1 --port 40001 "
        "--tensor-parallel-size 2 --enable-prompt-tokens-details --logprobs-mode raw_logprobs "
        "--scheduling-policy priority --enable-tokenizer-info-endpoint --max-model-len 8192 --gpu-memory-utilization 0.8"
    )
    assert shlex.join(worker_command(SERVED, workers=workers, port=40001)) == line


def test_command_lines_of_vllms_module_and_of_the_mini_worker() -> None:
    workers = Workers(num_workers=1, command="python3 -m vllm.entrypoints.openai.api_server")
    started = worker_command(SERVED, workers=workers, port=1)
    assert started[:5] == ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "Qwen/Qwen3-8B"]
    workers = Workers(num_workers=1, command="tirjudge worker", arguments="--max-batch 4")
    served = WorkerModel(model="/a checkpoint", name="tiny", context_tokens=2048)
    assert worker_command(served, workers=workers, port=1) == [
        *("tirjudge", "worker", "--model", "/a checkpoint", "--host", "127.0.0.1", "--port", "1", "--max-batch", "4")
    ]


def test_unclosed_quote_is_refused() -> None:
    with pytest.raises(WorkersRefused, match="quote it as in a shell"):
        worker_command(SERVED, workers=Workers(num_workers=1, arguments="--a 'b"), port=1)


def test_worker_environment_has_key_and_gpus_but_no_secrets() -> None:
    around = {"PATH": "/bin", "HF_TOKEN": "h", "TIRJUDGE_RECORDS": "postgresql://:secret@db", "VLLM_API_KEY": "old"}
    assert worker_environment(around, key="new", gpus=["2", "3"]) == {
        "PATH": "/bin",
        "HF_TOKEN": "h",
        "VLLM_API_KEY": "new",
        "VLLM_NO_USAGE_STATS": "1",
        "PYTHONUNBUFFERED": "1",
        "CUDA_VISIBLE_DEVICES": "2,3",
    }
    assert "CUDA_VISIBLE_DEVICES" not in worker_environment({}, key="new", gpus=None)


def test_each_worker_gets_separate_gpus() -> None:
    assert shares(["0", "1", "4", "5", "6"], Workers(num_workers=2, tensor_parallel=2)) == [["0", "1"], ["4", "5"]]
    assert shares([], Workers(num_workers=2, tensor_parallel=2)) == [None, None]
    with pytest.raises(WorkersRefused, match="needs 6 GPUs; 4 are visible, use --workers 2"):
        shares(["0", "1", "2", "3"], Workers(num_workers=3, tensor_parallel=2))


def test_only_visible_gpus_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "GPU-1b, 3"}) == ["GPU-1b", "3"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": ""}) == []
    monkeypatch.setenv("PATH", str(tmp_path))
    assert visible_gpus({}) == []
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 0\necho 1\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert visible_gpus({}) == ["0", "1"]


def marked(mark: str) -> set[int]:
    """Ids of the processes with this mark in their environment."""
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and is_alive(int(entry.name)):
            try:
                if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                    found.add(int(entry.name))
            except (OSError, ProcessLookupError):
                continue
    return found


def wait_for(condition: Callable[[], bool], *, at_most_s: float = 120.0) -> None:
    ends_at = time.monotonic() + at_most_s
    while not condition():
        assert time.monotonic() < ends_at
        time.sleep(0.02)


FAMILY = """
import os, sys, time
if os.fork() == 0:
    os.setsid()  # a new session: not reached by signals to the process group
    if os.fork() == 0:
        time.sleep(600)
    time.sleep(600)
open(sys.argv[1], "w").close()
time.sleep(600)
"""


@pytest.fixture
def guarded(tmp_path: Path) -> Callable[..., subprocess.Popen[bytes]]:
    """Starts a command under a guard, with a mark in its environment; waits until the command has its children."""

    def start(mark: str, *, parent: int | None = None) -> subprocess.Popen[bytes]:
        begun = tmp_path / mark
        command = [sys.executable, "-I", "-S", worker_guard.__file__, str(parent or os.getpid()), "0.2"]
        environment = os.environ | {MARK: mark}
        process = subprocess.Popen([*command, sys.executable, "-c", FAMILY, str(begun)], env=environment)
        if parent is None:
            wait_for(lambda: begun.exists() and len(marked(mark)) == 4)
        return process

    return start


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_guard_leaves_no_process_after_sigterm(guarded: Callable[..., subprocess.Popen[bytes]], number: int) -> None:
    process = guarded(f"told{number}")
    process.send_signal(number)
    assert process.wait(timeout=60) == 128 + signal.SIGTERM
    assert marked(f"told{number}") == set()


def test_guard_leaves_no_process_after_command_is_killed(guarded: Callable[..., subprocess.Popen[bytes]]) -> None:
    process = guarded("killed")
    worker = min(marked("killed") - {process.pid})
    os.kill(worker, signal.SIGKILL)
    assert process.wait(timeout=60) == 128 + signal.SIGKILL
    assert marked("killed") == set()


def test_guard_without_parent_starts_nothing(guarded: Callable[..., subprocess.Popen[bytes]]) -> None:
    process = guarded("orphan", parent=2**22 + 1)
    assert process.wait(timeout=60) == 0
    assert marked("orphan") == set()


async def is_healthy(url: str) -> bool:
    async with httpx2.AsyncClient() as http:
        try:
            return (await http.get(f"{url}/health")).status_code == 200
        except httpx2.RequestError:
            return False


@pytest.mark.slow
async def test_readiness_check_ignores_proxies(random_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    served = WorkerModel(model=str(random_checkpoint), name="random", context_tokens=4096)
    async with (
        asyncio.timeout(60),
        open_workers(served, workers=Workers(num_workers=1, command=TIRJUDGE_WORKER)) as started,
    ):
        engine = VLLMEngine(started.urls[0], api_key=started.key)
        assert (await engine.ready()).name == "random"
        await engine.aclose()


@pytest.mark.slow
async def test_killed_worker_is_restarted_and_all_end_with_the_server(
    random_checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(vllm_workers, "RESTART_S", (0.1, 1.0))
    served = WorkerModel(model=str(random_checkpoint), name="random", context_tokens=4096)
    async with open_workers(served, workers=Workers(num_workers=1, command=TIRJUDGE_WORKER)) as started:
        [url] = started.urls
        assert "1 of 1 workers are ready after" in capsys.readouterr().err
        assert "[worker 0] tirjudge worker is ready at" in caplog.text
        async with httpx2.AsyncClient(base_url=url) as http:
            assert (await http.get("/v1/models")).status_code == 401
            key = {"authorization": f"Bearer {started.key}"}
            assert (await http.get("/v1/models", headers=key)).status_code == 200
        guard, worker = sorted(descendants(os.getpid(), containing=started.urls[0].rpartition(":")[2]))
        assert started.key.encode() not in (Path("/proc") / str(worker) / "cmdline").read_bytes()
        os.kill(worker, signal.SIGKILL)
        await until(lambda: started.workers[0].num_restarts == 1, at_most_s=120)
        assert not is_alive(guard)
        async with asyncio.timeout(120):
            while not await is_healthy(url):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert f"ended with status {128 + signal.SIGKILL}; restarting in 0.1 s" in caplog.text
        again = descendants(os.getpid(), containing=started.urls[0].rpartition(":")[2])
        assert len(again) == 2
    assert not any(map(is_alive, again))
    assert started.key not in caplog.text


@pytest.mark.slow
async def test_healthy_worker_that_makes_no_steps_is_restarted(
    random_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_workers, "RESTART_S", (0.1, 1.0))
    monkeypatch.setattr(vllm_workers, "GRACE_S", 0.5)
    monkeypatch.setattr(fleet, "WATCH_S", 0.1)
    monkeypatch.setattr(fleet, "STUCK_S", 0.3)
    monkeypatch.setattr(VLLMEngine, "progress", AsyncMock(return_value="the same"))
    settings = ServerSettings(model=random_checkpoint, workers=1, worker_command=TIRJUDGE_WORKER)
    async with open_judging(settings) as model:
        [url] = [worker.url for worker in model.engine.workers]
        _, worker = sorted(descendants(os.getpid(), containing=url.rpartition(":")[2]))
        ids = await model.engine.tokenizer.encode_prompt("?")
        with pytest.raises(EngineUnavailable, match="its engine hangs"):
            await model.engine.generate(ids, sampling=endless(4000), session="s.0")
        await until(lambda: not is_alive(worker), at_most_s=120)
        async with asyncio.timeout(120):
            while not await is_healthy(url):  # noqa: ASYNC110
                await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_worker_that_ends_before_ready_is_reported_with_last_line() -> None:
    served = WorkerModel(model="/nowhere", name="random", context_tokens=4096)
    with pytest.raises(
        EngineUnavailable,
        match=r"worker 0 ended with status 2 before it was ready.*/nowhere is not a checkpoint folder",
    ):
        async with open_workers(served, workers=Workers(num_workers=1, command=TIRJUDGE_WORKER)):
            pass


async def test_missing_command_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(WorkersRefused, match="command not found: 'vllm'; use pip install vllm"):
        async with open_workers(SERVED, workers=Workers(num_workers=1)):
            pass
