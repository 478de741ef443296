"""Start and stop a vLLM server, and read its metrics."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psutil

from tests.vllm.checkpoint import write_served
from tests.vllm.environment import vllm_python

SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SERVER_DEV_MODE": "1",
    # Run the engine in the process of the API server, with one compute thread on any core.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
"""Environment variables of every vLLM process in the tests."""

BLOCK_TOKENS = 32
"""Tokens per block of the prefix cache: the minimum for attention on CPUs."""

SMALL = [
    *("--dtype", "float32", "--enforce-eager", "--max-num-seqs", "32", "--block-size", str(BLOCK_TOKENS)),
    *("--kv-cache-memory-bytes", str(256 * 1024**2), "--distributed-executor-backend", "uni"),
]
"""Options of a server that starts fast and computes the same as the embedded engine."""

STARTS_IN_S = 600.0
"""Timeout for the start of a server."""

OF_THE_TESTS = Path(__file__).parents[2] / ".pytest_cache" / "d" / "environments" / "vllm"
"""Folder of the environment that the tests create."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VLLMServer:
    """A running vLLM server."""

    url: str
    log: Path | None
    """File with the output of the server. None: the server was not started here."""
    pid: int | None = None
    """Pid of the API process, the parent of the engine. None: the server was not started here."""

    @property
    def last_words(self) -> str:
        """The end of the server's output."""
        return "" if self.log is None else self.log.read_text(errors="replace")[-3000:]

    def metric(self, name: str) -> float:
        """Return the value of `vllm:NAME`, summed over its labels. 0: not yet counted."""
        text = httpx2.get(f"{self.url}/metrics", timeout=30).text
        values = re.findall(rf"^vllm:{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, values))


def started_with(python: Path) -> list[str]:
    """Return the command that starts a server, without options."""
    return [str(python), "-W", "ignore", "-m", "vllm.entrypoints.openai.api_server"]


def server_options(*, model: Path, port: int) -> list[str]:
    """Return the options with which a server serves a model as `judge` on a port."""
    return [
        *("--model", str(model), "--served-model-name", "judge", "--host", "127.0.0.1", "--port", str(port)),
        *SMALL,
        *("--enable-prompt-tokens-details", "--scheduling-policy", "priority", "--logprobs-mode", "raw_logprobs"),
        "--enable-tokenizer-info-endpoint",
    ]


@contextmanager
def vllm_server(
    python: Path, *, model: Path, log: Path, options: Sequence[str] = (), generates: bool = True
) -> Iterator[VLLMServer]:
    """Start a server, send a first request, which is slower than later ones, and stop the server after the block.

    Args:
        python: interpreter of an environment with vLLM.
        model: folder of the model.
        log: file for the output of the server.
        options: additional options of the command.
        generates: whether the model writes text. False: no first request is sent.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = psutil.Process(_fork_server(python).start([*server_options(model=model, port=port), *options], log=log))
    server = VLLMServer(url=f"http://127.0.0.1:{port}", log=log, pid=process.pid)
    try:
        _wait(process, server)
        body = {"model": "judge", "prompt": [65, 66, 67], "max_tokens": 2}
        if generates:
            httpx2.post(f"{server.url}/v1/completions", json=body, timeout=60).raise_for_status()
        yield server
    finally:
        _stop(process)


class _ForkServer:
    """A process of `tests/vllm/fork_server.py`. It ends with this process."""

    def __init__(self, python: Path) -> None:
        command = [str(python), "-W", "ignore", str(Path(__file__).with_name("fork_server.py"))]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, env=os.environ | SETTINGS, stdin=pipe, stdout=pipe, text=True)
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout
        atexit.register(self.close)

    def start(self, arguments: Sequence[str], *, log: Path) -> int:
        """Start a server with these options, and return its pid."""
        wanted = {"arguments": list(arguments), "log": str(log), "env": os.environ | SETTINGS}
        print(json.dumps(wanted), file=self._stdin, flush=True)
        line = self._stdout.readline()
        if not line:
            raise RuntimeError("the process that imports vLLM has ended; its stderr says why")
        return int(line)

    def close(self) -> None:
        """End the process."""
        self._stdin.close()
        self._process.wait()


_fork_server = functools.cache(_ForkServer)


@contextmanager
def bundled_judge_server(url: str | None) -> Iterator[VLLMServer]:
    """Yield the server at a URL, or start one with the bundled judge.

    Args:
        url: URL of a server with the options of `server_command` and no other clients. None: start a server.
    """
    if url is not None:
        yield VLLMServer(url=url, log=None)
        return
    with tempfile.TemporaryDirectory() as folder:
        model = write_served(Path(folder) / "judge")
        with vllm_server(vllm_python(OF_THE_TESTS), model=model, log=Path(folder) / "log") as server:
            yield server


def _wait(process: psutil.Process, server: VLLMServer) -> None:
    deadline = time.monotonic() + STARTS_IN_S
    while time.monotonic() < deadline and process.is_running():
        try:
            if httpx2.get(f"{server.url}/health", timeout=5).is_success:
                return
        except httpx2.HTTPError:
            time.sleep(0.2)
    how = f"did not start within {STARTS_IN_S:.0f} s" if process.is_running() else "ended"
    raise RuntimeError(f"vLLM {how}:\n{server.last_words}")


def _stop(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.terminate()
        try:
            process.wait(timeout=20)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait()
