"""How long a program takes: a bare warm fork, this pool, and other ways to run strangers' Python, side by side.

    python benchmarks/sandbox_speed.py --json benchmarks/results/sandbox_speed.json
    DOCKER_HOST=unix:///run/docker.sock python benchmarks/sandbox_speed.py --image my-python-with-sympy

The floor is a process that has already imported what the pool's warm process has, and has already run the very program
once: it forks, the child runs the program and ends. No walls, no limits, no transport; timed inside that process.
Contestants take turns within each round, so that a busy minute hits all of them; a result is the median, or the quantile,
of all their turns. Ways that are not installed here are named with the reason why they were skipped. Slow ways get one
turn only at each concurrency, and none where a turn would take them very long.
The processor time of a way is that of its processes, and of docker's daemons and containers where it is docker; the part of
this process, `own_cpu_ms`, is of a pool its supervisor, and of the others a client.
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
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from sandbox_backends import finish, isolating_levels, opened, report_head, started
from sandbox_host import adopt_orphans, cpu_s, descendants, reap_adopted

from tirjudge.errors import SandboxUnavailable
from tirjudge_sandbox import Limits

PROGRAMS = {
    "print": ("print(sum(range(100)))", "4950\n"),
    "sympy": ("import sympy\nx = sympy.Symbol('x')\nprint(sympy.factor(x**3 - 1))", "(x - 1)*(x**2 + x + 1)\n"),
}
CONCURRENCIES = (1, 8, 64)
FLOOR = "floor: bare warm fork"
LONGEST_TURN_S = 8.0
"""A way that must take longer for one program in each lane is not measured at that concurrency."""
SLOW_S = 0.5
"""A way that takes longer alone has one turn at each concurrency."""
MIN_CPU_MS = 200
"""The kernel counts in steps of 10 ms: from less than this in all its turns, no ratio is made."""
WARM_UP_S = 3.0
"""After the first program: warm processes start in the background."""
LIMITS = Limits(cpu_s=20.0, wall_s=60.0)
DOCKER_RUN = (
    *("docker", "run", "--rm", "--network=none", "--read-only", "--cap-drop=ALL", "--user=65534:65534"),
    *("--security-opt=no-new-privileges", "--memory=512m", "--tmpfs=/tmp:rw,size=64m"),
)
FIREJAIL = ("firejail", "--quiet", "--noprofile", "--net=none", "--seccomp", "--caps.drop=all")
BWRAP = (
    *("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"),
    *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),
)
_CGROUP_CPU = ("/sys/fs/cgroup/cpuacct/docker/cpuacct.usage", "/sys/fs/cgroup/docker/cpu.stat")

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
    """Code -> what it printed, and the seconds it says it took, if not what a clock outside sees."""
    owned: set[int] = field(default_factory=set)
    """Processes whose time is its own, with what is below them; the children of this process that ended count too."""
    counts_self: bool = True
    """Whether this process's own time is part of it: the pool's supervisor, a client."""
    uses_docker: bool = False


@dataclass(slots=True, kw_only=True)
class Turns:
    """What a contestant's turns with one program at one concurrency gave."""

    latencies: list[float] = field(default_factory=list)
    seconds: float = 0.0
    cpu_s: float = 0.0
    own_cpu_s: float = 0.0
    """Of that, this process's: of a pool its supervisor, of others a client."""


class NotHere(Exception):
    """A way that this machine does not have; says why."""


def main(
    level: Annotated[list[str] | None, typer.Option(help="Of the pool. Repeatable; default: all that work.")] = None,
    slots: Annotated[int | None, typer.Option(help="Programs at a time. Default: one a processor.")] = None,
    seconds: Annotated[float, typer.Option(help="Of a turn.")] = 1.5,
    rounds: Annotated[int, typer.Option(help="Turns of each, at each concurrency.")] = 3,
    image: Annotated[str, typer.Option(help="Docker image with python3 and sympy; default: no docker.")] = "",
    only: Annotated[str, typer.Option(help="Names of ways, by a part of each, with commas between.")] = "",
    json_out: Annotated[Path | None, typer.Option("--json", help="File for the result.")] = None,
) -> None:
    """Measure, and print a table for each program."""
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
        figures[program] = with_ratios({name: rows(found) for name, found in turns.items()})
        show(program, figures[program])

    for program in PROGRAMS:
        asyncio.run(measure(program))
    codes = {name: code for name, (code, _) in PROGRAMS.items()}
    head = report_head() | {"slots": num_slots, "turn_s": seconds, "rounds": rounds, "programs": codes}
    finish(head | {"skipped": skipped, "figures": figures}, json_out)


async def open_ways(
    ways: Mapping[str, contextlib.AbstractAsyncContextManager[Contestant]],
    code: str,
    expected: str,
    *,
    stack: contextlib.AsyncExitStack,
    wanted: Sequence[str],
    skip: Callable[[str, str], None],
) -> list[Contestant]:
    """Those that work here, after their first program; and why the others do not."""
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
        except (NotHere, SandboxUnavailable, OSError) as error:
            skip(name, " ".join(str(error).split())[:300])
    return contestants


