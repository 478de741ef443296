"""The sandbox of this tree beside that of another one, such as the parent commit's: one run, in turns, ratios.

    git worktree add ../before HEAD~1
    python benchmarks/sandbox_paired.py --before ../before --json benchmarks/results/sandbox_paired.json

Each tree has a process of its own with a pool of two slots at each level. They take turns: a round is some programs one after
the other, then as many eight at a time. The ratio of a round is that of the two trees' times in it, so that a drift of the
machine's speed does not matter. Told are the median of the rounds and their quartiles.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

PROGRAMS = {
    "print": "print(sum(range(100)))",
    "threads": "import threading\nfor _ in range(8):\n    t = threading.Thread(target=int)\n    t.start()\n    t.join()",
    "sympy": "import sympy; x = sympy.Symbol('x'); print(sympy.factor(x**3 - 1))",
}
NUM_PROGRAMS = {"print": 30, "threads": 30, "sympy": 12}
IN_FLIGHT = 8
ROOMS = ("judge", "web", "sandbox")
"""Those of them that a tree has; an older one has no `web`."""


def main(
    before: Annotated[Path, typer.Option(exists=True, file_okay=False, help="Folder of the other tree.")],
    level: Annotated[list[str] | None, typer.Option(help="Repeatable; default: all that need no image.")] = None,
    rounds: Annotated[int, typer.Option(min=1)] = 25,
    json_out: Annotated[Path | None, typer.Option("--json", help="File for the result.")] = None,
) -> None:
    """Compare two trees and say how many times as long this one takes."""
    # Not above: the process of the other tree reads this file too, and may not have what this imports.
    from sandbox_backends import finish, isolating_levels, report_head

    here = Path(__file__).parent.parent
    results = {}
    for name in level or isolating_levels():
        trees = [_started(tree, level=name) for tree in (here, before)]
        results[name] = {program: _compared(trees, program=program, rounds=rounds) for program in PROGRAMS}
        for tree in trees:
            tree.stdin.close()
            tree.wait()
    commit = subprocess.run(["git", "-C", before, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    head = report_head() | {"before": commit.stdout.strip(), "rounds": rounds}
    finish(head | {"this_tree_over_before": results}, json_out)


def _started(tree: Path, *, level: str) -> subprocess.Popen[str]:
    rooms = [str(tree.resolve() / room) for room in ROOMS if (tree / room).is_dir()]
    return subprocess.Popen(
        [sys.executable, __file__, "serve-rounds", level],
        env={"PYTHONPATH": ":".join(rooms), "PATH": ""},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _compared(trees: list[Any], *, program: str, rounds: int) -> dict[str, Any]:
    ratios: dict[str, list[float]] = {"one after the other": [], f"{IN_FLIGHT} at a time": []}
    for number in range(rounds + 1):
        order = trees if number % 2 else trees[::-1]
        times = {id(tree): _round(tree, program=program) for tree in order}
        if number:  # the first one warms up
            for kind in ratios:
                ratios[kind].append(times[id(trees[0])][kind] / times[id(trees[1])][kind])
    return {
        kind: {
            "median": round(statistics.median(found), 3),
            "quartiles": [round(each, 3) for each in statistics.quantiles(found)[::2]] if len(found) > 1 else found,
        }
        for kind, found in ratios.items()
    }


def _round(tree: subprocess.Popen[str], *, program: str) -> dict[str, float]:
    assert tree.stdin is not None
    assert tree.stdout is not None
    tree.stdin.write(f"{program}\n")
    tree.stdin.flush()
    return json.loads(tree.stdout.readline())


async def serve_rounds(level: str) -> None:
    """In the process of one tree: reads a program's name, runs it, prints the times."""
    from tirjudge_sandbox import SandboxPool

    async with SandboxPool(slots=2, level=level) as pool:
        turns = asyncio.Semaphore(IN_FLIGHT)

        async def timed(code: str) -> float:
            async with turns:
                start = time.perf_counter()
                result = await pool.run(code)
            assert result.outcome.is_ok, result
            return time.perf_counter() - start

        while name := (await asyncio.to_thread(sys.stdin.readline)).strip():
            code, num = PROGRAMS[name], NUM_PROGRAMS[name]
            alone_s = statistics.median([await timed(code) for _ in range(num)])
            start = time.perf_counter()
            await asyncio.gather(*(timed(code) for _ in range(num)))
            together_s = time.perf_counter() - start
            print(json.dumps({"one after the other": alone_s, f"{IN_FLIGHT} at a time": together_s}), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve-rounds"]:
        asyncio.run(serve_rounds(sys.argv[2]))
    else:
        typer.run(main)
