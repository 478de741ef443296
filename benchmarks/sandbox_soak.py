"""Run hostile or random programs for a long time: find lost or mixed-up results, hangs, and leaks.

    python benchmarks/sandbox_soak.py --programs 100000 --in-flight 256 --json benchmarks/results/sandbox_soak.json
    python benchmarks/sandbox_soak.py --mix random --programs 20000 --json benchmarks/results/sandbox_fuzz.json
    python benchmarks/sandbox_soak.py --mix random cases.jsonl --seed 7 --level landlock

The mix `hostile` consists of honest programs, whose exact output is known, and hostile programs that exhaust a resource.
The mix `random` consists of generated Python that compiles, random bytes, mutations of attacks (built-in ones and those of
FILES; see sandbox_programs.py), random system calls and random calls of `os`. These programs get random bindings, limits,
standard input and files, and some are cancelled while they run. Each program has a unique tag. Its result must have a
consistent outcome and must not contain the tag of another program.

The report also contains the start time of the pool, its memory while idle, programs per second, and the supervisor's CPU
time per program, including this script's work of making programs and checking results. The resources of the pool are
measured before and after the load, while no program runs: they must not have grown. Exits with status 1 if a
result is lost, mixed up or not allowed. The same seed makes the same programs, but their effects depend on timing.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import random
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from reporting import JsonOut, report
from rich.progress import Progress
from sandbox_backends import CONSOLE, Backend, at_each, opened
from sandbox_host import Canaries, Footprint, descendants, planted_canaries, pss_mb, reap_adopted
from sandbox_programs import (
    ATTACKS,
    HOSTILE,
    compiles,
    load_cases,
    mutation,
    random_calls,
    random_os_calls,
    random_program,
    random_text,
)

from tirjudge.types import ExecResult, Outcome
from tirjudge_sandbox import IsolationLevel, Limits


class Mix(StrEnum):
    """The kinds of programs to run."""

    HOSTILE = "hostile"
    RANDOM = "random"


LIMITS = {
    Mix.HOSTILE: Limits(cpu_s=0.2, wall_s=2.0, memory_mb=192),
    Mix.RANDOM: Limits(cpu_s=0.3, wall_s=1.0, memory_mb=128),
}
HANG_S = 120.0
"""Maximum seconds of a program, including its wait for a slot. A program that takes longer counts as lost."""
LATE_S = 20.0
"""Maximum seconds that a program may run beyond its time limit, as measured by the sandbox."""
REST_S = 2.0
"""Seconds to wait, while no program runs, before resources are measured."""
PART_WARM_UP = 0.02
"""Share of the programs that run before resources are measured for the first time."""
PART_CANCELLED = 0.02
"""Share of the random programs that are cancelled while they run."""
CANARIES_EVERY = 50
"""Number of random programs between two checks of the canaries."""
MAX_GROWTH = {"num_fds_below": 4, "rss_mb": 8.0, "pss_below_mb": 8.0}
"""Resource -> maximum growth between the measurements before and after the load. Other resources must not grow at all."""
TAG = re.compile(r"tag-[0-9a-f]{16}-gat")
NUM_FAILURES_SHOWN = 20

OK, ERROR, CRASH = Outcome.OK, Outcome.ERROR, Outcome.CRASH
EXPENSIVE = ("spin", "one call", "memory", "flood")
"""Kinds of hostile programs that use up their time or output limit. They are drawn a third as often as other kinds."""

HONEST = {
    "plain": "print(tag, number ** 2)",
    "numpy": "import numpy\nprint(tag, numpy.array([number]).dot([number]))",
    "sympy": "import sympy\nprint(tag, sympy.Integer(number) ** 2)",
}
"""Honest programs. Those whose package is installed are drawn; the plain one is drawn four times as often as all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedProgram:
    """A program, and the results that it may have."""

    kind: str
    tag: str
    """Unique text that only this program may print."""
    code: str
    arguments: dict[str, Any] = field(default_factory=dict)
    """Other arguments of `run`."""
    ends: set[Outcome] = field(default_factory=lambda: set(Outcome))
    """Allowed outcomes."""
    stdout: str | None = None
    """Its exact output. None: not known."""
    is_valid: bool = True
    """Whether the pool must accept it. If false, `run` may raise ValueError."""
    prints_tag: bool = True
    """Whether its output contains its tag, if its outcome is ok."""
    cancel_after_s: float | None = None
    """Seconds until it is cancelled. None: not cancelled."""


