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
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any

import httpx2
import psutil
import typer
from sandbox_backends import at_each, finish, isolating_levels, report_head, started
from sandbox_programs import ATTACKS, Case

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
"""How long a program waits for a place in the queue, or for a service that was ended."""
SERVE = ("sandbox", "serve", "--port", "0", "--slots", "2", "--memory-mb", "128", "--level")


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
    levels = level or [
        name for name in isolating_levels() if as_user is None or name != IsolationLevel.NAMESPACES_CGROUP
    ]

    async def measure(name: str) -> dict[str, Any]:
        async with small_group(memory_mb=memory_mb, pids=pids) as group:
            with started([*SERVE, name], python=python, preexec_fn=lambda: enter(group, user=as_user)) as (
                service,
                line,
            ):
                return await attacked(json.loads(line)["url"], service=service, group=group, seconds=seconds)

    found = at_each(levels, measure)
    head = report_head() | {"seconds": seconds, "group_mb": memory_mb, "group_pids": pids, "as_user": as_user}
    finish(head | {"levels": found}, json_out, failed=not all(result.get("held", True) for result in found.values()))


@contextlib.asynccontextmanager
async def small_group(*, memory_mb: int, pids: int) -> AsyncIterator[Cgroup]:
    group = open_tree().make()
    group.set_limits(memory_bytes=memory_mb << 20, num_tasks=pids)
    try:
        yield group
    finally:
        group.close()
        await group.remove()


def enter(group: Cgroup, *, user: int | None) -> None:
    """In the service's own process, before it begins."""
    group.hold(os.getpid())
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)


async def attacked(url: str, *, service: subprocess.Popen[str], group: Cgroup, seconds: float) -> dict[str, Any]:
    """What became of one level."""
    async with httpx2.AsyncClient(base_url=url) as client, asyncio.timeout(60):
        # The service tries its walls when it starts, in pools of their own.
        while (await client.get("/health")).json()["doctor"] is None:  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.1)
    fork_servers = set(psutil.Process(service.pid).children())
    end = time.monotonic() + seconds
    outcomes: Counter[str] = Counter()
    breaches: list[str] = []
    failures: list[str] = []
    async with RemoteSandbox(url, max_wait_s=MAX_WAIT_S) as sandbox:

        async def attack(first: float) -> None:
            """All attacks in turn, beginning with the one at that fraction of the list."""
            for case in attacks_until(end, first=first):
                result = await run(sandbox, case.code)
                outcomes[str(result.outcome) if isinstance(result, ExecResult) else type(result).__name__] += 1
                if isinstance(result, ExecResult) and "BREACH" in result.stdout:
                    breaches.append(f"{case.id}: {result.stdout[:200]}")

        async def work() -> int:
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
    was_restarted = service.poll() is not None
    num_lost = len(fork_servers - set(psutil.Process(service.pid).children()))
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
    canaries = {"FILE": "/etc/hostname", "PID": str(os.getpid()), "PORT": "1", "ABS": "none", "SECRET": "-", "TAG": "p"}
    cases = [case.filled(canaries) for case in ATTACKS if case.category in CATEGORIES]
    number = int(first * len(cases))
    while time.monotonic() < end:
        yield cases[number % len(cases)]
        number += 1


async def run(sandbox: RemoteSandbox, code: str) -> ExecResult | SandboxUnavailable:
    try:
        return await sandbox.run(code)
    except (SandboxBusy, SandboxUnavailable) as error:
        return error


def run_here(code: str) -> str:
    """What an honest program of ours prints."""
    printed: list[str] = []
    exec(code, {"print": lambda value: printed.append(f"{value}\n")})  # noqa: S102 - written above
    return "".join(printed)


def number_in(group: Cgroup, pattern: str, *names: str) -> int:
    """From the first file that this version of control groups has."""
    file = next((file for name in names if (file := group.memory_folder / name).exists()), None)
    match = re.search(pattern, file.read_text(), re.MULTILINE) if file else None
    return int(match[1]) if match else 0


if __name__ == "__main__":
    typer.run(main)
