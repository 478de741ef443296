"""Measure the time per program of the pool, of a bare warm fork, and of other ways to run untrusted Python.

    python benchmarks/sandbox_speed.py --json benchmarks/results/sandbox_speed.json
    DOCKER_HOST=unix:///run/docker.sock python benchmarks/sandbox_speed.py --image my-python-with-sympy

The lower bound is a bare fork. A process imports the same modules as the pool's warm process and runs the program once. Then
it forks, and the child runs the program. Programs have neither isolation nor limits, and the time is measured inside the
forking process. Within each round the contestants take turns, so that background load affects all of them. A figure is the
median or a percentile over all turns. The report names contestants that do not work on this machine, with the reason. Slow
contestants get only one turn per concurrency, and none if a turn would take too long.

The CPU time of a contestant is that of its processes, without those of Docker. `own_cpu_ms` is the part of this process,
which runs the supervisor of a pool, or a client of the other contestants.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from reporting import TIRJUDGE, JsonOut, report
from sandbox_backends import isolating_levels, opened
from sandbox_host import adopt_orphans, cpu_s, descendants, reap_adopted
from server_process import ServerDidNotStart, started

from tirjudge.errors import SandboxUnavailable
from tirjudge_sandbox import Limits

PROGRAMS = {
    "print": ("print(sum(range(100)))", "4950\n"),
    "sympy": ("import sympy\nx = sympy.Symbol('x')\nprint(sympy.factor(x**3 - 1))", "(x - 1)*(x**2 + x + 1)\n"),
}
CONCURRENCIES = (1, 8, 64)
"""Numbers of programs in flight that are measured."""
FLOOR = "floor: bare warm fork"
LONGEST_TURN_S = 8.0
"""A contestant whose turn would take longer is not measured at that concurrency."""
SLOW_S = 0.5
"""A contestant that takes longer per program gets only one turn per concurrency."""
WARM_UP_S = 3.0
"""Seconds to wait after the first program, because warm processes start in the background."""
LIMITS = Limits(cpu_s=20.0, wall_s=60.0)
DOCKER_RUN = (
    *("docker", "run", "--rm", "--network=none", "--read-only", "--cap-drop=ALL", "--user=65534:65534"),
    *("--security-opt=no-new-privileges", "--memory=512m", "--pids-limit=64", "--tmpfs=/tmp:rw,size=64m"),
)
FIREJAIL = ("firejail", "--quiet", "--noprofile", "--net=none", "--seccomp", "--caps.drop=all")
BWRAP = (
    *("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"),
    *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),
)

_WARM_FORKER = """
import contextlib, gc, importlib, io, json, os, sys, time
names, code = json.loads(sys.stdin.readline())
for name in names:
    try: importlib.import_module(name)
    except BaseException: pass
with contextlib.redirect_stdout(io.StringIO()):
    exec(compile(code, "program.py", "exec"), {"__name__": "__main__"})
