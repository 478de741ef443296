"""Measure function calls of programs: a call that does nothing, and `run("print(1)")` against a direct run.

    python -m benchmarks.function_calls --out benchmarks/results/function_calls.json

Each figure is a median over several programs. A direct run and a run from a program alternate, so that their ratio does not
depend on the load of the machine. With `--http`, the same through `tirjudge sandbox serve` on the loopback interface.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median
from typing import Annotated, Any

import typer

from benchmarks.reporting import TIRJUDGE, Out, report
from tirjudge.tools.functions import Budget, CallAccount, Offer, function
from tirjudge.tools.python import Sandbox
from tirjudge_sandbox import SandboxPool
from tirjudge_sandbox.candidates import FUNCTIONS
from tirjudge_sandbox.remote import RemoteSandbox

_MANY = Budget(calls=1_000_000, seconds=3000.0)

_NOTHING = """\
import json, time
seconds = []
for _ in range({num}):
    start = time.perf_counter()
    nothing()
    seconds.append(time.perf_counter() - start)
print(json.dumps(seconds))
"""
_RUN = """\
import json, time
start = time.perf_counter()
run("print(1)")
print(json.dumps(time.perf_counter() - start))
"""


@function
async def nothing() -> None:
    """Do nothing."""


def offer() -> Offer:
    """Return an offer of all functions, with a budget that is not reached."""
    functions = [*FUNCTIONS, nothing]
    return Offer(functions=[*functions], account=CallAccount(_MANY))


async def measure(sandbox: Sandbox, *, rounds: int, calls: int) -> dict[str, Any]:
    """Return the figures of one sandbox."""
    of_nothing: list[float] = []
    direct: list[float] = []
    nested: list[float] = []
    for _ in range(rounds):
        printed = await sandbox.run(_NOTHING.format(num=min(calls, 200)), bindings={}, offer=offer())
        of_nothing += json.loads(printed.stdout)
        start = time.perf_counter()
        await sandbox.run("print(1)", bindings={})
        direct.append(time.perf_counter() - start)
        nested.append(json.loads((await sandbox.run(_RUN, bindings={}, offer=offer())).stdout))
    of_nothing.sort()
    return {
        "nothing_p50_ms": round(1000 * median(of_nothing), 3),
        "nothing_p95_ms": round(1000 * of_nothing[int(0.95 * len(of_nothing))], 3),
        "direct_p50_ms": round(1000 * median(direct), 3),
        "run_in_program_p50_ms": round(1000 * median(nested), 3),
        "run_over_direct": round(median(nested) / median(direct), 3),
    }


@asynccontextmanager
async def served() -> AsyncIterator[RemoteSandbox]:
    """Start a sandbox service on the loopback interface and yield a client of it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [*TIRJUDGE, "sandbox", "serve", "--port", str(port)]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    try:
        async with RemoteSandbox(f"http://127.0.0.1:{port}") as sandbox:
            for _ in range(300):
                try:
                    await sandbox.run("print(1)")
                    break
                except Exception:
                    await asyncio.sleep(0.2)
            yield sandbox
    finally:
        process.terminate()
        await process.wait()


async def _measure_all(*, rounds: int, calls: int, http: bool) -> dict[str, Any]:
    async with SandboxPool() as pool:
        found = {"level": pool.level, "in_process": await measure(pool, rounds=rounds, calls=calls)}
    if http:
        async with served() as sandbox:
            found["http"] = await measure(sandbox, rounds=rounds, calls=calls)
    return found


def main(
    rounds: Annotated[int, typer.Option(help="Programs per figure.")] = 60,
    calls: Annotated[int, typer.Option(help="Calls per program.")] = 100,
    http: Annotated[bool, typer.Option("--http", help="Also measure a sandbox service.")] = False,
    out: Out = None,
) -> None:
    """Measure, and print the result as JSON."""
    report(asyncio.run(_measure_all(rounds=rounds, calls=calls, http=http)), out)


if __name__ == "__main__":
    typer.run(main)