ProgramMaker = Callable[[int], TaggedProgram]


@dataclass(slots=True, kw_only=True)
class Soak:
    """A pool under load, and the results so far."""

    box: Backend
    make: ProgramMaker
    """Number -> program."""
    limits: Limits
    """Default limits of the pool."""
    canaries: Canaries | None = None
    """Canaries on the host, checked every `CANARIES_EVERY` programs. None: no canaries are checked."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Kind and outcome -> number of programs."""
    failures: dict[str, list[dict[str, str]]] = field(
        default_factory=lambda: {"lost": [], "mixed_up": [], "unexpected": []}
    )
    """Kind of failure -> the programs that failed, with reasons."""
    latencies: list[float] = field(default_factory=list)
    """Seconds per program, including its wait for a slot."""

    async def run_many(self, numbers: range, *, in_flight: int, advance: Callable[[], None]) -> None:
        """Run the programs with these numbers, `in_flight` concurrently."""
        left = iter(numbers)

        async def work() -> None:
            for number in left:
                program = self.make(number)
                began = time.perf_counter()
                await self._run_one(program)
                self.latencies.append(time.perf_counter() - began)
                if self.canaries is not None and number % CANARIES_EVERY == 0:
                    for reason in self.canaries.touched(program.code):
                        self.fail("unexpected", program, reason)
                advance()

        await asyncio.gather(*(work() for _ in range(in_flight)))

    async def _run_one(self, program: TaggedProgram) -> None:
        running = asyncio.ensure_future(self.box.run(program.code, **program.arguments))
        if program.cancel_after_s is not None:
            await asyncio.sleep(program.cancel_after_s)
            running.cancel()
        try:
            result = await asyncio.wait_for(running, HANG_S)
        except asyncio.CancelledError:
            self.outcomes["(cancelled)"] += 1
        except ValueError as error:
            self.outcomes["(ValueError)"] += 1
            if program.is_valid:
                self.fail("lost", program, f"ValueError: {error}")
        except Exception as error:
            self.fail("lost", program, f"{type(error).__name__}: {error}")
        else:
            self.outcomes[f"{program.kind}: {result.outcome}"] += 1
            self._check(result, program)

    def _check(self, result: ExecResult, program: TaggedProgram) -> None:
        text = all_texts(result)
        mixed_up = {
            "another program's tag was returned": set(TAG.findall(text)) - {program.tag},
            "its own tag is missing": program.prints_tag and result.outcome is OK and program.tag not in result.stdout,
            f"it did not print {program.stdout!r}": program.stdout is not None
            and result.outcome is OK
            and result.stdout != program.stdout,
        }
        unexpected = contradictions(result, limits=program.arguments.get("limits") or self.limits, text=text)
        unexpected["outcome not allowed"] = result.outcome not in program.ends
        for kind, reasons in (("mixed_up", mixed_up), ("unexpected", unexpected)):
            for reason, is_so in reasons.items():
                if is_so:
                    self.fail(kind, program, f"{reason}: {result.outcome}, {result.error}, {result.stdout[:200]!r}")

    def fail(self, how: str, program: TaggedProgram, reason: str) -> None:
        """Record a failure. `how` is the kind of failure, a key of `failures`."""
        self.failures[how].append({"kind": program.kind, "reason": reason, "code": program.code[:20_000]})

    async def check_slots(self, num_slots: int) -> None:
        """Run a program on every slot, and record a failure if a result is wrong."""
        tag = "all slots"
        program = TaggedProgram(
            kind="health",
            tag=tag,
            code="import time\ntime.sleep(0.02)\nprint('all slots')",
            stdout=f"{tag}\n",
            ends={OK},
        )
        await asyncio.gather(*(self._run_one(program) for _ in range(2 * num_slots)))