gc.collect()
gc.freeze()
answers, output = os.fdopen(os.dup(1), "w", buffering=1), os.memfd_create("output")
print("ready", file=answers)
for line in sys.stdin:
    code = json.loads(line)
    os.ftruncate(output, 0)
    start = time.perf_counter()
    child = os.fork()
    if not child:
        os.dup2(output, 1)
        os.lseek(1, 0, 0)
        sys.stdout = open(1, "w", closefd=False)
        exec(compile(code, "program.py", "exec"), {"__name__": "__main__"})
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
    print(json.dumps([time.perf_counter() - start, os.pread(output, 65536, 0).decode()]), file=answers)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A way to run a program."""

    name: str
    run: Callable[[str], Awaitable[tuple[str, float | None]]]
    """Code -> its output, and the seconds measured by the contestant (None: measured here)."""
    owned: set[int] = field(default_factory=set)
    """Pids whose CPU time counts, with their descendants. The ended children of this process count too."""
    counts_self: bool = True
    """Whether the CPU time of this process counts, because it runs the supervisor of a pool, or a client."""


@dataclass(slots=True, kw_only=True)
class Turns:
    """The turns of one contestant with one program at one concurrency."""

    latencies: list[float] = field(default_factory=list)
    """Seconds per program."""
    seconds: float = 0.0
    """Total time of the turns."""
    cpu_s: float = 0.0
    """Total CPU time."""
    own_cpu_s: float = 0.0
    """Part of `cpu_s` that this process used."""


class NotHere(Exception):
    """This contestant does not work on this machine."""


def main(
    level: Annotated[
        list[str] | None, typer.Option(help="Level of the pool. Repeatable. Default: all that work.")
    ] = None,
    slots: Annotated[int | None, typer.Option(help="Programs run concurrently. Default: one per core.")] = None,
    seconds: Annotated[float, typer.Option(help="Seconds per turn.")] = 1.5,
    rounds: Annotated[int, typer.Option(help="Turns per contestant and concurrency.")] = 3,
    image: Annotated[str, typer.Option(help="Docker image with python3 and sympy. Default: no Docker.")] = "",
    only: Annotated[
        str, typer.Option(help="Comma-separated parts of the names of contestants to measure. Default: all.")
    ] = "",
    json_out: JsonOut = None,
) -> None:
    """Measure, and print the result as JSON."""
    adopt_orphans()
    num_slots = slots or len(os.sched_getaffinity(0))
    skipped: dict[str, str] = {}
    figures: dict[str, Any] = {}

    async def measure(program: str) -> None:
        names = level or isolating_levels()
        wanted = [part for part in only.split(",") if part]
        async with contextlib.AsyncExitStack() as stack:
            contestants = await open_ways(
                ways(levels=names, slots=num_slots, image=image, program=program),
                *PROGRAMS[program],
                stack=stack,
                wanted=wanted,
                skip=lambda name, reason: skipped.update({f"{name}, {program}": reason}),
            )
            turns = await take_turns(contestants, *PROGRAMS[program], seconds=seconds, rounds=rounds, slots=num_slots)
        figures[program] = {name: rows(found) for name, found in turns.items()}

    for program in PROGRAMS:
        asyncio.run(measure(program))
    codes = {name: code for name, (code, _) in PROGRAMS.items()}
    head = {"slots": num_slots, "turn_s": seconds, "rounds": rounds, "programs": codes}
    report(head | {"skipped": skipped, "figures": figures}, json_out)


async def open_ways(
    ways: Mapping[str, contextlib.AbstractAsyncContextManager[Contestant]],
    code: str,
    expected: str,
    *,
    stack: contextlib.AsyncExitStack,
    wanted: Sequence[str],
    skip: Callable[[str, str], None],
) -> list[Contestant]:
    """Return the contestants that work here, after their first program. `skip` receives the others, with the reason."""
    contestants, claimed = [], set(descendants(os.getpid()))
    for name, opening in ways.items():
        if wanted and name != FLOOR and not any(part in name for part in wanted):
            continue
        try:
            contestant = await stack.enter_async_context(opening)
            output, _ = await contestant.run(code)
            await asyncio.sleep(WARM_UP_S)
            contestant.owned.update(set(descendants(os.getpid())) - claimed)
            claimed |= contestant.owned
            if output != expected:
                raise NotHere(f"printed {output[:200]!r}, not {expected!r}")
            contestants.append(contestant)
        except (NotHere, SandboxUnavailable, ServerDidNotStart, OSError) as error:
            skip(name, " ".join(str(error).split())[:300])
    return contestants


# ------------------------------------------------------------------------------------------------------------ measuring


async def take_turns(
    contestants: Sequence[Contestant], code: str, expected: str, *, seconds: float, rounds: int, slots: int
) -> dict[str, dict[int, Turns]]:
    """Measure all contestants in turns, and return name -> concurrency -> turns."""
    found = {contestant.name: {number: Turns() for number in CONCURRENCIES} for contestant in contestants}
    for number in range(rounds):
        for concurrency in CONCURRENCIES:
            for contestant in contestants:
                alone = found[contestant.name][1].latencies
                alone_s = statistics.median(alone) if alone else 0.0
                if (alone_s > SLOW_S and number) or alone_s * concurrency / slots > LONGEST_TURN_S:
                    continue
                print(f"{contestant.name}: {concurrency} in flight, round {number + 1}", file=sys.stderr)
                turns = found[contestant.name][concurrency]
                await take_turn(
                    contestant, code, expected=expected, seconds=seconds, concurrency=concurrency, turns=turns
                )
    return found


async def take_turn(
    contestant: Contestant, code: str, *, expected: str, seconds: float, concurrency: int, turns: Turns
) -> None:
    """Run programs in `concurrency` lanes, one after the other in each, for `seconds` and until all have ended."""
    await contestant.run(code)
    began_own, began_cpu, began = time.process_time(), used_cpu_s(contestant), time.perf_counter()

    async def lane() -> None:
        while time.perf_counter() < began + seconds:
            start = time.perf_counter()
            output, said_s = await contestant.run(code)
            turns.latencies.append(time.perf_counter() - start if said_s is None or concurrency > 1 else said_s)
            if output != expected:
                raise RuntimeError(f"{contestant.name} printed {output!r}")

    await asyncio.gather(*(lane() for _ in range(concurrency)))
    turns.seconds += time.perf_counter() - began
    turns.own_cpu_s += time.process_time() - began_own
    turns.cpu_s += used_cpu_s(contestant) - began_cpu


def used_cpu_s(contestant: Contestant) -> float:
    """Return the CPU time of a contestant so far. None of its programs may be running."""
    reap_adopted()  # bwrap and firejail end before their children
    own = resource.getrusage(resource.RUSAGE_SELF)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    alive = contestant.owned.union(*map(descendants, contestant.owned))
    total = ended.ru_utime + ended.ru_stime + cpu_s(alive)
    if contestant.counts_self:
        total += own.ru_utime + own.ru_stime
    return total


def rows(found: Mapping[int, Turns]) -> dict[str, dict[str, float]]:
    """Return concurrency -> figures."""
    figures = {}
    for concurrency, turns in found.items():
        if turns.latencies:
            latencies = sorted(turns.latencies)
            figures[str(concurrency)] = {
                "num": len(latencies),
                "p50_ms": round(1000 * statistics.median(latencies), 2),
                "p99_ms": round(1000 * latencies[math.ceil(0.99 * len(latencies)) - 1], 2),
                "programs_per_s": round(len(latencies) / turns.seconds, 1),
                "cpu_ms": round(1000 * turns.cpu_s / len(latencies), 2),
                "own_cpu_ms": round(1000 * turns.own_cpu_s / len(latencies), 3),
            }
    return figures


# ---------------------------------------------------------------------------------------------------------- contestants


def ways(
    *, levels: Sequence[str], slots: int, image: str, program: str
) -> dict[str, contextlib.AbstractAsyncContextManager[Contestant]]:
    """Return name -> contestant. Entering one raises an exception that `open_ways` catches if it does not work here."""
    python = (sys.executable, "-I", "-c")
    return {
        FLOOR: warm_forkers(levels, num=slots, program=program),
        **{f"pool, {name}": pool(name, slots=slots) for name in levels},
        **{f"pool over HTTP, {name}": service(name, slots=slots) for name in levels},
        "subprocess": command("subprocess", python, slots=slots),
        "bwrap": command("bwrap", [*bwrap(), *python], slots=slots),
        "firejail": command("firejail", [*FIREJAIL, *python], slots=slots),
        "docker exec": docker("docker exec", image, slots=slots, is_warm=True),
        "docker run": docker("docker run", image, slots=slots, is_warm=False),
    }


@contextlib.asynccontextmanager
async def pool(level: str, *, slots: int) -> AsyncIterator[Contestant]:
    """A `SandboxPool` in this process."""
    async with opened(level, slots=slots, limits=LIMITS) as box:

        async def run(code: str) -> tuple[str, float | None]:
            return (await box.run(code)).stdout, None

        yield Contestant(name=f"pool, {level}", run=run)


@contextlib.asynccontextmanager
async def warm_forkers(levels: Sequence[str], *, num: int, program: str) -> AsyncIterator[Contestant]:
    """The lower bound: `num` warm processes with the same loaded modules as the pool's warm process."""
    code, _ = PROGRAMS[program]
    names = await loaded_modules(levels, code=code)
    idle: asyncio.Queue[asyncio.subprocess.Process] = asyncio.Queue()

    async def send(forker: asyncio.subprocess.Process, message: Any) -> bytes:
        assert forker.stdin is not None
        assert forker.stdout is not None
        forker.stdin.write(json.dumps(message).encode() + b"\n")
        return await forker.stdout.readline()

    async def run(code: str) -> tuple[str, float | None]:
        forker = await idle.get()
        try:
            seconds, output = json.loads(await send(forker, code))
        finally:
            idle.put_nowait(forker)
        return output, seconds

    async def end(forker: asyncio.subprocess.Process) -> None:
        assert forker.stdin is not None
        forker.stdin.close()
        await forker.wait()

    async with contextlib.AsyncExitStack() as stack:
        for _ in range(num):
            command = (sys.executable, "-I", "-c", _WARM_FORKER)
            forker = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            stack.push_async_callback(end, forker)
            if await send(forker, [names, code]) != b"ready\n":
                raise NotHere("the floor cannot import the modules of the pool's process")
            idle.put_nowait(forker)
        yield Contestant(name=FLOOR, run=run, counts_self=False)


