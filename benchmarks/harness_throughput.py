"""How much of the time the harness keeps a judge busy: items a second against the ideal, and against waiting in batches.

    python benchmarks/harness_throughput.py measure --out benchmarks/results/harness_throughput.json

The server is what `tirjudge serve` starts, the sandbox included, but for a scripted model of fixed latency, so that the
ideal is known: concurrency / mean latency of an item. Items take one to three turns; each turn but the last runs a program.
Two ways to judge them, over HTTP, by the same client:

harness   `Runner`, with its journal on disk, its pace and all: one item done, the next begins
batches   as many at a time as the concurrency, each turn waiting for the slowest of them, as a loop over
          `model.generate(batch)` does; a batch begins when the one before it is done
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import random
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated, Any

import typer

from tirjudge.client import AsyncClient
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.model import Model
from tirjudge.profile import Profile
from tirjudge.types import Completion, JudgeRequest, Judgment, Mode, Sampling
from tirjudge.weights_lock import WeightsLock
from tirjudge_harness.pacing import Pace
from tirjudge_harness.run_store import JudgmentStore
from tirjudge_harness.runner import Runner, run_all
from tirjudge_server import serving
from tirjudge_server.settings import ServerSettings
from tirjudge_web.process import bind, run

PROGRAM = """We count the words.
```python
for name in ("A", "B"):
    print(name, len(responses[name].split()))
```
```output
"""
VERDICT = "B has more of them. <preference>B</preference>"
LABELS = {"A": 0.1, "B": 0.9}
MAX_TURNS = 3
NUM_PROGRAMS = re.compile(r"after programs: (\d)")


class Engine(ScriptedEngine):
    """Takes as long for each text as it is told, and writes as many programs as the prompt says before the verdict."""

    def __init__(self, *, turn_s: float) -> None:
        def write(sequence: str) -> str:
            asked = NUM_PROGRAMS.search(sequence)
            # The server tries its judge with a request of its own before it says that it is ready.
            num_programs = 1 if asked is None else int(asked[1])
            return VERDICT if sequence.count(PROGRAM) >= num_programs else PROGRAM

        super().__init__(write, label_probs=LABELS, delay_s=turn_s)

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        self.calls.clear()
        return await super().generate(token_ids, sampling=sampling, session=session)


app = typer.Typer(add_completion=False)


@app.command()
def serve(turn_s: float, concurrency: int) -> None:
    """Serve the scripted model until a signal comes; one line on stdout says where."""

    @asynccontextmanager
    async def open_scripted(*_: Any, **__: Any) -> AsyncIterator[Model]:
        yield Model(
            engine=Engine(turn_s=turn_s), profile=Profile(name="scripted"), weights=WeightsLock(version="scripted")
        )

    serving.open_judging = open_scripted  # pyright: ignore[reportPrivateImportUsage]
    settings = ServerSettings(max_concurrency=concurrency, records="none", cache=False, files="none")
    run(serving.serve_judge(bind("127.0.0.1", port=0), settings=settings), log_level="warning")


@app.command()
def measure(
    items: Annotated[int, typer.Option(help="To judge in the harness's way.")] = 4096,
    batches: Annotated[int, typer.Option(help="Of as many items as the concurrency, to judge in the other way.")] = 12,
    concurrency: Annotated[int, typer.Option(help="Items under way at a time.")] = 64,
    turn_s: Annotated[float, typer.Option(help="Seconds that the model takes for a turn.")] = 2.0,
    seed: Annotated[int, typer.Option(help="Of the numbers of turns.")] = 0,
    out: Annotated[Path | None, typer.Option(help="File for the result; default: printed only.")] = None,
) -> None:
    """Measure, and print the result as JSON."""
    rng = random.Random(seed)
    turns = [rng.randint(1, MAX_TURNS) for _ in range(items)]
    with started_server(turn_s=turn_s, concurrency=concurrency) as url:
        result = asyncio.run(both(url, turns=turns, num_batches=batches, concurrency=concurrency, turn_s=turn_s))
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    text = json.dumps(
        {
            "command": " ".join(["python", *sys.argv]),
            "commit": commit or None,
            "python": platform.python_version(),
            "num_cores": len(os.sched_getaffinity(0)),
            "concurrency": concurrency,
            "turn_s": turn_s,
            **result,
        },
        indent=2,
    )
    print(text)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text + "\n", encoding="utf-8")


@contextmanager
def started_server(*, turn_s: float, concurrency: int) -> Iterator[str]:
    """The server, in a process of its own, and its URL."""
    command = [sys.executable, __file__, "serve", str(turn_s), str(concurrency)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"the server ended with status {process.wait()}")
        yield line.split()[4]
        process.terminate()


async def both(
    url: str, *, turns: Sequence[int], num_batches: int, concurrency: int, turn_s: float
) -> dict[str, dict[str, Any]]:
    """Both ways, one after the other, at one server."""
    async with AsyncClient(url) as client:
        await client.judge(question(-1, num_turns=2))
        harness_s = await by_runner(client, turns=turns, concurrency=concurrency)
        batched = turns[: num_batches * concurrency]
        batches_s = await by_batches(client, turns=batched, concurrency=concurrency)
    return {
        "harness": figures(turns, elapsed_s=harness_s, concurrency=concurrency, turn_s=turn_s),
        "batches": figures(batched, elapsed_s=batches_s, concurrency=concurrency, turn_s=turn_s),
    }


async def by_runner(client: AsyncClient, *, turns: Sequence[int], concurrency: int) -> float:
    """Seconds that the harness takes, with a journal on disk."""
    failures: list[Exception] = []

    def show(number: int, answer: Judgment | Exception) -> None:
        if isinstance(answer, Exception):
            failures.append(answer)

    with TemporaryDirectory() as folder:
        async with JudgmentStore(Path(folder)) as answers:
            pace = Pace(most=concurrency)
            runner = Runner(client.judge, identity={"model": "scripted"}, store=answers, pace=pace)
            questions = [(number, question(number, num_turns=num)) for number, num in enumerate(turns)]
            started = perf_counter()
            await run_all(questions, runner=runner, on_done=show)
            elapsed_s = perf_counter() - started
    if failures:
        raise SystemExit(f"{len(failures)} failed, the first: {failures[0]}")
    return elapsed_s


async def by_batches(client: AsyncClient, *, turns: Sequence[int], concurrency: int) -> float:
    """Seconds that batches take, in which every item is as slow as the slowest.

    The judge is the same and judges whole items, so the wait for the slowest of each turn is that for the slowest item.
    """
    started = perf_counter()
    for first in range(0, len(turns), concurrency):
        batch = range(first, min(first + concurrency, len(turns)))
        await asyncio.gather(*(client.judge(question(-2 - number, num_turns=turns[number])) for number in batch))
    return perf_counter() - started


def figures(turns: Sequence[int], *, elapsed_s: float, concurrency: int, turn_s: float) -> dict[str, Any]:
    ideal_s = sum(turns) * turn_s / concurrency
    return {
        "num_items": len(turns),
        "mean_turns": round(sum(turns) / len(turns), 3),
        "seconds": round(elapsed_s, 2),
        "items_per_s": round(len(turns) / elapsed_s, 3),
        "ideal_items_per_s": round(len(turns) / ideal_s, 3),
        "share_of_the_ideal": round(ideal_s / elapsed_s, 4),
    }


def question(number: int, *, num_turns: int) -> JudgeRequest:
    """One of many small pairs, no two alike, that takes so many turns."""
    return JudgeRequest(
        mode=Mode.PAIRWISE,
        prompt=f"Write sentence {number} about the sea; the verdict comes after programs: {num_turns - 1}.",
        responses=[f"The sea, sentence {number}.", f"Sentence {number} is about the sea at night."],
    )


if __name__ == "__main__":
    app()