# ------------------------------------------------------------------------------------------------------------ measuring


async def take_turns(
    contestants: Sequence[Contestant], code: str, expected: str, *, seconds: float, rounds: int, slots: int
) -> dict[str, dict[int, Turns]]:
    found = {contestant.name: {number: Turns() for number in CONCURRENCIES} for contestant in contestants}
    for number in range(rounds):
        for concurrency in CONCURRENCIES:
            for contestant in contestants:
                alone = found[contestant.name][1].latencies
                alone_s = statistics.median(alone) if alone else 0.0
                if (alone_s > SLOW_S and number) or alone_s * concurrency / slots > LONGEST_TURN_S:
                    continue
                print(f"{contestant.name}: {concurrency} at a time, round {number + 1}", file=sys.stderr)
                turns = found[contestant.name][concurrency]
                await take_turn(
                    contestant, code, expected=expected, seconds=seconds, concurrency=concurrency, turns=turns
                )
    return found


async def take_turn(
    contestant: Contestant, code: str, *, expected: str, seconds: float, concurrency: int, turns: Turns
) -> None:
    """Programs one after the other in each of so many lanes, until the time is over and all have ended."""
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
    """Asked while none of its programs runs."""
    reap_adopted()  # bwrap and firejail leave before their children do
    own = resource.getrusage(resource.RUSAGE_SELF)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    alive = contestant.owned.union(*map(descendants, contestant.owned))
    total = ended.ru_utime + ended.ru_stime + cpu_s(alive)
    if contestant.counts_self:
        total += own.ru_utime + own.ru_stime
    return total + (docker_cpu_s() if contestant.uses_docker else 0.0)


def docker_cpu_s() -> float:
    """Of docker's daemons with their children, and of the containers, where the control groups tell."""
    names = ("dockerd", "containerd", "containerd-shim")
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "comm").read_text().strip().startswith(names):
                pids.append(int(folder.name))
    total = cpu_s(pids)
    with contextlib.suppress(OSError):
        total += int(Path(_CGROUP_CPU[0]).read_text()) / 1e9
    with contextlib.suppress(OSError):
        total += int(Path(_CGROUP_CPU[1]).read_text().split()[1]) / 1e6
    return total


def rows(found: Mapping[int, Turns]) -> dict[str, dict[str, float]]:
    """The figures at each concurrency."""
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


