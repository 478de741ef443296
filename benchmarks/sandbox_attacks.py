"""Run attack programs against the sandbox at each level, and report which ones are contained.

    python benchmarks/sandbox_attacks.py                                 # the built-in attacks, at every level that works
    python benchmarks/sandbox_attacks.py cases.jsonl --level landlock    # attacks from a file (format: sandbox_programs.py)
    setpriv --reuid 12345 --regid 12345 --clear-groups /opt/venv/bin/python benchmarks/sandbox_attacks.py

An attack is contained if it ends as its probe requires and has no lasting effect: every slot still runs programs, and the
next program on each slot finds the same environment as the first one did; no process, namespace, mount, control group or
file is left; the canaries on the host are unchanged. Exits with status 1 if an attack is not contained.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from reporting import JsonOut, report
from rich.progress import track
from sandbox_backends import CONSOLE, Backend, at_each, opened
from sandbox_host import Canaries, Footprint, descendants, planted_canaries, private_mb, reap_adopted, shared_memory_mb
from sandbox_programs import ATTACKS, PRELUDES, Case, Probe, load_cases

from tirjudge.errors import SandboxUnavailable
from tirjudge.types import ExecResult, Outcome
from tirjudge_sandbox import Limits

LIMITS = Limits(cpu_s=1.5, wall_s=3.0)
STATUS = {Outcome.CRASH: "signal", Outcome.OUTPUT_LIMIT: "error", Outcome.REFUSED: "error"}
"""Outcome -> name of the outcome in a file of cases. Outcomes that are not listed have the same name there."""
LOAD_SLACK_S = 6.0
"""Maximum extra seconds, beyond the limit of the sandbox, until a result arrives. The machine may be loaded."""
WARM_PACKAGES = ("numpy", "sympy", "pandas")
"""Packages that have a separate warm interpreter, if they are installed."""
SETTLE_S = 5.0
"""Maximum seconds until all processes, files and other resources of an ended program must be removed."""
MEMORY_SLACK_MB = 256
"""Memory that a program may use beyond its limit, for the sandbox around it."""

LOOK_AROUND = PRELUDES["look_around"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackResult:
    """The result of one case at one level."""

    id: str
    category: str
    outcome: str = ""
    """Outcome of the program. Empty: the sandbox failed."""
    wall_s: float = 0.0
    breaches: list[str]
    """Why the attack was not contained. Empty: the attack was contained."""
    stdout_head: str = ""
    """The first 200 characters of its output."""


def main(
    file: Annotated[
        Path | None, typer.Argument(help="Cases, one JSON object per line. Default: the built-in attacks.")
    ] = None,
    level: Annotated[
        list[str] | None, typer.Option(help="Level, or URL of a service. Repeatable. Default: all.")
    ] = None,
    only: Annotated[str, typer.Option(help="Regular expression for the ids of the cases to run.")] = "",
    slots: Annotated[int, typer.Option(help="Programs run concurrently.")] = 2,
    json_out: JsonOut = None,
    option: Annotated[
        list[str] | None, typer.Option(help='Argument of SandboxPool, such as image="NAME". Repeatable.')
    ] = None,
    patience: Annotated[float, typer.Option(help="Factor for all time limits, such as on a slow machine.")] = 1.0,
) -> None:
    """Run the cases, and print which attacks are contained."""
    cases = [
        replace(case, probe=replace(case.probe, max_wall=patience * case.probe.max_wall))
        for case in (load_cases(file) if file else ATTACKS)
        if re.search(only, case.id)
    ]
    limits = replace(LIMITS, cpu_s=patience * LIMITS.cpu_s, wall_s=patience * LIMITS.wall_s)
    options = {name: json.loads(value) for name, _, value in (pair.partition("=") for pair in option or [])}

    async def measure(name: str) -> dict[str, Any]:
        before = Footprint.now(with_pss=False)
        async with opened(name, slots=slots, limits=limits, options=options) as box:
            with planted_canaries() as canaries:
                results = await run_cases(box, cases, canaries=canaries, name=name, slots=slots)
        leftovers = await left_behind(before, seconds=SETTLE_S)
        return summary([*results, AttackResult(id="after-close", category="host", breaches=leftovers)])

    levels = at_each(level, measure)
    for name, found in levels.items():
        CONSOLE.print({name: found.get("breaches", found)})
    failed = any(found.get("num_breached") for found in levels.values())
    report({"cases": file.name if file else "built in", "levels": levels}, json_out, failed=failed)


def summary(results: Sequence[AttackResult]) -> dict[str, Any]:
    """Return the results of one level, and how many attacks were contained."""
    breaches = {result.id: result.breaches for result in results if result.breaches}
    return {
        "num_held": len(results) - len(breaches),
        "num_breached": len(breaches),
        "breaches": breaches,
        "results": [asdict(result) for result in results],
    }


async def run_cases(
    box: Backend, cases: Sequence[Case], *, canaries: Canaries, name: str, slots: int
) -> list[AttackResult]:
    """Run the cases one after the other."""
    normal = set()
    for package in ("", *WARM_PACKAGES):
        normal |= await look_around(box, slots=slots, package=package)
        await steady()
        await look_around(box, slots=slots, package=package)
    await steady()
    baseline = Footprint.now(with_pss=False)
    results = []
    for case in track(cases, description=name, console=CONSOLE):
        attempt = Attempt(box, case.filled(canaries.values), canaries=canaries, slots=slots)
        results.append(await attempt.result(normal=normal, baseline=baseline))
    return results


async def look_around(box: Backend, *, slots: int, package: str) -> set[str]:
    """Return the environments that programs see on all slots, in the warm interpreter with `package`.

    Empty `package`: in the warm interpreter without packages.
    """
    code = f"{LOOK_AROUND}\nimport {package}" if package else LOOK_AROUND
    return {result.stdout for result in await on_every_slot(box, code, slots=slots)}


async def on_every_slot(box: Backend, code: str, *, slots: int) -> list[ExecResult]:
    """Run a program on each slot. All slots must be free."""
    return await asyncio.gather(*(box.run(code) for _ in range(slots)))


async def steady(*, seconds: float = 20.0) -> None:
    """Wait until the number of processes is stable, because warm interpreters start in the background."""
    end, same, last = time.monotonic() + seconds, 0, -1
    while same < 10 and time.monotonic() < end:
        num = len(descendants(os.getpid()))
        same, last = (same + 1, num) if num == last else (0, num)
        await asyncio.sleep(0.05)


async def left_behind(baseline: Footprint, *, seconds: float) -> list[str]:
    """Return which resources exceed the baseline and are not released within `seconds`."""
    end = time.monotonic() + seconds
    while True:
        now = Footprint.now(with_pss=False)
        names = ("num_processes", "num_namespaces", "num_mounts", "num_cgroups")
        more = {name: getattr(now, name) - getattr(baseline, name) for name in names}
        if not any(num > 0 for num in more.values()):
            return []
        if time.monotonic() > end - seconds / 2:
            reap_adopted()  # the parent of a leftover process may have died before it
        if time.monotonic() > end:
            return [f"{num} more {name.removeprefix('num_')} than before" for name, num in more.items() if num > 0]
        await asyncio.sleep(0.05)


class Attempt:
    """One run of a case in a backend."""

    def __init__(self, box: Backend, case: Case, *, canaries: Canaries, slots: int) -> None:
        self._box = box
        self._case = case
        self._canaries = canaries
        self._slots = slots
        self._peak_mb = 0.0

    async def result(self, *, normal: set[str], baseline: Footprint) -> AttackResult:
        """Run the case, then look for its effects.

        Args:
            normal: the possible outputs of the program `LOOK_AROUND` before any attack.
            baseline: the resources in use when no program runs.
        """
        breaches: list[str] = []
        results: list[ExecResult] = []
        try:
            async with self._watching_memory():
                results = await self._run()
            if self._case.probe.pair:
                text = everything(results.pop())
                forbidden = ("BREACH", *self._case.probe.pair_lacks)
                breaches += [f"the paired program: {line_with(word, text)!r}" for word in forbidden if word in text]
            breaches += [text for result in results for text in judged(result, self._case.probe)]
            if self._case.probe.distinct and len({result.stdout for result in results}) < len(results):
                breaches.append("two runs printed the same output")
            breaches += await self._aftermath(normal)
        except (SandboxUnavailable, TimeoutError) as error:
            breaches.append(f"the sandbox failed: {type(error).__name__} {error}")
        breaches += await left_behind(baseline, seconds=SETTLE_S)
        breaches += self._canaries.touched(f"{self._case.code}\n{self._case.probe.then}\n{self._case.probe.pair}")
        if self._peak_mb > self._slots * LIMITS.memory_mb + MEMORY_SLACK_MB:
            breaches.append(f"memory use rose by {self._peak_mb:.0f} MiB")
        return AttackResult(
            id=self._case.id,
            category=self._case.category,
            outcome=str(results[0].outcome) if results else "",
            wall_s=round(max((result.wall_s for result in results), default=0.0), 3),
            breaches=breaches,
            stdout_head=results[0].stdout[:200] if results else "",
        )

    async def _run(self) -> list[ExecResult]:
        """Run all repetitions and the paired program concurrently. The result of the paired program is the last."""
        case = self._case
        started = time.perf_counter()
        programs = [case.code] * case.probe.repeat + ([case.probe.pair] if case.probe.pair else [])
        rounds = -(-len(programs) // self._slots)
        longest_s = rounds * (case.probe.max_wall + LOAD_SLACK_S) + 30
        results = await asyncio.wait_for(asyncio.gather(*(self._box.run(code) for code in programs)), longest_s)
        if time.perf_counter() - started > rounds * (case.probe.max_wall + LOAD_SLACK_S):
            raise TimeoutError(f"the results took {time.perf_counter() - started:.1f} s")
        return results

    async def _aftermath(self, normal: set[str]) -> list[str]:
        """Run the next programs on every slot, and return what is wrong with them."""
        breaches = []
        probe = self._case.probe
        if probe.then:
            for result in await on_every_slot(self._box, probe.then, slots=self._slots):
                if result.outcome is not Outcome.OK and not probe.then_skip_error:
                    breaches.append(f"the next program ended as {result.outcome}: {result.error}")
                breaches += [f"the next program: {text}" for text in probe.lacks if text in everything(result)]
                missing = [text for text in probe.then_has if text not in result.stdout]
                breaches += [
                    f"the output of the next program lacks {text}" for text in missing if result.outcome is Outcome.OK
                ]
        package = next((name for name in WARM_PACKAGES if f"import {name}" in self._case.code), "")
        found_now = await look_around(self._box, slots=self._slots, package=package)
        for found in found_now - normal:
            breaches.append(f"the next program sees a changed environment: {difference(found, normal)}")
        return breaches

    @contextlib.asynccontextmanager
    async def _watching_memory(self) -> AsyncIterator[None]:
        start_mb = in_use_mb()

        async def watch() -> None:
            while True:
                self._peak_mb = max(self._peak_mb, in_use_mb() - start_mb)
                await asyncio.sleep(0.05)

        watching = asyncio.create_task(watch())
        try:
            yield
        finally:
            watching.cancel()


def in_use_mb() -> float:
    """Return the private memory of all descendants plus the shared memory of the machine, in MiB."""
    return private_mb(descendants(os.getpid())) + shared_memory_mb()


def judged(result: ExecResult, probe: Probe) -> list[str]:
    """Return what is wrong with the result of a program."""
    status = STATUS.get(result.outcome, str(result.outcome))
    text = everything(result)
    error = result.error or ""
    num_bytes = len(result.stdout.encode(errors="surrogatepass"))
    checks = {
        f"outcome {result.outcome} ({error[:200]})": status not in probe.status,
        f"{result.wall_s:.1f} s in the sandbox": result.wall_s > probe.max_wall,
        f"exit code {result.exit_code}": probe.exit_code not in (None, result.exit_code),
        f"{num_bytes} bytes printed": probe.max_bytes is not None and num_bytes > probe.max_bytes,
        f"an error line of {len(error)} characters": probe.max_error is not None and len(error) > probe.max_error,
        **{f"{line_with(word, text)!r} was returned": word in text for word in probe.lacks},
        **{f"{word!r} is missing from {result.stdout[:100]!r}": word not in result.stdout for word in probe.has},
        **{f"{word!r} is missing from the error {error!r}": word not in error for word in probe.error_has},
    }
    return [breach for breach, is_so in checks.items() if is_so]


def everything(result: ExecResult) -> str:
    """Return stdout, error and stderr of a result as one string."""
    return "\n".join((result.stdout, result.error or "", getattr(result, "stderr", "")))


def line_with(word: str, text: str) -> str:
    """Return the first line that contains the word, at most 200 characters of it."""
    return next((line[:200] for line in text.splitlines() if word in line), word)


def difference(found: str, normal: set[str]) -> str:
    """Return the first line of `found` that no text of `normal` contains."""
    known = {line for text in normal for line in text.splitlines()}
    return next((line[:200] for line in found.splitlines() if line not in known), "(lines are missing)")


if __name__ == "__main__":
    typer.run(main)
