"""Measure whether many judgments over the same stores leave memory, processes or descriptors behind.

    python -m benchmarks.evidence_judgments --out benchmarks/results/evidence_judgments.json

Each judgment is complete: a scripted model writes a program, the sandbox runs it, the program queries a registered table, a
registered graph and a table that comes with its request, and the model gives a verdict. `resources` has what this process and
all its descendants hold after the judgments before, first and last.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.evidence_stores import NUM_TRIPLES_OF_A_LOAN, resources, write_graph, write_table
from benchmarks.reporting import Out, report
from tirjudge.concurrency import map_concurrently
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge.profile import Profile
from tirjudge.tools.python import PythonTool
from tirjudge.types import JudgeRequest
from tirjudge_evidence.functions import EvidenceSettings, functions_of, open_stores
from tirjudge_sandbox import SandboxPool

_PROGRAM = """\
number = int(prompt.split()[-1])
row = sql("t", "SELECT amount FROM loans WHERE id = ?", [number])[0]
found = sparql("g", f"SELECT ?a {{ ex:loan{number} ex:amount ?a }}")
limit = sql("mine", "SELECT most FROM limits")[0]["most"]
print("best", "AB"[row["amount"] > limit], len(found))
"""

NUM_LOANS = 1000
"""Loans of the graph, among which the questions choose."""


def script(conversation: str) -> str:
    """Write the program, then the verdict that it prints."""
    _, is_run, output = conversation.rpartition("\nbest ")
    return (
        f"<preference>{output[0]}</preference>" if is_run else f"We look it up.\n```python\n{_PROGRAM}```\n```output\n"
    )


def request_of(number: int) -> JudgeRequest:
    """Return a request with a store of its own."""
    limits = {"name": "limits.csv", "format": "csv", "text": f"most\n{number % 50_000}\n"}
    return JudgeRequest.model_validate(
        {
            "mode": "pairwise",
            "prompt": f"Is the amount too large? The loan is {number % NUM_LOANS}",
            "responses": ["No.", "Yes."],
            "evidence": [{"name": "mine", "kind": "table", "files": [limits]}],
        }
    )


async def measure(folder: Path, *, judgments: int, concurrency: int, steps: int) -> dict[str, Any]:
    """Judge, and return the figures."""
    settings = EvidenceSettings(
        store=[
            write_table(folder, rows=100_000, seed=0),
            write_graph(folder, triples=NUM_TRIPLES_OF_A_LOAN * NUM_LOANS, seed=0),
        ]
    )
    async with SandboxPool(slots=2) as pool, open_stores(settings, folder=folder) as stores:
        engine = ScriptedEngine(script)
        judge = Judge(
            engine=engine,
            tools=[PythonTool(pool, functions_of(stores))],
            profile=Profile(name="scripted", context_tokens=60_000),
        )

        async def judge_some(first: int, number: int) -> int:
            requests = [request_of(index) for index in range(first, first + number)]
            done = await map_concurrently((judge.judge(each) for each in requests), num_at_once=concurrency)
            engine.calls.clear()  # the scripted engine keeps the prompts
            return sum(one.usage.function_calls == 3 and one.verdict.status == "decided" for one in done)

        size = judgments // steps
        await judge_some(0, size)
        held = [{"judgments": 0} | resources()]
        start, complete = time.perf_counter(), 0
        for step in range(steps):
            complete += await judge_some(size * (step + 1), size)
            held.append({"judgments": size * (step + 1)} | resources())
            print(f"{size * (step + 1)} judgments", file=sys.stderr)
        seconds = time.perf_counter() - start
    return {
        "judgments": size * steps,
        "complete": complete,
        "judgments_per_s": round(size * steps / seconds, 1),
        "resources": held,
    }


def main(
    judgments: Annotated[int, typer.Option(help="Number of judgments.")] = 1_000,
    concurrency: Annotated[int, typer.Option(help="Concurrent judgments.")] = 4,
    steps: Annotated[
        int, typer.Option(help="Number of measurements of the resources, after equally many judgments.")
    ] = 5,
    out: Out = None,
) -> None:
    """Measure, and print the result as JSON."""
    with tempfile.TemporaryDirectory() as name:
        found = asyncio.run(measure(Path(name), judgments=judgments, concurrency=concurrency, steps=steps))
    report(found, out)


if __name__ == "__main__":
    typer.run(main)