def with_ratios(figures: dict[str, dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Adds to each row how often the floor's time it takes, on the clock and of the processor, and its throughput to it."""
    floor = figures.get(FLOOR, {})
    for by_concurrency in figures.values():
        for concurrency, row in by_concurrency.items():
            if concurrency in floor:
                row["p50_to_floor"] = round(row["p50_ms"] / floor[concurrency]["p50_ms"], 2)
                if floor[concurrency]["num"] * floor[concurrency]["cpu_ms"] > MIN_CPU_MS:
                    row["cpu_to_floor"] = round(row["cpu_ms"] / floor[concurrency]["cpu_ms"], 2)
                row["throughput_to_floor"] = round(row["programs_per_s"] / floor[concurrency]["programs_per_s"], 3)
    return figures


# ----------------------------------------------------------------------------------------------------------------- ways


def ways(
    *, levels: Sequence[str], slots: int, image: str, program: str
) -> dict[str, contextlib.AbstractAsyncContextManager[Contestant]]:
    """All there are, by name; opening one raises NotHere, OSError or SandboxUnavailable if it is not here."""
    python = (sys.executable, "-I", "-c")
    return {
        FLOOR: warm_forkers(levels, num=slots, program=program),
        **{f"pool, {name}": pool(name, slots=slots) for name in levels},
        **{f"pool over HTTP, {name}": service(name, slots=slots) for name in levels},
        "subprocess": command("subprocess", python, slots=slots),
        "bwrap": command("bwrap", [*bwrap(), *python], slots=slots),
        "firejail": command("firejail", [*FIREJAIL, *python], slots=slots),
        "docker exec": docker("docker exec", image, slots=slots, runtime="runc", is_warm=True),
        "docker exec, runsc": docker("docker exec, runsc", image, slots=slots, runtime="runsc", is_warm=True),
        "docker run": docker("docker run", image, slots=slots, runtime="runc", is_warm=False),
        "docker run, runsc": docker("docker run, runsc", image, slots=slots, runtime="runsc", is_warm=False),
    }


@contextlib.asynccontextmanager
async def pool(level: str, *, slots: int) -> AsyncIterator[Contestant]:
    async with opened(level, slots=slots, limits=LIMITS) as box:

        async def run(code: str) -> tuple[str, float | None]:
            return (await box.run(code)).stdout, None

        yield Contestant(name=f"pool, {level}", run=run)


@contextlib.asynccontextmanager
async def warm_forkers(levels: Sequence[str], *, num: int, program: str) -> AsyncIterator[Contestant]:
    """As many warm processes as the pool has slots, each with the modules that the pool's program finds loaded."""
    code, _ = PROGRAMS[program]
    names = await loaded_modules(levels, code=code)
    idle: asyncio.Queue[asyncio.subprocess.Process] = asyncio.Queue()

    async def told(forker: asyncio.subprocess.Process, message: Any) -> bytes:
        assert forker.stdin is not None
        assert forker.stdout is not None
        forker.stdin.write(json.dumps(message).encode() + b"\n")
        return await forker.stdout.readline()

    async def run(code: str) -> tuple[str, float | None]:
        forker = await idle.get()
        try:
            seconds, output = json.loads(await told(forker, code))
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
            if await told(forker, [names, code]) != b"ready\n":
                raise NotHere("it could not import what the pool's process has")
            idle.put_nowait(forker)
        yield Contestant(name=FLOOR, run=run, counts_self=False)


async def loaded_modules(levels: Sequence[str], *, code: str) -> list[str]:
    """What is loaded when a program of this kind starts in the pool."""
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
    raise NotHere("no pool runs here, to compare with")


@contextlib.asynccontextmanager
async def service(level: str, *, slots: int) -> AsyncIterator[Contestant]:
    """`tirjudge sandbox serve` in a process of its own, asked over connections that are kept open."""
    arguments = ["sandbox", "serve", "--port", "0", "--slots", str(slots), "--level", level]
    with started(arguments, stderr=subprocess.DEVNULL) as (_, line):
        port = int(json.loads(line)["url"].rpartition(":")[2])
        connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

        async def run(code: str) -> tuple[str, float | None]:
            while connections and connections[-1][0].at_eof():  # idle for long, so the service has closed it
                connections.pop()[1].close()
            connection = connections.pop() if connections else await asyncio.open_connection("127.0.0.1", port)
            answer = await post(connection, "/v1/execute", {"code": code})
            connections.append(connection)
            return answer.get("stdout", str(answer)), None

        yield Contestant(name=f"pool over HTTP, {level}", run=run)
        for _, writer in connections:
            writer.close()


async def post(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], path: str, body: Any) -> dict[str, Any]:
    """One request over an open connection, with no more of HTTP than it takes."""
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
    """A new process for each program, whose last argument is the code; not more at once than slots."""
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

    yield Contestant(name=name, run=run, uses_docker=uses_docker)


def bwrap() -> list[str]:
    prefixes = {sys.prefix, sys.base_prefix, *(path for path in sys.path if path and os.path.isdir(path))}
    system = [path for path in ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache") if os.path.exists(path)]
    binds = [part for path in (*system, *sorted(prefixes)) for part in ("--ro-bind", path, path)]
    return [*BWRAP, *binds]


@contextlib.asynccontextmanager
async def docker(name: str, image: str, *, slots: int, runtime: str, is_warm: bool) -> AsyncIterator[Contestant]:
    """Through docker's own command line: in one container that is already there, or in a new one for each program."""
    if not image or shutil.which("docker") is None:
        raise NotHere("docker is not installed" if image else "no --image given")
    pids_limit = 1000 if runtime == "runsc" else 64  # gVisor's own threads count too
    run = [*DOCKER_RUN, f"--runtime={runtime}", f"--pids-limit={pids_limit}"]
    with warm_container([*run, "-d", image]) if is_warm else contextlib.nullcontext() as container:
        way = [*run, image] if container is None else ["docker", "exec", container]
        async with command(name, [*way, "python3", "-I", "-c"], slots=slots, uses_docker=True) as contestant:
            yield contestant


@contextlib.contextmanager
def warm_container(run: Sequence[str]) -> Iterator[str]:
    done = subprocess.run([*run, "sleep", "1000000"], capture_output=True, text=True)
    if done.returncode:
        raise NotHere(done.stderr.strip())
    yield (container := done.stdout.strip())
    subprocess.run(["docker", "rm", "-f", container], capture_output=True)


# --------------------------------------------------------------------------------------------------------------- tables


def show(program: str, figures: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    columns = [(1, name) for name in ("p50_ms", "p99_ms", "p50_to_floor", "cpu_ms", "cpu_to_floor")]
    columns += [(8, "programs_per_s"), (8, "p50_ms"), (64, "programs_per_s"), (64, "p50_ms"), (64, "p99_ms")]
    table = Table(program, *(f"{name}\n{concurrency} at a time" for concurrency, name in columns))
    for way, found in figures.items():
        cells = (found.get(str(concurrency), {}).get(name, "-") for concurrency, name in columns)
        table.add_row(way, *map(str, cells))
    Console(width=160).print(table)


if __name__ == "__main__":
    typer.run(main)
