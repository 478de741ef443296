"""A server in a separate process: start it, send requests, and read its CPU time."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import aiohttp
import psutil

from tirjudge.concurrency import map_concurrently
from tirjudge.types import JudgeRequest, Mode

INSTRUCTIONS = (
    "Do not use any commas.",
    "Write in all capital letters.",
    "Write in all lowercase letters.",
    "Use at least 8 words.",
    "Use the word 'sea' at least twice.",
    "End with the word 'night'.",
)


def request(number: int) -> JudgeRequest:
    """Return a small pairwise request; each number gives a different one."""
    return JudgeRequest(
        mode=Mode.PAIRWISE,
        prompt=f"Write sentence {number} about the sea. {INSTRUCTIONS[number % len(INSTRUCTIONS)]}",
        responses=[
            f"The sea, sentence {number}, is deep.",
            f"sentence {number} says that the sea meets the sea at night",
        ],
    )


@dataclass(kw_only=True)
class RunningServer:
    """A server process that answers."""

    url: str
    process: psutil.Popen
    num_sent: int = 0
    """Judge requests sent so far."""
    num_tool_calls: int = 0
    """Programs run in the judgments so far."""

    def cpu_s(self) -> float:
        """Return the user and kernel CPU time of the process, without its child processes."""
        times = self.process.cpu_times()
        return times.user + times.system

    async def judge_all(self, num_judgments: int, *, concurrency: int) -> list[float]:
        """Send judge requests, `concurrency` in flight, and return the duration of each in seconds.

        Raises:
            ClientResponseError: a response is not a success.
        """
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(self.url, connector=connector, raise_for_status=True) as session:
            judging = (self._judge(session) for _ in range(num_judgments))
            return await map_concurrently(judging, num_at_once=concurrency)

    async def _judge(self, session: aiohttp.ClientSession) -> float:
        self.num_sent += 1
        body = request(self.num_sent).model_dump_json(exclude_defaults=True).encode()
        began = perf_counter()
        async with session.post("/v1/judge", data=body, headers={"content-type": "application/json"}) as response:
            text = await response.read()
        seconds = perf_counter() - began
        if calls := re.search(rb'"tool_calls":(\d+)', text):  # cheaper than parsing the whole response
            self.num_tool_calls += int(calls[1])
        return seconds


class ServerDidNotStart(Exception):
    """The process ended without printing a URL."""


@contextmanager
def started(*command: str, **options: Any) -> Iterator[RunningServer]:
    """Start a command that prints the URL of its server, with a temporary state folder. Terminate it after the block.

    Args:
        command: the command.
        options: of `subprocess.Popen`.

    Raises:
        ServerDidNotStart: the process ended without printing a URL.
    """
    with TemporaryDirectory() as state:
        environment = os.environ | {"XDG_STATE_HOME": state}
        with psutil.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, **options) as process:
            url = re.search(r"http://[\d.:]+", process.stdout.readline())
            if url is None:
                raise ServerDidNotStart(f"{' '.join(command)} ended with status {process.wait()}")
            try:
                yield RunningServer(url=url[0], process=process)
            finally:
                if process.poll() is None:
                    process.terminate()
                try:
                    process.wait(30)
                except psutil.TimeoutExpired:  # a server under attack may end slowly
                    process.kill()


def spread(latencies: Sequence[float]) -> dict[str, float]:
    """Return the mean and percentiles of latencies in seconds, as milliseconds."""
    cuts = quantiles(latencies, n=100)
    return {
        "mean_ms": round(fmean(latencies) * 1000, 2),
        "p50_ms": round(cuts[49] * 1000, 2),
        "p95_ms": round(cuts[94] * 1000, 2),
        "p99_ms": round(cuts[98] * 1000, 2),
    }
