"""A sandbox service in a small control group, attacked with everything that takes resources, and honest programs in between.

    python benchmarks/sandbox_pressure.py --json benchmarks/results/sandbox_pressure.json
    python benchmarks/sandbox_pressure.py --as-user 12345 --python /opt/venv/bin/python

For each level: `tirjudge sandbox serve --slots 2 --memory-mb 128` in a group of 600 MiB and 1,024 processes and threads. For
60 seconds two connections send the attacks in turn, and a third one honest programs, each with its own expected output. Held
means: the service and its fork-servers are the processes that they were at the start, every honest program ended with its own
output, and no attack got through. Exits 1 if not. Needs root, and control groups that it may write to.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import httpx2
import typer
from rich.console import Console
from sandbox_backends import report_head
from sandbox_host import children
from sandbox_programs import ATTACKS

from tirjudge.errors import SandboxBusy, SandboxUnavailable
from tirjudge.types import Outcome
from tirjudge_sandbox import IsolationLevel
from tirjudge_sandbox.cgroups import open_tree
from tirjudge_sandbox.remote import RemoteSandbox

CATEGORIES = ("resource", "time", "output", "process")
HONEST = (
    "print(sum(range({n})) + {n})",
    "import threading\nkept = []\nthreads = [threading.Thread(target=kept.append, args=(i,)) for i in range(8)]\n"
    "for thread in threads: thread.start()\nfor thread in threads: thread.join()\nprint(sum(kept) + {n})",
    "import json\nprint(len(json.dumps(list(range({n})))))",
    "text = 'x' * (40 << 20)\nprint(len(text) + {n})",
    "import numpy\nprint(int(numpy.arange({n}).sum()))",
)

MAX_WAIT_S = 10.0
"""How long a program waits for a place in the queue, or for a service that was ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """What became of one level."""

    num_attacks: int
    attacks_by_outcome: dict[str, int]
    breaches: list[str]
    num_honest: int
    honest_failures: list[str]
    service_restarted: bool
    fork_servers_lost: int
    peak_mb: float
    """The most memory that the group held, MiB."""
    kernel_kills: int
    """Processes that the kernel ended because the group was full."""

    @property
    def held(self) -> bool:
        return not (self.breaches or self.honest_failures or self.service_restarted or self.fork_servers_lost)


def main(
    level: Annotated[list[str] | None, typer.Option(help="Repeatable; default: all that need no image.")] = None,
    seconds: Annotated[float, typer.Option(help="How long each level is attacked.")] = 60.0,
    memory_mb: Annotated[int, typer.Option(help="Of the group.")] = 600,
    pids: Annotated[int, typer.Option(help="Of the group.")] = 1024,
    as_user: Annotated[int | None, typer.Option(help="Run the service as this user.")] = None,
    python: Annotated[str, typer.Option(help="Interpreter for the service.")] = sys.executable,
    json_out: Annotated[Path | None, typer.Option("--json", help="File for the result.")] = None,
) -> None:
    """Attack the service at each level, and say what held."""
    console = Console(stderr=True)
    levels = level or [str(each) for each in IsolationLevel if each.isolates and not each.needs_image]
    if as_user is not None:
        levels = [each for each in levels if each != IsolationLevel.NAMESPACES_CGROUP]
    results = {}
    for name in levels:
        command = [
            python,
            "-c",
            "from tirjudge.cli import main; main()",
            "sandbox",
            "serve",
            "--port",
            "0",
            "--slots",
            "2",
            "--memory-mb",
            "128",
        ]
        with _service([*command, "--level", name], memory_mb=memory_mb, pids=pids, as_user=as_user) as service:
            results[name] = asyncio.run(_attacked(service, seconds=seconds))
        console.print(f"{name}: {'held' if results[name].held else 'NOT HELD'}", asdict(results[name]))
    if json_out is not None:
        shown = {name: asdict(result) | {"held": result.held} for name, result in results.items()}
        head = report_head() | {"seconds": seconds, "group_mb": memory_mb, "group_pids": pids, "as_user": as_user}
        json_out.write_text(json.dumps(head | {"levels": shown}, indent=1) + "\n")
    raise typer.Exit(0 if all(result.held for result in results.values()) else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Service:
    process: subprocess.Popen[str]
    url: str
    group: Path
    """Directory of its memory controller."""


@contextlib.contextmanager
def _service(command: list[str], *, memory_mb: int, pids: int, as_user: int | None) -> Iterator[_Service]:
    """In a group of its own."""
    group = open_tree().make()

    def enter() -> None:
        group.hold(os.getpid())
        if as_user is not None:
            os.setgroups([])
            os.setresgid(as_user, as_user, as_user)
            os.setresuid(as_user, as_user, as_user)

    group.set_limits(memory_bytes=memory_mb << 20, num_tasks=pids)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=enter)
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        yield _Service(process=process, url=url, group=group.memory_folder)
    finally:
        process.terminate()
        process.wait(30)
        group.close()
        asyncio.run(group.remove())