def main(
    files: Annotated[list[Path] | None, typer.Argument(help="Cases to mutate, besides the built-in ones.")] = None,
    mix: Annotated[Mix, typer.Option(help="Which programs to run.")] = Mix.HOSTILE,
    programs: Annotated[int, typer.Option(help="Programs per level.")] = 100_000,
    in_flight: Annotated[int, typer.Option(help="Programs in flight.")] = 256,
    hostile: Annotated[float, typer.Option(help="Share of hostile programs in the mix `hostile`.")] = 0.25,
    slots: Annotated[int | None, typer.Option(help="Programs run concurrently. Default: one per core.")] = None,
    level: Annotated[
        list[str] | None,
        typer.Option(help="Level. Repeatable. Default: the best that works; for the mix `random`, all."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the programs.")] = 0,
    json_out: JsonOut = None,
) -> None:
    """Run the programs, and print which results were lost and which resources grew."""
    num_slots = slots or len(os.sched_getaffinity(0))
    cases = [*ATTACKS, *(case for file in files or [] for case in load_cases(file))]

    async def measure(name: str) -> dict[str, Any]:
        outside = Footprint.now()
        with planted_canaries() as canaries:
            if mix is Mix.HOSTILE:
                make = partial(hostile_or_honest, seed=seed, part_hostile=hostile)
            else:
                sources = [case.filled(canaries.values).code for case in cases]
                make = partial(random_one, seed=seed, sources=sources, has_files=name != IsolationLevel.LANDLOCK)
            found = await soak(
                name,
                make=make,
                limits=LIMITS[mix],
                canaries=canaries if mix is Mix.RANDOM else None,
                num_programs=programs,
                in_flight=in_flight,
                slots=num_slots,
            )
        closed = await at_rest()
        return found | {"closed": asdict(closed), "left_after_close": grown(outside, closed)}

    head = {"mix": mix, "seed": seed, "num_programs": programs, "in_flight": in_flight, "slots": num_slots}
    levels = at_each(level, measure, best_alone=mix is Mix.HOSTILE)
    failed = any(sum(found.get("num_failures", {}).values()) for found in levels.values())
    report(head | {"part_hostile": hostile, "levels": levels}, json_out, failed=failed)


async def soak(
    name: str,
    *,
    make: Callable[..., TaggedProgram],
    limits: Limits,
    canaries: Canaries | None,
    num_programs: int,
    in_flight: int,
    slots: int,
) -> dict[str, Any]:
    """Measure one level: start, idle, load, rest.

    Raises:
        SandboxUnavailable: the level does not work on this machine.
    """
    started = time.perf_counter()
    async with opened(name, slots=slots, limits=limits, options={"max_waiting": in_flight}) as box:
        start_s = time.perf_counter() - started
        await box.run("print(1)")
        first_result_s = time.perf_counter() - started
        packages = [package for package in ("numpy", "sympy") if await works(box, package, slots=slots)]
        run = Soak(box=box, make=partial(make, packages=packages), limits=limits, canaries=canaries)
        await asyncio.sleep(REST_S)
        idle_mb = pss_mb(descendants(os.getpid()))
        num_warm_up = max(int(num_programs * PART_WARM_UP), min(in_flight, num_programs))
        with Progress(console=CONSOLE) as progress:
            part = partial(
                run.run_many, in_flight=in_flight, advance=partial(progress.advance, progress.add_task(name))
            )
            progress.update(progress.task_ids[0], total=num_programs)
            await part(range(num_warm_up))
            await run.check_slots(slots)
            before = await at_rest()
            run.latencies.clear()
            began, began_cpu = time.perf_counter(), time.process_time()
            await part(range(num_warm_up, num_programs))
            seconds, supervisor_s = time.perf_counter() - began, time.process_time() - began_cpu
        await run.check_slots(slots)
        after = await at_rest()
    num_measured = max(1, num_programs - num_warm_up)
    return {
        "start_s": round(start_s, 3),
        "first_result_s": round(first_result_s, 3),
        "idle_pss_mb": idle_mb,
        "num_failures": {how: len(found) for how, found in run.failures.items()},
        "failures": {how: found[:NUM_FAILURES_SHOWN] for how, found in run.failures.items()},
        "outcomes": dict(run.outcomes.most_common()),
        "seconds": round(seconds, 1),
        "programs_per_s": round(num_measured / seconds, 1),
        "supervisor_ms_per_program": round(1000 * supervisor_s / num_measured, 3),
        "latency_p50_s": round(statistics.median(run.latencies), 4),
        "latency_p99_s": round(statistics.quantiles(run.latencies, n=100)[98], 4),
        "before": asdict(before),
        "after": asdict(after),
        "grew": grown(before, after),
    }


async def works(box: Backend, package: str, *, slots: int) -> bool:
    """Whether programs can import a package. Tries twice, because its warm interpreter starts at the first import."""
    results: list[ExecResult] = []
    for _ in range(2):
        code = f"import {package}, time\ntime.sleep(0.02)"
        results = await asyncio.gather(*(box.run(code) for _ in range(slots)))
        await asyncio.sleep(REST_S)
    return all(result.outcome.is_ok for result in results)


def contradictions(result: ExecResult, *, limits: Limits, text: str) -> dict[str, bool]:
    """Check the fields of a result for contradictions. Return name of a contradiction -> whether the result has it."""
    is_ok = result.outcome is OK
    exited = result.outcome in (OK, ERROR)
    return {
        "an error with outcome ok": is_ok and result.error is not None,
        "no error with a failure": not is_ok and not result.error,
        "an exit code other than 0 with outcome ok": is_ok and result.exit_code != 0,
        "an error with code 0": result.outcome is ERROR and result.exit_code == 0,
        "a signal with an exit": exited and result.signal is not None,
        "a crash without a signal": result.outcome is CRASH and result.signal is None,
        # Error lines of the sandbox itself are short and are not cut.
        "a long error": len(result.error or "") > max(limits.error_chars, 100),
        "long output": len(result.stdout) > limits.output_bytes + 200,
        f"{result.wall_s:.1f} s": not 0 <= result.wall_s <= limits.wall_s + LATE_S,
        f"{result.cpu_s:.1f} s of CPU time": not 0 <= result.cpu_s <= limits.cpu_s + 2.5,
        "no level": not result.level,
        "text that is not Unicode": any("\ud800" <= letter <= "\udfff" for letter in text),
    }


def all_texts(result: ExecResult) -> str:
    """Return stdout, error, stderr and the files of a result as one string."""
    files = (data.decode(errors="replace") for data in result.files.values())
    return "\n".join((result.stdout, result.error or "", result.stderr, *files))


# -------------------------------------------------------------------------------------------------------------- programs


def hostile_or_honest(number: int, *, seed: int, part_hostile: float, packages: Sequence[str]) -> TaggedProgram:
    """Return the program with this number; the same one for the same seed."""
    rng = random.Random(f"{seed}/{number}")
    tag = f"tag-{rng.getrandbits(64):016x}-gat"
    if rng.random() < part_hostile:
        kind = rng.choices(list(HOSTILE), weights=[1 if kind in EXPENSIVE else 3 for kind in HOSTILE])[0]
        code = f"print({tag!r}, flush=True)\n{HOSTILE[kind]['code']}"
        ends = set(map(Outcome, HOSTILE[kind].get("ends", Outcome)))
        return TaggedProgram(kind=kind, tag=tag, code=code, ends=ends)
    kinds = ["plain", *packages]
    kind = rng.choices(kinds, weights=[8, 1, 1][: len(kinds)])[0]
    base = rng.randrange(1_000_000)
    code = f"number = {base}\n{HONEST[kind]}"
    expected = f"{tag} {base**2}\n"
    return TaggedProgram(
        kind=kind, tag=tag, code=code, arguments={"bindings": {"tag": tag}}, ends={OK}, stdout=expected
    )


def random_one(
    number: int, *, seed: int, sources: Sequence[str], has_files: bool, packages: Sequence[str]
) -> TaggedProgram:
    """Return the program with this number; the same one for the same seed."""
    rng = random.Random(f"{seed}/{number}")
    kinds: dict[str, tuple[int, Callable[[], str]]] = {
        "generated": (35, lambda: random_program(rng)),
        "mutated": (30, lambda: mutation(rng, sources)),
        "bytes": (10, lambda: random_text(rng)),
        "calls": (8, lambda: random_calls(rng)),
        "os calls": (8, lambda: random_os_calls(rng)),
        "plain": (9, lambda: f"print(sum(range({rng.randrange(1000)})))"),
    }
    kind = rng.choices(list(kinds), weights=[weight for weight, _ in kinds.values()])[0]
    body = kinds[kind][1]()
    tag = f"tag-{rng.getrandbits(64):016x}-gat"
    code = body if kind == "bytes" else f"print({tag!r}, flush=True)\n{body}"
    arguments, is_valid = random_arguments(rng, tag=tag, has_files=has_files)
    limits = arguments.get("limits", LIMITS[Mix.RANDOM])
    return TaggedProgram(
        kind=kind,
        tag=tag,
        code=code,
        arguments=arguments,
        is_valid=is_valid,
        # Programs of other kinds may delete their output, and a very short output limit cuts off the tag.
        prints_tag=kind in ("generated", "plain") and compiles(code) and limits.output_bytes >= 100,
        cancel_after_s=rng.uniform(0, 0.2) if rng.random() < PART_CANCELLED else None,
    )


def random_arguments(rng: random.Random, *, tag: str, has_files: bool) -> tuple[dict[str, Any], bool]:
    """Return random arguments of `run`, and whether all of them are valid."""
    bindings: dict[str, Any] = {"tag": tag}
    is_valid = True
    if rng.random() < 0.2:
        name, is_valid = rng.choice(
            [("x", True), ("é", True), ("print", True), ("a b", False), ("class", False), ("", False)]
        )
        bindings[name] = rng.choice(["", tag, "\0\ud800é", "y" * 100_000, {"label": "z"}, {}])
    extras: dict[str, Any] = {}
    if rng.random() < 0.3:
        extras["limits"] = random_limits(rng)
    if rng.random() < 0.2:
        extras["stdin"] = rng.choice([tag, "", "1\n2\n", "\0" * 100, "é" * 10_000])
    if has_files and rng.random() < 0.2:
        name = rng.choice(["a.txt", "b/c/d", "tag", "é", "../up", "/etc/x", "", "a/../b", "x" * 300])
        extras["files"] = {name: tag.encode() * rng.choice([0, 1, 1000])}
        is_valid = is_valid and name in ("a.txt", "b/c/d", "tag", "é")
    if has_files and rng.random() < 0.2:
        extras["fetch"] = rng.sample(["a.txt", "b/c/d", "missing", "tag", "b", "planted"], k=rng.randint(1, 3))
    return {"bindings": bindings, **extras}, is_valid


def random_limits(rng: random.Random) -> Limits:
    """Return random limits that the operator's limits allow."""
    changes = {
        "cpu_s": rng.uniform(0.05, 0.5),
        "wall_s": rng.uniform(0.2, 1.5),
        "memory_mb": rng.choice([1, 8, 64, 256]),
        "output_bytes": rng.choice([1, 3, 100, 65_536]),
        "file_mb": rng.choice([1, 4]),
        "error_chars": rng.choice([1, 50, 500]),
    }
    chosen = rng.sample(sorted(changes), k=rng.randint(1, len(changes)))
    return dataclasses.replace(LIMITS[Mix.RANDOM], **{name: changes[name] for name in chosen})


# ---------------------------------------------------------------------------------------------------------------- growth


async def at_rest() -> Footprint:
    """Wait for `REST_S` seconds without programs, and measure the resources."""
    await asyncio.sleep(REST_S)
    reap_adopted()
    return Footprint.now()


def grown(before: Footprint, after: Footprint) -> dict[str, float]:
    """Return resources that grew by more than `MAX_GROWTH`."""
    found = {}
    for name, was in asdict(before).items():
        now = getattr(after, name)
        if was is not None and now is not None and now - was > MAX_GROWTH.get(name, 0):
            found[name] = round(now - was, 2)
    return found


if __name__ == "__main__":
    typer.run(main)
