"""Random and mutated programs against a pool: none may hang it, crash it, or see another's output.

    python benchmarks/sandbox_fuzz.py --programs 20000 --json benchmarks/results/sandbox_fuzz.json
    python benchmarks/sandbox_fuzz.py cases.jsonl --seed 7 --level landlock

Each program is one of: generated Python that compiles, random bytes, a mutation of an attack (our own ones, and those of
the files given; see sandbox_programs.py), arbitrary system calls, arbitrary calls of `os`; with random bindings, limits,
standard input and files. It is told a tag of its own. What comes back must have a defined outcome that its other fields
agree with, and no tag but its own. Some programs are cancelled on their way.
Exits 1 if anything was wrong. The same seed makes the same programs, but what they do depends on time.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from sandbox_backends import Backend, isolating_levels, opened, report_head
from sandbox_host import Canaries, Footprint, adopt_orphans, planted_canaries, reap_adopted
from sandbox_programs import (
    ATTACKS,
    Case,
    compiles,
    load_cases,
    mutation,
    random_calls,
    random_os_calls,
    random_program,
    random_text,
)

from tirjudge.errors import SandboxUnavailable
from tirjudge.types import ExecResult, Outcome
from tirjudge_sandbox import IsolationLevel, Limits

LIMITS = Limits(cpu_s=0.3, wall_s=1.0, memory_mb=128)
HANG_S = 120.0
"""Without an answer for so long, waiting for a slot included, a program hangs."""
LATE_S = 20.0
"""How much longer than its limit the sandbox itself may say a program took."""
IN_FLIGHT_PER_SLOT = 8
TAG = re.compile(r"tag-[0-9a-f]{16}-gat")
PART_CANCELLED = 0.02
NUM_FAILURES_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One thing to run, and what must come of it."""

    kind: str
    tag: str
    code: str
    arguments: dict[str, Any]
    """For `run`, besides the code."""
    is_valid: bool
    """Whether the pool must take it; if not, ValueError is right too."""
    prints_tag: bool
    """Whether it compiles, and so prints its tag first, and whether that is not cut."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """What happened so far."""

    outcomes: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, str]] = field(default_factory=list)

    def fail(self, program: Program, reason: str) -> None:
        self.failures.append(
            {"kind": program.kind, "reason": reason, "code": program.code[:20_000], "tag": program.tag}
        )


def main(
    files: Annotated[list[Path] | None, typer.Argument(help="Cases to mutate besides our own.")] = None,
    programs: Annotated[int, typer.Option(help="Per level.")] = 20_000,
    seed: Annotated[int, typer.Option()] = 0,
    slots: Annotated[int, typer.Option(help="Programs at a time.")] = 2,
    level: Annotated[list[str] | None, typer.Option(help="Repeatable; default: all that work.")] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="File for the result.")] = None,
) -> None:
    """Run them and say what was wrong."""
    console = Console(stderr=True)
    adopt_orphans()
    cases = [*ATTACKS, *(case for file in files or [] for case in load_cases(file))]
    report = report_head() | {"seed": seed, "num_programs": programs, "slots": slots, "levels": {}}
    for name in level or isolating_levels():
        report["levels"][name] = asyncio.run(
            fuzzed(name, cases, num_programs=programs, seed=seed, slots=slots, console=console)
        )
    text = json.dumps(report, indent=2)
    console.print(text[:4000], markup=False, highlight=False)
    if json_out is not None:
        json_out.write_text(text + "\n")
    if any(result.get("num_failures") for result in report["levels"].values()):
        raise typer.Exit(1)


async def fuzzed(
    name: str, cases: Sequence[Case], *, num_programs: int, seed: int, slots: int, console: Console
) -> dict[str, Any]:
    """What came of the programs at one level."""
    tally = Tally()
    start = time.perf_counter()
    try:
        async with opened(name, slots=slots, limits=LIMITS) as box:
            with planted_canaries() as canaries, Progress(console=console) as progress:
                bar = progress.add_task(name, total=num_programs)
                await warm_up(box, slots=slots)
                await check_health(box, slots=slots, tally=tally)
                before = Footprint.now()
                sources = [case.filled(canaries.values).code for case in cases]
                numbers = iter(range(num_programs))
                has_files = name != IsolationLevel.LANDLOCK

                async def work() -> None:
                    for number in numbers:
                        await run_one(
                            box,
                            make(seed, number, sources=sources, has_files=has_files),
                            tally=tally,
                            canaries=canaries,
                        )
                        progress.advance(bar)

                await asyncio.gather(*(work() for _ in range(IN_FLIGHT_PER_SLOT * slots)))
                await check_health(box, slots=slots, tally=tally)
                reap_adopted()
                after = Footprint.now()
    except SandboxUnavailable as error:
        return {"skipped": " ".join(str(error).split())}
    return {
        "seconds": round(time.perf_counter() - start, 1),
        "num_failures": len(tally.failures),
        "failures": tally.failures[:NUM_FAILURES_SHOWN],
        "outcomes": dict(tally.outcomes.most_common()),
        "kinds": dict(tally.kinds.most_common()),
        "before": before.to_json(),
        "after": after.to_json(),
    }


async def run_one(box: Backend, program: Program, *, tally: Tally, canaries: Canaries) -> None:
    """Runs it and notes what is wrong."""
    tally.kinds[program.kind] += 1
    rng = random.Random(program.tag)
    running = asyncio.ensure_future(box.run(program.code, **program.arguments))
    if rng.random() < PART_CANCELLED:
        await asyncio.sleep(rng.uniform(0, 0.2))
        running.cancel()
    try:
        result = await asyncio.wait_for(running, HANG_S)
    except asyncio.CancelledError:
        tally.outcomes["(cancelled)"] += 1
        return
    except TimeoutError:
        tally.fail(program, f"no answer in {HANG_S:.0f} s")
        return
    except ValueError as error:
        tally.outcomes["(ValueError)"] += 1
        if program.is_valid:
            tally.fail(program, f"ValueError: {error}")
        return
    except Exception as error:
        tally.fail(program, f"{type(error).__name__}: {error}")
        return
    tally.outcomes[str(result.outcome)] += 1
    touched = canaries.touched(program.code) if sum(tally.kinds.values()) % 50 == 0 else []
    for reason in (*contradictions(result, limits=program.arguments.get("limits") or LIMITS), *touched):
        tally.fail(program, reason)
    strange = set(TAG.findall(all_texts(result))) - {program.tag}
    if strange:
        tally.fail(program, f"the output of another came back: {strange}")
    if program.prints_tag and result.outcome is Outcome.OK and program.tag not in result.stdout:
        tally.fail(program, f"its own tag is missing: {result.stdout[:200]!r}")


def contradictions(result: ExecResult, *, limits: Limits) -> list[str]:
    """What cannot be true of a program's end."""
    is_ok = result.outcome is Outcome.OK
    exited = result.outcome in (Outcome.OK, Outcome.ERROR)
    checks = {
        "an outcome that there is not": not isinstance(result.outcome, Outcome),
        "an error though it ended well": is_ok and result.error is not None,
        "no error though it failed": not is_ok and not result.error,
        "ended well with a code": is_ok and result.exit_code != 0,
        "an error with code 0": result.outcome is Outcome.ERROR and result.exit_code == 0,
        "a signal though it exited": exited and result.signal is not None,
        "a crash without a signal": result.outcome is Outcome.CRASH and result.signal is None,
        # What the sandbox says in its own words is never long, and not cut.
        "a long error": len(result.error or "") > max(limits.error_chars, 100),
        "long output": len(result.stdout) > limits.output_bytes + 200,
        f"{result.wall_s:.1f} s": not 0 <= result.wall_s <= limits.wall_s + LATE_S,
        f"{result.cpu_s:.1f} s of processor time": not 0 <= result.cpu_s <= limits.cpu_s + 2.5,
        "no level": not result.level,
        "text that is not Unicode": not encodes(all_texts(result)),
    }
    return [reason for reason, is_so in checks.items() if is_so]


