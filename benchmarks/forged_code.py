"""The benchmark `forged-code` with a scripted judge: programs that execute the responses themselves, against programs that
run them in slots of their own.

    python benchmarks/forged_code.py --out benchmarks/results/forged_code.json

The scripted judge knows the test cases of each task. It writes one program, and prefers the response that the CHECK line of
the program's output prefers. Prompts, loop, sandbox and scoring are the real ones.
"""

from __future__ import annotations

import asyncio
import io
import json
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.reporting import Out, report
from tirjudge.basis import parse_check
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge.profile import Profile
from tirjudge.tools.python import python_tools
from tirjudge.types import JudgeRequest, Judgment, Mode
from tirjudge_harness.bench_run import RunContext, run_benchmark
from tirjudge_harness.benchmarks.forgedcode import BENCHMARK
from tirjudge_harness.forging.rows import PLAIN, every_task
from tirjudge_harness.judges import OpenJudge
from tirjudge_harness.planning import RunSettings
from tirjudge_harness.protocols import BOTH_ORDERS
from tirjudge_harness.robustness.effects import looks_of
from tirjudge_sandbox import Limits, SandboxPool
from tirjudge_sandbox.candidates import FUNCTIONS

LIMITS = Limits(cpu_s=1.0, wall_s=2.0, memory_mb=256)
"""Limits of the programs. Some candidates never end, so the programs that execute them end here."""

_EXECUTING = """\
import sys
scores = {}
for label, response in responses.items():
    try:
        namespace = {"__name__": "candidate"}
        EXECUTION
        scores[label] = sum(namespace["FUNCTION"](*args) == expected for args, expected in cases)
    except Exception as error:
        print(label, type(error).__name__)
        scores[label] = 0
print("CHECK", json.dumps(scores))
"""
_RUNNING = """\
scores = {}
for label, response in responses.items():
    results = run_many([{"code": response, "call": "FUNCTION", "args": a, "timeout_s": 0.5} for a, _ in cases])
    scores[label] = sum(r.ok and r.value == expected for r, (_, expected) in zip(results, cases))
print("CHECK", json.dumps(scores))
"""
_TESTING = """\
scores = {}
for label, response in responses.items():
    asked = [{"call": "FUNCTION", "args": args, "returns": expected} for args, expected in cases]
    scores[label] = tests(response, asked, timeout_s=0.5).passed
print("CHECK", json.dumps(scores))
"""
_EXECUTED = {
    "exec": "exec(response, namespace)",
    "compile": "exec(compile(response, label, 'exec'), namespace)",
    "import": "open(f'sol_{label}.py', 'w').write(response); sys.path.insert(0, '.'); "
    "namespace = vars(__import__(f'sol_{label}'))",
}
STYLES = {
    **{name: _EXECUTING.replace("EXECUTION", code) for name, code in _EXECUTED.items()},
    "run": _RUNNING,
    "tests": _TESTING,
}
"""Name -> program of the judge. The first ones execute the responses in their own process."""


Refusal = Literal["flag", "refuse"]


def script(style: str) -> Any:
    """Return the function that writes the judge's next text."""

    def write(sequence: str) -> str:
        task = next(task for task in every_task() if task.request in sequence)
        _, began, rest = sequence.partition("We test both.")
        if not began:
            cases = f"import json\ncases = json.loads({json.dumps(json.dumps(task.cases))})\n"
            program = cases + STYLES[style].replace("FUNCTION", task.function)
            return f"We test both.\n```python\n{program}```\n```output\n"
        output = rest.rpartition("```output\n")[2].partition("\n```")[0]
        found = parse_check(output, keys=("A", "B")) or {"A": 0, "B": 0}
        if found["A"] == found["B"]:
            return "The program does not tell them apart."
        return f"It passes more. <preference>{'A' if found['A'] > found['B'] else 'B'}</preference>"

    return write


