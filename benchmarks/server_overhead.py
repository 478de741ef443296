"""What the server itself costs and holds, with a model that takes no time: speed, CPU time, overload, memory.

    python benchmarks/server_overhead.py --out benchmarks/results/server_overhead.json

Starts `server_scripted.py`, which is `tirjudge serve` with that model, asks over the loopback, and prints one JSON object.
No two requests are alike, so nothing is joined and the cache is looked into in vain. CPU time is that of the server's own
process: programs run in others. The scripted model's share of it, which is no cost of the server, is given beside it.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from statistics import fmean, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Annotated, Any

import typer
from server_load import descendants, request, rss_mb
from server_scripted import Engine

from tirjudge.judge import Judge

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
CONCURRENCIES = (1, 8, 64, 512)
WARM_UP = 100
"""Judgments before anything is measured."""

PLACES = 16
"""Judgments side by side, the server's default."""

OVERLOAD_DELAY_MS = 100.0
"""Of each text of the model in the overload, so that it and not this machine sets the capacity."""


class Caller:
    """One connection. Requests are bytes and answers are not parsed, so that asking costs little beside answering."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, number: int) -> int:
        """The status of the answer to one of many requests."""
        body = request(number).model_dump_json(exclude_defaults=True).encode()
        self._writer.write(b"POST /v1/judge HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n")
        self._writer.write(b"content-length: %d\r\n\r\n" % len(body) + body)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        await self._reader.readexactly(int(head.partition("content-length:")[2].partition("\r\n")[0]))
        return int(head[9:12])

    @property
    def hung_up(self) -> bool:
        """Whether the server did, as it does after a while of silence."""
        return self._reader.at_eof()

    def close(self) -> None:
        self._writer.close()


class Callers:
    """Connections to one server, used again."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[Caller] = []

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Caller]:
        self._idle = [caller for caller in self._idle if not caller.hung_up]
        caller = self._idle.pop() if self._idle else Caller(*await asyncio.open_connection("127.0.0.1", self._port))
        yield caller
        self._idle.append(caller)

    def close(self) -> None:
        for caller in self._idle:
            caller.close()


