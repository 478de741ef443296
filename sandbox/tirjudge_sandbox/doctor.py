"""Diagnose this machine: test each kernel feature and each isolation level, run attacks, and time a program."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import statistics
import subprocess
import time
from dataclasses import dataclass
from functools import partial

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
    """Result of one check."""

    name: str
    """Name of the kernel feature, level, attack or resource."""
    problem: str
    """Reason why the check failed. Empty if it passed."""
    remedy: str
    """Advice that would fix the problem. Empty if the check passed, or if no advice is known."""

    @property
    def works(self) -> bool:
        """Whether the check passed."""
        return not self.problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Results of all checks of a machine."""

    kernel: str
    """Release of the Linux kernel."""
    python: str
    """Version of Python."""
    primitives: list[Finding]
    """Kernel features that the isolation levels use."""
    levels: list[Finding]
    """Isolation levels, strongest first. Each is tested by running a program."""
    attacks: list[Finding]
    """Attacks at the strongest level that works. A check fails if the attack succeeds. Empty if no level works."""
    resources: list[Finding]
    """Whether the machine has enough memory and processes for a pool. Empty if no level works."""
    level: str | None
    """The level that a pool chooses. None: a pool does not start."""
    print_ms: float | None
    """Median time in milliseconds of a program that prints a line. None if no level works."""


async def diagnose(*, image: str | None = None, slots: int | None = None, limits: Limits | None = None) -> Diagnosis:
    """Run all checks. This takes a few seconds.

    Args:
        image: Docker image for the container levels. None: they are not tested.
        slots: number of slots whose resources are checked. None: one per CPU.
        limits: limits of the programs whose resources are checked. None: the defaults.
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
    # A thread, because a subprocess of asyncio waits forever if the event loop is shut down while it starts.
    probe = partial(subprocess.run, isolated_python("probe"), env=ENVIRONMENT, stdout=subprocess.PIPE, check=False)
    problems: dict[str, str] = json.loads((await asyncio.to_thread(probe)).stdout)
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
    """Run the attacks at a level. Also return the median time in milliseconds of a program that prints a line."""
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