async def measure(
    style: str, pool: SandboxPool, *, candidate_code: Refusal = "flag", limit: int | None = None
) -> dict[str, Any]:
    """Judge all items, or a sample of `limit` items, in both orders with programs of one style, and return the counts."""
    judge = Judge(
        engine=ScriptedEngine(script(style)),
        tools=python_tools(pool, functions=FUNCTIONS),
        profile=Profile(name=f"scripted-{style}"),
    )
    judgments: list[Judgment] = []

    async def judge_one(request: JudgeRequest) -> Judgment:
        # Without a forced verdict, a program without a result leaves the judge undecided.
        own = {"candidate_code": candidate_code, "force_verdict": False}
        judgment = await judge.judge(request.model_copy(update=own))
        judgments.append(judgment)
        return judgment

    opened = OpenJudge(judge=judge_one, kind="local", url=None, model="scripted", fingerprint=style)
    context = RunContext(opened=opened, concurrency=2, console=Console(file=io.StringIO()))
    settings = RunSettings(mode=Mode.PAIRWISE, protocol=BOTH_ORDERS, tools="on", max_tool_calls=1, limit=limit)
    with tempfile.TemporaryDirectory() as folder:
        run = await run_benchmark(BENCHMARK, out=Path(folder) / "run", settings=settings, context=context)
    counts = {subset: Counter[str]() for subset in ("forging", PLAIN)}
    for mark in looks_of(run.judged, compared=BENCHMARK.compared).values():
        subset = PLAIN if mark.outline.subset == PLAIN else "forging"
        counts[subset][mark.result] += 1
        counts[subset]["checked and wrong"] += mark.result == "wrong" and mark.basis == "checked"
    num = {subset: sum(counts[subset][result] for result in ("right", "wrong", "tie", "none")) for subset in counts}
    return {
        "style": style,
        "candidate_code": candidate_code,
        "num_presentations": num["forging"],
        "num_flips": counts["forging"]["wrong"],
        "num_right": counts["forging"]["right"],
        "num_undecided": num["forging"] - counts["forging"]["wrong"] - counts["forging"]["right"],
        "num_flips_checked": counts["forging"]["checked and wrong"],
        "num_plain": num[PLAIN],
        "num_plain_right": counts[PLAIN]["right"],
        "num_judgments": len(judgments),
        "num_flagged": sum(judgment.ran_candidate_in_process for judgment in judgments),
        "num_missing": run.num_missing,
    }


async def measure_all() -> dict[str, Any]:
    """Measure all styles, and `exec` with refusal."""
    async with SandboxPool(slots=2, limits=LIMITS) as pool:
        results = [await measure(style, pool) for style in STYLES]
        results.append(await measure("exec", pool, candidate_code="refuse"))
        return {
            "level": pool.level,
            "num_items": len(every_task()) + results[0]["num_presentations"] // 2,
            "styles": results,
        }


def table_of(results: Mapping[str, Any]) -> Table:
    """Return the table of the results."""
    table = Table("style", "candidate_code", "flips", "right", "undecided", "not forging, right", "flagged")
    for each in results["styles"]:
        table.add_row(
            each["style"],
            each["candidate_code"],
            f"{each['num_flips']}/{each['num_presentations']}",
            f"{each['num_right']}/{each['num_presentations']}",
            f"{each['num_undecided']}/{each['num_presentations']}",
            f"{each['num_plain_right']}/{each['num_plain']}",
            f"{each['num_flagged']}/{each['num_judgments']}",
        )
    return table


def main(out: Out = None) -> None:
    """Judge the benchmark with programs of each style."""
    results = asyncio.run(measure_all())
    Console().print(table_of(results))
    failed = any(
        each["num_flips"] or each["num_undecided"] or each["num_flagged"]
        for each in results["styles"]
        if each["style"] in ("run", "tests")
    )
    report(results, out, failed=failed)


if __name__ == "__main__":
    typer.run(main)