async def loaded_modules(levels: Sequence[str], *, code: str) -> list[str]:
    """Return the modules that are loaded in the pool's warm process for this program."""
    asking = code.splitlines()[0] if code.startswith("import") else ""
    program = f"import sys\nloaded = sorted(sys.modules)\n{asking}\nimport json\nprint(json.dumps(loaded))"
    for level in levels:
        with contextlib.suppress(SandboxUnavailable):
            async with opened(level, slots=1, limits=Limits(cpu_s=20.0, wall_s=60.0, output_bytes=1 << 20)) as box:
                await asyncio.sleep(WARM_UP_S)
                await box.run(program)
                result = await box.run(program)
                if result.outcome.is_ok:
                    return json.loads(result.stdout)
                raise NotHere(f"the pool does not run this program: {result.error}")
    raise NotHere("no pool works here, so the modules to load are not known")


@contextlib.asynccontextmanager
async def service(level: str, *, slots: int) -> AsyncIterator[Contestant]:
    """`tirjudge sandbox serve` in another process, over keep-alive connections."""
    arguments = ("sandbox", "serve", "--port", "0", "--slots", str(slots), "--level", level)
    with started(*TIRJUDGE, *arguments, stderr=subprocess.DEVNULL) as server:
        port = int(server.url.rpartition(":")[2])
        connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

        async def run(code: str) -> tuple[str, float | None]:
            while connections and connections[-1][0].at_eof():  # the service closes idle connections
                connections.pop()[1].close()
            connection = connections.pop() if connections else await asyncio.open_connection("127.0.0.1", port)
            answer = await post(connection, "/v1/execute", {"code": code})
            connections.append(connection)
            return answer.get("stdout", str(answer)), None

        yield Contestant(name=f"pool over HTTP, {level}", run=run)
        for _, writer in connections:
            writer.close()


