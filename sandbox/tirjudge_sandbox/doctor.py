"""What this machine can do for the sandbox: each building block, each level, some attacks, and how long a program takes."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import statistics
import time
from dataclasses import dataclass

from tirjudge_sandbox import host_limits
from tirjudge_sandbox.attacks import ATTACK_LIMITS, ATTACKS, problem_with
from tirjudge_sandbox.fork_server import ENVIRONMENT, isolated_python
from tirjudge_sandbox.host_limits import Need
from tirjudge_sandbox.levels import IsolationLevel
from tirjudge_sandbox.limits import Limits
from tirjudge_sandbox.pool import SandboxPool
from tirjudge_sandbox.remedies import NoLevelWorks, remedy

_NUM_TIMED = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was tried."""

    name: str
    problem: str
    """Why it does not work; empty if it does."""
    remedy: str
    """What would change that; empty if nothing needs to."""

    @property
    def works(self) -> bool:
        return not self.problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    kernel: str
    python: str
    primitives: list[Finding]
    levels: list[Finding]
    """The isolating levels, best first, each tried by running a program."""
    attacks: list[Finding]
    """Tried at that level; what does not work is an attack that got through. Empty when nothing runs."""
    resources: list[Finding]
    """Whether there is room for all that a pool can take. Empty when nothing runs."""
    level: str | None
    """What a pool would choose; None: it would refuse to start."""
    print_ms: float | None
    """Median time of a program that prints a line, milliseconds; None when nothing runs."""


async def diagnose(*, image: str | None = None, slots: int | None = None, limits: Limits | None = None) -> Diagnosis:
    """Tries everything; takes a few seconds.

    Args:
        image: for the levels that are containers; None: they are not tried.
        slots: of the pool that there must be room for; None: one a processor.
        limits: of its programs; None: the defaults.
    """
    levels = [await _try_level(level, image=image) for level in IsolationLevel if level.isolates]
    best = next((finding.name for finding in levels if finding.works), None)
    attacks, print_ms = await _try_out(best, image=image) if best else ([], None)
    return Diagnosis(
        kernel=platform.release(),
        python=platform.python_version(),
        primitives=await _try_primitives(),
        levels=levels,
        attacks=attacks,
        resources=_look_for_shortages(slots or len(os.sched_getaffinity(0)), limits or Limits()) if best else [],
        level=best,
        print_ms=print_ms,
    )


async def _try_primitives() -> list[Finding]:
    process = await asyncio.create_subprocess_exec(
        *isolated_python("probe"), env=ENVIRONMENT, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    problems: dict[str, str] = json.loads(output)
    return [
        Finding(name=name, problem=problem, remedy=remedy(name, reason=problem) if problem else "")
        for name, problem in problems.items()
    ]


async def _try_level(level: IsolationLevel, *, image: str | None) -> Finding:
    try:
        async with SandboxPool(slots=1, level=level, limits=ATTACK_LIMITS, image=image):
            return Finding(name=level, problem="", remedy="")
    except NoLevelWorks as error:
        (failure,) = error.failures
        return Finding(name=level, problem=failure.problem, remedy=failure.remedy)


async def _try_out(level: str, *, image: str | None) -> tuple[list[Finding], float]:
    """The attacks at a level, and the median time of a program that prints a line, milliseconds."""
    async with SandboxPool(slots=1, level=level, limits=ATTACK_LIMITS, image=image) as pool:
        times_s = []
        for _ in range(_NUM_TIMED):
            start = time.perf_counter()
            await pool.run("print(1)")
            times_s.append(time.perf_counter() - start)
        attacks = [
            Finding(name=attack.name, problem=await problem_with(attack, pool=pool), remedy="") for attack in ATTACKS
        ]
    return attacks, round(1000 * statistics.median(times_s), 2)


def _look_for_shortages(num_slots: int, limits: Limits) -> list[Finding]:
    need = Need(limits=limits, num_slots=num_slots, base_bytes=host_limits.resident_bytes(os.getpid()))
    shortages = need.shortages(host=host_limits.host_limits())
    name = f"room for {num_slots} slots of {limits.memory_mb} MiB"
    return [Finding(name=name, problem="; ".join(shortages), remedy="")]