def all_texts(result: ExecResult) -> str:
    files = getattr(result, "files", None) or {}
    others = [getattr(result, "stderr", ""), *(data.decode(errors="replace") for data in files.values())]
    return "\n".join((result.stdout, result.error or "", *others))


def encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


async def warm_up(box: Backend, *, slots: int) -> None:
    """So that all warm interpreters there can be are there before the first look at what the pool holds."""
    for package in ("numpy", "sympy", "pandas"):
        for _ in range(2):
            await asyncio.gather(*(box.run(f"import {package}, time\ntime.sleep(0.02)") for _ in range(slots)))
            await asyncio.sleep(1.5)


async def check_health(box: Backend, *, slots: int, tally: Tally) -> None:
    """All slots must answer rightly."""
    code = "import time\ntime.sleep(0.02)\nprint(6 * 7)"
    for result in await asyncio.gather(*(box.run(code) for _ in range(2 * slots))):
        if result.stdout != "42\n":
            tally.failures.append({"kind": "health", "reason": f"{result}", "code": code, "tag": ""})


# ------------------------------------------------------------------------------------------------------------- programs


def make(seed: int, number: int, *, sources: Sequence[str], has_files: bool) -> Program:
    """The program of that number; the same for the same seed."""
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
    # A program may well take back what it has printed: only of the tame ones do we know.
    return Program(
        kind=kind,
        tag=tag,
        code=code,
        arguments=arguments,
        is_valid=is_valid,
        prints_tag=kind in ("generated", "plain") and compiles(code) and shows_tag(arguments.get("limits") or LIMITS),
    )


def shows_tag(limits: Limits) -> bool:
    """Whether the head of a long output has room for a tag."""
    return limits.output_bytes >= 100


def random_arguments(rng: random.Random, *, tag: str, has_files: bool) -> tuple[dict[str, Any], bool]:
    """For `run`, and whether they are all as they should be."""
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
    """All within what the operator allows."""
    changes = {
        "cpu_s": rng.uniform(0.05, 0.5),
        "wall_s": rng.uniform(0.2, 1.5),
        "memory_mb": rng.choice([1, 8, 64, 256]),
        "output_bytes": rng.choice([1, 3, 100, 65_536]),
        "file_mb": rng.choice([1, 4]),
        "error_chars": rng.choice([1, 50, 500]),
    }
    chosen = rng.sample(sorted(changes), k=rng.randint(1, len(changes)))
    return dataclasses.replace(LIMITS, **{name: changes[name] for name in chosen})


if __name__ == "__main__":
    typer.run(main)