async def _attacked(service: _Service, *, seconds: float) -> Pressure:
    await _until_examined(service)
    servers = _fork_servers(service)
    end = time.monotonic() + seconds
    async with RemoteSandbox(service.url, max_wait_s=MAX_WAIT_S) as sandbox:
        (num_honest, failures), *attacked = await asyncio.gather(
            _work(sandbox, end=end), *(_attack(sandbox, end=end, first=number / 2) for number in range(2))
        )
    outcomes = attacked[0][0] + attacked[1][0]
    breaches = attacked[0][1] + attacked[1][1]
    return Pressure(
        num_attacks=outcomes.total(),
        attacks_by_outcome=dict(outcomes),
        breaches=breaches,
        num_honest=num_honest,
        honest_failures=failures,
        service_restarted=service.process.poll() is not None,
        fork_servers_lost=len(servers - _fork_servers(service)),
        peak_mb=round(_number(service.group, "memory.max_usage_in_bytes", "memory.peak") / 2**20, 1),
        kernel_kills=_kills(service.group),
    )


async def _until_examined(service: _Service) -> None:
    """The service tries its walls when it starts, in pools of their own."""
    async with httpx2.AsyncClient(base_url=service.url) as client, asyncio.timeout(60):
        while (await client.get("/health")).json()["doctor"] is None:  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.1)


def _fork_servers(service: _Service) -> set[int]:
    """The processes that programs are forked from, and no program."""
    return set(children(service.process.pid))


async def _attack(sandbox: RemoteSandbox, *, end: float, first: float) -> tuple[Counter[str], list[str]]:
    """All attacks in turn, beginning with the one at that fraction of the list."""
    canaries = {"FILE": "/etc/hostname", "PID": str(os.getpid()), "PORT": "1", "ABS": "none", "SECRET": "-", "TAG": "p"}
    cases = [case.filled(canaries) for case in ATTACKS if case.category in CATEGORIES]
    cases = cases[int(first * len(cases)) :] + cases[: int(first * len(cases))]
    outcomes: Counter[str] = Counter()
    breaches: list[str] = []
    while time.monotonic() < end:
        for case in cases:
            if time.monotonic() >= end:
                break
            try:
                result = await sandbox.run(case.code)
            except (SandboxBusy, SandboxUnavailable) as error:
                outcomes[type(error).__name__] += 1
                continue
            outcomes[str(result.outcome)] += 1
            if "BREACH" in result.stdout:
                breaches.append(f"{case.id}: {result.stdout[:200]}")
    return outcomes, breaches


async def _work(sandbox: RemoteSandbox, *, end: float) -> tuple[int, list[str]]:
    num, failures = 0, []
    while time.monotonic() < end:
        code = HONEST[num % len(HONEST)].format(n=1000 + num)
        expected = _run_here(code)
        num += 1
        try:
            result = await sandbox.run(code)
        except (SandboxBusy, SandboxUnavailable) as error:
            failures.append(f"{code!r}: {error}")
            continue
        if result.outcome is not Outcome.OK or result.stdout != expected:
            failures.append(f"{code!r}: {result.outcome} {result.error} {result.stdout[:100]!r}")
    return num, failures


def _run_here(code: str) -> str:
    """What an honest program of ours prints."""
    printed: list[str] = []
    exec(code, {"print": lambda value: printed.append(f"{value}\n")})  # noqa: S102 - written above
    return "".join(printed)


def _number(group: Path, *names: str) -> int:
    return next((int((group / name).read_text()) for name in names if (group / name).exists()), 0)


def _kills(group: Path) -> int:
    for name in ("memory.oom_control", "memory.events"):
        if (group / name).exists():
            for line in (group / name).read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0


if __name__ == "__main__":
    typer.run(main)
