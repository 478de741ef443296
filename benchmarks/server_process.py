"""A server in a process of its own: started, asked, and its processor time and memory read from outside."""

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
    """One of many small pairs, no two alike."""
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
    """A server, and how many requests it was sent so far."""

    url: str
    process: psutil.Process
    num_asked: int = 0

    def cpu_s(self) -> float:
        """Processor time of the process so far, in user mode and in the kernel; not of those below it."""
        times = self.process.cpu_times()
        return times.user + times.system

    def memory(self) -> dict[str, float]:
        """Resident memory of the server, and of all processes below it; pages that forks share count for each."""
        sizes = []
        for child in self.process.children(recursive=True):
            try:
                sizes.append(child.memory_info().rss / 2**20)
            except psutil.NoSuchProcess:  # it has ended meanwhile
                continue
        server_mb = self.process.memory_info().rss / 2**20
        return {"server_mb": round(server_mb, 1), "below_mb": round(sum(sizes), 1), "num_below": len(sizes)}

    def session(self) -> aiohttp.ClientSession:
        """Connections to it. Answers are not parsed, so that asking costs little beside answering."""
        return aiohttp.ClientSession(self.url, connector=aiohttp.TCPConnector(limit=0))

    async def ask(self, session: aiohttp.ClientSession) -> tuple[int, float]:
        """The status and the seconds of one more request."""
        self.num_asked += 1
        body = request(self.num_asked).model_dump_json(exclude_defaults=True).encode()
        began = perf_counter()
        async with session.post("/v1/judge", data=body, headers={"content-type": "application/json"}) as answer:
            await answer.read()
            return answer.status, perf_counter() - began

    async def ask_all(self, num_judgments: int, *, concurrency: int) -> list[float]:
        """Seconds of each judgment, `concurrency` under way at a time.

        Raises:
            SystemExit: one was not answered with 200.
        """
        async with self.session() as session:
            asking = (self.ask(session) for _ in range(num_judgments))
            answers = await map_concurrently(asking, num_at_once=concurrency)
        if refused := {status for status, _ in answers} - {200}:
            raise SystemExit(f"the server answered {refused}")
        return [seconds for _, seconds in answers]


@contextmanager
def started(*command: str) -> Iterator[RunningServer]:
    """The server of a command that prints its URL, in a state folder of its own; it ends with the block."""
    with (
        TemporaryDirectory() as state,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=os.environ | {"XDG_STATE_HOME": state}
        ) as process,
    ):
        assert process.stdout is not None
        url = re.search(r"http://[\d.:]+", process.stdout.readline())
        if url is None:
            raise SystemExit(f"{' '.join(command)} ended with status {process.wait()}")
        try:
            yield RunningServer(url=url[0], process=psutil.Process(process.pid))
        finally:
            process.terminate()


def spread(latencies: Sequence[float]) -> dict[str, float]:
    """In milliseconds."""
    cuts = quantiles(latencies, n=100)
    return {
        "mean_ms": round(fmean(latencies) * 1000, 2),
        "p50_ms": round(cuts[49] * 1000, 2),
        "p95_ms": round(cuts[94] * 1000, 2),
        "p99_ms": round(cuts[98] * 1000, 2),
    }