async def post(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], path: str, body: Any) -> dict[str, Any]:
    """Send one request over an open connection with a minimal HTTP client."""
    reader, writer = connection
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
    try:
        answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    except EOFError as error:
        raise ConnectionError("the service closed the connection") from error
    length = int(answer.split("content-length:")[1].split("\r\n")[0])
    return json.loads(await reader.readexactly(length))


@contextlib.asynccontextmanager
async def command(
    name: str, arguments: Sequence[str], *, slots: int, uses_docker: bool = False
) -> AsyncIterator[Contestant]:
    """A new process per program, with the code as its last argument; at most `slots` run concurrently."""
    if shutil.which(arguments[0]) is None:
        raise NotHere(f"{arguments[0]} is not installed")
    turnstile = asyncio.Semaphore(slots)

    async def run(code: str) -> tuple[str, float | None]:
        async with turnstile:
            process = await asyncio.create_subprocess_exec(
                *(*arguments, code), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            output, error = await process.communicate()
        return output.decode() or error.decode()[-300:], None

    yield Contestant(name=name, run=run)


def bwrap() -> list[str]:
    """Return the bwrap command with read-only binds of Python and the system libraries."""
    prefixes = {sys.prefix, sys.base_prefix, *(path for path in sys.path if path and os.path.isdir(path))}
    system = [path for path in ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache") if os.path.exists(path)]
    binds = [part for path in (*system, *sorted(prefixes)) for part in ("--ro-bind", path, path)]
    return [*BWRAP, *binds]


@contextlib.asynccontextmanager
async def docker(name: str, image: str, *, slots: int, is_warm: bool) -> AsyncIterator[Contestant]:
    """Docker's command line: `docker exec` in one running container, or `docker run` for each program."""
    if not image or shutil.which("docker") is None:
        raise NotHere("docker is not installed" if image else "no --image given")
    with warm_container([*DOCKER_RUN, "-d", image]) if is_warm else contextlib.nullcontext() as container:
        way = [*DOCKER_RUN, image] if container is None else ["docker", "exec", container]
        async with command(name, [*way, "python3", "-I", "-c"], slots=slots) as contestant:
            yield contestant


@contextlib.contextmanager
def warm_container(run: Sequence[str]) -> Iterator[str]:
    """Start a container that sleeps, and remove it after the block. Yields its id."""
    done = subprocess.run([*run, "sleep", "1000000"], capture_output=True, text=True)
    if done.returncode:
        raise NotHere(done.stderr.strip())
    yield (container := done.stdout.strip())
    subprocess.run(["docker", "rm", "-f", container], capture_output=True)


if __name__ == "__main__":
    typer.run(main)
