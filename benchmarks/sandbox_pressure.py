"""Attack a sandbox service in a small control group, and run honest programs at the same time.

    python benchmarks/sandbox_pressure.py --json benchmarks/results/sandbox_pressure.json
    python benchmarks/sandbox_pressure.py --as-user 12345 --python /opt/venv/bin/python

At each level, `tirjudge sandbox serve --slots 2 --memory-mb 128` runs in a group of 600 MiB and 1,024 processes and threads.
For 60 seconds, each of two connections cycles through all attacks, and a third one sends honest programs with a known
output. The level
holds if the service and its fork servers were not restarted, every honest program ended with its expected output, and no
attack got through. Exits with status 1 if a level does not hold. Needs root and writable control groups.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import httpx2
import typer
from reporting import TIRJUDGE, JsonOut, report
from sandbox_backends import at_each, isolating_levels
from sandbox_programs import ATTACKS, Case
from server_process import RunningServer, started

from tirjudge.errors import SandboxBusy, SandboxUnavailable
from tirjudge.types import ExecResult, Outcome
from tirjudge_sandbox import IsolationLevel
from tirjudge_sandbox.cgroups import Cgroup, open_tree
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
"""Maximum seconds that a client retries while the queue is full or the service does not answer."""
SERVE = ("sandbox", "serve", "--port", "0", "--slots", "2", "--memory-mb", "128", "--level")


def main(
    level: Annotated[
        list[str] | None, typer.Option(help="Level. Repeatable. Default: all that do not need an image.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Seconds per level.")] = 60.0,
    memory_mb: Annotated[int, typer.Option(help="Memory limit of the group in MiB.")] = 600,
    pids: Annotated[int, typer.Option(help="Maximum number of processes and threads in the group.")] = 1024,
    as_user: Annotated[int | None, typer.Option(help="User id of the service. Default: this user.")] = None,
    python: Annotated[str, typer.Option(help="Interpreter of the service.")] = sys.executable,
    json_out: JsonOut = None,
) -> None:
    """Attack the service at each level, and print which levels hold."""
    levels = level or [
        name for name in isolating_levels() if as_user is None or name != IsolationLevel.NAMESPACES_CGROUP
    ]

    async def measure(name: str) -> dict[str, Any]:
        async with small_group(memory_mb=memory_mb, pids=pids) as group:
            command = (python, *TIRJUDGE[1:], *SERVE, name)
            with started(*command, preexec_fn=lambda: enter(group, user=as_user)) as service:
                return await attacked(service, group=group, seconds=seconds)

    found = at_each(levels, measure)
    head = {"seconds": seconds, "group_mb": memory_mb, "group_pids": pids, "as_user": as_user}
    report(head | {"levels": found}, json_out, failed=not all(result.get("held", True) for result in found.values()))


@contextlib.asynccontextmanager
async def small_group(*, memory_mb: int, pids: int) -> AsyncIterator[Cgroup]:
    """Create a control group with these limits, and remove it after the block."""
    group = open_tree().make()
    group.set_limits(memory_bytes=memory_mb << 20, num_tasks=pids)
    try:
        yield group
    finally:
        group.close()
        await group.remove()


def enter(group: Cgroup, *, user: int | None) -> None:
    """Enter the group and become the user; called in the child process before it executes the service."""
    group.hold(os.getpid())
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)


async def attacked(service: RunningServer, *, group: Cgroup, seconds: float) -> dict[str, Any]:
    """Attack one service, and return the result of its level."""
    async with httpx2.AsyncClient(base_url=service.url) as client, asyncio.timeout(60):
        # The service checks its isolation in the background after its start.
        while (await client.get("/health")).json()["doctor"] is None:  # noqa: ASYNC110 - the service is another process
            await asyncio.sleep(0.1)
    fork_servers = set(service.process.children())
    end = time.monotonic() + seconds
    outcomes: Counter[str] = Counter()
    breaches: list[str] = []
    failures: list[str] = []
    async with RemoteSandbox(service.url, max_wait_s=MAX_WAIT_S) as sandbox:

        async def attack(first: float) -> None:
            """Send all attacks in turn, starting at this fraction of the list."""
            for case in attacks_until(end, first=first):
                result = await run(sandbox, case.code)
                outcomes[str(result.outcome) if isinstance(result, ExecResult) else type(result).__name__] += 1
                if isinstance(result, ExecResult) and "BREACH" in result.stdout:
                    breaches.append(f"{case.id}: {result.stdout[:200]}")

        async def work() -> int:
            """Send honest programs, and return their number."""
            num = 0
            while time.monotonic() < end:
                code = HONEST[num % len(HONEST)].format(n=1000 + num)
                num += 1
                result = await run(sandbox, code)
                if not isinstance(result, ExecResult):
                    failures.append(f"{code!r}: {result}")
                elif result.outcome is not Outcome.OK or result.stdout != run_here(code):
                    failures.append(f"{code!r}: {result.outcome} {result.error} {result.stdout[:100]!r}")
            return num

        num_honest, *_ = await asyncio.gather(work(), attack(0.0), attack(0.5))
    was_restarted = service.process.poll() is not None
    num_lost = len(fork_servers - set(service.process.children()))
    return {
        "held": not (breaches or failures or was_restarted or num_lost),
        "num_attacks": outcomes.total(),
        "attacks_by_outcome": dict(outcomes),
        "breaches": breaches,
        "num_honest": num_honest,
        "honest_failures": failures,
        "service_restarted": was_restarted,
        "fork_servers_lost": num_lost,
        "peak_mb": round(number_in(group, r"(\d+)", "memory.max_usage_in_bytes", "memory.peak") / 2**20, 1),
        "kernel_kills": number_in(group, r"^oom_kill (\d+)", "memory.oom_control", "memory.events"),
    }


def attacks_until(end: float, *, first: float) -> Iterator[Case]:
    """Yield attacks in turn until `end`, starting at the fraction `first` of the list."""
    canaries = {"FILE": "/etc/hostname", "PID": str(os.getpid()), "PORT": "1", "ABS": "none", "SECRET": "-", "TAG": "p"}
    cases = [case.filled(canaries) for case in ATTACKS if case.category in CATEGORIES]
    number = int(first * len(cases))
    while time.monotonic() < end:
        yield cases[number % len(cases)]
        number += 1


async def run(sandbox: RemoteSandbox, code: str) -> ExecResult | SandboxUnavailable:
    """Run a program, and return its result or the error of the sandbox."""
    try:
        return await sandbox.run(code)
    except (SandboxBusy, SandboxUnavailable) as error:
        return error


def run_here(code: str) -> str:
    """Run an honest program in this process, and return its output."""
    printed: list[str] = []
    exec(code, {"print": lambda value: printed.append(f"{value}\n")})  # noqa: S102 - the code is one of HONEST
    return "".join(printed)


def number_in(group: Cgroup, pattern: str, *names: str) -> int:
    """Return a number from the first of these files that exists; the names differ between cgroup versions. 0: not found."""
    file = next((file for name in names if (file := group.memory_folder / name).exists()), None)
    match = re.search(pattern, file.read_text(), re.MULTILINE) if file else None
    return int(match[1]) if match else 0


if __name__ == "__main__":
    typer.run(main)