class Server:
    """A server that runs, and the requests that it was asked so far."""

    def __init__(self, process: subprocess.Popen[str], *, port: int) -> None:
        self.pid = process.pid
        self.callers = Callers(port)
        self.num_asked = 0

    async def ask(self) -> tuple[int, float]:
        """The status and the seconds of one more request."""
        self.num_asked += 1
        number = self.num_asked
        async with self.callers.one() as caller:
            began = perf_counter()
            status = await caller.ask(number)
            return status, perf_counter() - began

    async def ask_all(self, num_judgments: int, *, concurrency: int) -> list[float]:
        """Seconds of each judgment, `concurrency` under way at a time."""
        numbers = iter(range(num_judgments))
        latencies: list[float] = []

        async def work() -> None:
            for _ in numbers:
                status, seconds = await self.ask()
                if status != 200:
                    raise SystemExit(f"the server answered {status}")
                latencies.append(seconds)

        await asyncio.gather(*(work() for _ in range(concurrency)))
        return latencies

    def cpu_s(self) -> float:
        """CPU time of the process so far, in user mode and in the kernel; not of those below it."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * TICK_S


@contextmanager
def started_server(*options: str) -> Iterator[Server]:
    command = [sys.executable, str(Path(__file__).with_name("server_scripted.py")), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"the server ended with status {process.wait()}")
        server = Server(process, port=int(line.split()[4].rpartition(":")[2]))
        try:
            yield server
        finally:
            server.callers.close()
            process.terminate()


@contextmanager
def records_option(*, with_records: bool) -> Iterator[str]:
    """A database of its own, or none."""
    with TemporaryDirectory() as folder:
        yield f"--records={folder}/records.db" if with_records else "--records=none"


def main(
    num_judgments: Annotated[int, typer.Option(help="At each concurrency.")] = 1000,
    num_memory: Annotated[int, typer.Option(help="Judgments of the watch over the memory; 0: none.")] = 20_000,
    overload_s: Annotated[float, typer.Option(help="Of each part of the overload; 0: none.")] = 10.0,
    out: Annotated[Path | None, typer.Option(help="File for the result; default: printed only.")] = None,
) -> None:
    """Measure, and print the result as JSON."""
    result: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]),
        "commit": subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip() or None,
        "python": platform.python_version(),
        "cpu": cpu_model(),
        "num_cores": len(os.sched_getaffinity(0)),
        "load_average_before": os.getloadavg(),
    }
    result["speed"] = [
        asyncio.run(measure_speed(num_programs, with_records=with_records, num_judgments=num_judgments))
        for num_programs in (0, 1)
        for with_records in (False, True)
    ]
    if overload_s:
        result["overload"] = asyncio.run(measure_overload(overload_s))
    if num_memory:
        result["memory"] = asyncio.run(measure_memory(num_memory))
    result["load_average_after"] = os.getloadavg()
    text = json.dumps(result, indent=2)
    print(text)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text + "\n")


async def measure_speed(num_programs: int, *, with_records: bool, num_judgments: int) -> dict[str, Any]:
    """One server at each concurrency. The queue is long enough for the highest."""
    rounds = []
    with (
        records_option(with_records=with_records) as records,
        started_server(f"--programs={num_programs}", records, "--max-queue=1024") as server,
    ):
        await server.ask_all(WARM_UP, concurrency=8)
        for concurrency in CONCURRENCIES:
            cpu_s, began = server.cpu_s(), perf_counter()
            latencies = await server.ask_all(num_judgments, concurrency=concurrency)
            elapsed = perf_counter() - began
            rounds.append(
                {
                    "concurrency": concurrency,
                    "judgments_per_s": round(num_judgments / elapsed, 1),
                    **spread(latencies),
                    "cpu_ms_per_judgment": round((server.cpu_s() - cpu_s) / num_judgments * 1000, 2),
                }
            )
    return {
        "programs_per_judgment": num_programs,
        "records": with_records,
        "num_judgments": num_judgments,
        "engine_cpu_ms_per_judgment": round(await engine_cpu_ms(num_programs), 2),
        "rounds": rounds,
    }


async def engine_cpu_ms(num_programs: int, *, num_judgments: int = 200) -> float:
    """CPU time that the scripted model takes for a judgment; it is asked in this process, and nothing else is timed."""
    engine = TimedEngine(num_programs=num_programs, delay_s=0.0)
    judge = Judge(engine=engine)
    for number in range(num_judgments):
        await judge.judge(request(number).model_copy(update={"tools": "off"}))
    # Without a sandbox each judgment is one text and one read: the first of `num_programs + 1` texts, and the read.
    return (engine.read_s + engine.write_s * (num_programs + 1)) / num_judgments * 1000


class TimedEngine(Engine):
    """Notes how long it works."""

    write_s = 0.0
    read_s = 0.0

    async def generate(self, token_ids: Sequence[int], **options: Any) -> Any:
        began = process_time()
        completion = await super().generate(token_ids, **options)
        if options["sampling"].allowed_token_ids is None:
            self.write_s += process_time() - began
        else:
            self.read_s += process_time() - began
        return completion


async def measure_overload(seconds: float) -> dict[str, Any]:
    """As many requests a second as it can judge, and twice as many, whether or not the others are answered yet."""
    options = ("--programs=1", f"--delay-ms={OVERLOAD_DELAY_MS}", "--records=none", f"--max-queue={PLACES}")
    with started_server(*options) as server:
        await server.ask_all(WARM_UP, concurrency=PLACES)
        began = perf_counter()
        full = await server.ask_all(round(10 * PLACES * seconds / 2), concurrency=2 * PLACES)
        capacity = len(full) / (perf_counter() - began)
        twice = await measure_arrivals(server, per_s=2 * capacity, seconds=seconds)
    at_capacity = spread(full)
    return {
        "engine_ms_per_text": OVERLOAD_DELAY_MS,
        "max_concurrency": PLACES,
        "max_queue": PLACES,
        "capacity_per_s": round(capacity, 1),
        "at_capacity": at_capacity,
        "at_twice_the_capacity": twice,
        "p99_ratio": round(twice["p99_ms"] / at_capacity["p99_ms"], 2),
    }


async def measure_arrivals(server: Server, *, per_s: float, seconds: float) -> dict[str, Any]:
    """Requests that come evenly, however many are under way."""
    began = perf_counter()
    asking: list[asyncio.Task[tuple[int, float]]] = []
    while (due := began + len(asking) / per_s) < began + seconds:
        await asyncio.sleep(max(0.0, due - perf_counter()))
        asking.append(asyncio.create_task(server.ask()))
    answers = await asyncio.gather(*asking)
    accepted = [latency for status, latency in answers if status == 200]
    refused = [latency for status, latency in answers if status == 429]
    return {
        "requests_per_s": round(per_s, 1),
        "num_requests": len(answers),
        "num_accepted": len(accepted),
        "num_refused_429": len(refused),
        "num_other": len(answers) - len(accepted) - len(refused),
        "accepted_per_s": round(len(accepted) / seconds, 1),
        **spread(accepted),
        "refusal_p99_ms": spread(refused)["p99_ms"] if len(refused) > 1 else None,
    }


async def measure_memory(num_judgments: int, *, num_samples: int = 20) -> dict[str, Any]:
    """Resident memory over many judgments with records and a program each, and by how much it grew in their second half."""
    step = num_judgments // num_samples
    samples = []
    with (
        records_option(with_records=True) as records,
        started_server("--programs=1", records) as server,
    ):
        began = perf_counter()
        for _ in range(num_samples):
            await server.ask_all(step, concurrency=PLACES)
            samples.append(
                {
                    "num_judgments": server.num_asked,
                    "server_mb": round(rss_mb(server.pid), 1),
                    "below_mb": round(sum(map(rss_mb, descendants(server.pid))), 1),
                }
            )
        elapsed = perf_counter() - began
    late = [sample["server_mb"] for sample in samples[num_samples // 2 :]]
    return {
        "num_judgments": server.num_asked,
        "judgments_per_s": round(server.num_asked / elapsed, 1),
        "growth_of_the_second_half_mb": round(late[-1] - late[0], 1),
        "samples": samples,
    }


def spread(latencies: Sequence[float]) -> dict[str, float]:
    """In milliseconds."""
    cuts = quantiles(latencies, n=100)
    return {
        "mean_ms": round(fmean(latencies) * 1000, 2),
        "p50_ms": round(cuts[49] * 1000, 2),
        "p99_ms": round(cuts[98] * 1000, 2),
    }


def cpu_model() -> str | None:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


if __name__ == "__main__":
    typer.run(main)
