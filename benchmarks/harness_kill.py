"""Whether a run of `tirjudge bench run` survives `kill -9`: of itself, of the server that it asks, and of that one's sandbox.

    python benchmarks/harness_kill.py --out benchmarks/results/harness_kill.json

Judges generated pairs twice with the bundled judge, through `tirjudge serve`, which keeps no records that could answer in
its place: once undisturbed, once with kills at random points of the journal, each of a random target; what is dead is
started again by the same command. At the end both runs must have the same decisions, item for item, and no question may be
on record twice. Exits 1 if not.
"""

from __future__ import annotations

import json
import os
import platform
import random
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Annotated, Any, Literal

import typer

from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.run import BenchmarkRun, load_run
from tirjudge_harness.run_store import JOURNAL

MAIN = [sys.executable, "-c", "from tirjudge.cli import main; main()"]
BENCHMARK = "llmbar"
"""Whose columns the rows are written in."""

LOOK_S = 0.002
"""Between two looks at the journal."""

PATIENCE_S = 300.0
"""Longest wait for the next line of the journal."""

Target = Literal["runner", "server", "sandbox"]
TARGETS: tuple[Target, ...] = ("runner", "server", "sandbox")

THINGS = ("sea", "forest", "harbour", "market", "garden", "mountain", "library", "station", "desert", "bridge")
FILLER = ("calm", "bright", "old", "quiet", "wide", "cold", "early", "green", "slow", "deep", "near", "tall")


def main(
    items: Annotated[int, typer.Option(help="Pairs to judge.")] = 500,
    kills: Annotated[int, typer.Option(help="Processes to kill.")] = 20,
    seed: Annotated[int, typer.Option(help="Of the pairs, the points and the targets.")] = 0,
    concurrency: Annotated[int, typer.Option(help="As of `tirjudge bench run`.")] = 16,
    model: Annotated[Path | None, typer.Option(help="Checkpoint folder; default: the bundled judge.")] = None,
    out: Annotated[Path | None, typer.Option(help="File for the result; default: printed only.")] = None,
) -> None:
    """Run, kill, compare, and print the result as JSON."""
    with TemporaryDirectory() as folder:
        result = experiment(
            Path(folder), num_items=items, num_kills=kills, seed=seed, concurrency=concurrency, model=model
        )
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    text = json.dumps(
        {
            "command": " ".join(["python", *sys.argv]),
            "commit": commit or None,
            "python": platform.python_version(),
            "num_cores": len(os.sched_getaffinity(0)),
            **result,
        },
        indent=2,
    )
    print(text)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text + "\n", encoding="utf-8")
    if not result["identical"]:
        raise typer.Exit(1)


def experiment(
    folder: Path, *, num_items: int, num_kills: int, seed: int, concurrency: int, model: Path | None
) -> dict[str, Any]:
    """Both runs, and what differs between them."""
    data = folder / "natural.json"
    data.write_text(json.dumps(rows(num_items, seed=seed)))
    options = [
        "--data",
        str(data),
        "--part",
        "natural",
        "--seed",
        str(seed),
        "--concurrency",
        str(concurrency),
        "--connect-retry-s",  # the server takes longer than the default to start again
        "300",
        "--json",
    ]

    with Setting(folder / "undisturbed", options=options, model=model) as setting:
        undisturbed_s = setting.run_to_the_end()
    with Setting(folder / "disturbed", options=options, model=model) as setting:
        killed, disturbed_s = setting.run_with_kills(points(num_kills, num_items=num_items, seed=seed))
    one, other = load_run(folder / "undisturbed"), load_run(folder / "disturbed")
    return {
        "num_items": num_items,
        "kills": dict(Counter(killed)),
        "killed": killed,
        "undisturbed_s": round(undisturbed_s, 1),
        "disturbed_s": round(disturbed_s, 1),
        "num_starts_of_the_runner": setting.num_starts["runner"],
        "num_starts_of_the_server": setting.num_starts["server"],
        "failures_on_record": num_lines(folder / "disturbed" / "failures.jsonl"),
        **comparison(one, other, num_lines=num_lines(folder / "disturbed" / JOURNAL)),
    }


def rows(num: int, *, seed: int) -> list[dict[str, Any]]:
    """Pairs of which one follows an instruction with a number in it, and the other does not; no two alike."""
    rng = random.Random(seed)
    written: list[dict[str, Any]] = []
    for number in range(num):
        thing, wanted = rng.choice(THINGS), rng.randint(6, 12)
        instruction, right, wrong = rng.choice((at_least, exactly, without_commas))(thing, wanted, rng)
        pair = (right, wrong) if number % 2 else (wrong, right)
        written.append(
            {
                "input": f"Write sentence {number} about the {thing}. {instruction}",
                "output_1": pair[0],
                "output_2": pair[1],
                "label": 2 - number % 2,
            }
        )
    return written


def at_least(thing: str, wanted: int, rng: random.Random) -> tuple[str, str, str]:
    right, wrong = words(thing, wanted + rng.randint(0, 3), rng), words(thing, wanted - rng.randint(1, 3), rng)
    return f"Use at least {wanted} words.", right, wrong


def exactly(thing: str, wanted: int, rng: random.Random) -> tuple[str, str, str]:
    right, wrong = words(thing, wanted, rng), words(thing, wanted + rng.choice((-2, -1, 1, 2)), rng)
    return f"Use exactly {wanted} words.", right, wrong


def without_commas(thing: str, wanted: int, rng: random.Random) -> tuple[str, str, str]:
    right, wrong = words(thing, wanted, rng), words(thing, wanted, rng)
    return "Do not use any commas.", right, wrong.replace(" ", ", ", 1)


def words(thing: str, num: int, rng: random.Random) -> str:
    """A sentence of so many words."""
    return " ".join(["The", thing, "is", *(rng.choice(FILLER) for _ in range(num - 3))]) + "."


def points(num: int, *, num_items: int, seed: int) -> list[tuple[int, Target]]:
    """After how many lines of the journal what is killed: at random, each target about as often."""
    rng = random.Random(seed + 1)
    targets: list[Target] = [TARGETS[number % len(TARGETS)] for number in range(num)]
    rng.shuffle(targets)
    lines = sorted(rng.randrange(1, num_items - num_items // 10) for _ in range(num))
    return list(zip(lines, targets, strict=True))


class Setting:
    """A server and runs that ask it; use it as `with`. It ends only what it started.

    Args:
        out: folder of the run.
        options: of `tirjudge bench run`.
        model: checkpoint folder of the server; None: the bundled judge.
    """

    def __init__(self, out: Path, *, options: list[str], model: Path | None) -> None:
        self.num_starts = Counter[str]()
        self._out = out
        self._options = options
        self._serve = [*MAIN, "serve", "--port", str(free_port()), "--records", "none", "--files", "none"]
        self._serve += [] if model is None else ["--model", str(model)]
        self._url = f"http://127.0.0.1:{self._serve[self._serve.index('--port') + 1]}"
        self._server: subprocess.Popen[str] | None = None
        self._runner: subprocess.Popen[str] | None = None

    def __enter__(self) -> Setting:
        self.start_server()
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self._runner, self._server):
            if process is not None and process.poll() is None:
                process.terminate()
                process.wait()
            if process is not None and process.stdout is not None:
                process.stdout.close()

    def start_server(self) -> None:
        """Start it, and wait until it answers."""
        self.num_starts["server"] += 1
        if self._server is not None and self._server.stdout is not None:
            self._server.stdout.close()
        self._server = subprocess.Popen(self._serve, stdout=subprocess.PIPE, text=True)
        assert self._server.stdout is not None
        if not self._server.stdout.readline():
            raise SystemExit(f"tirjudge serve ended with status {self._server.wait()}")

    def start_runner(self) -> None:
        self.num_starts["runner"] += 1
        command = [*MAIN, "bench", "run", BENCHMARK, "--out", str(self._out), "--url", self._url, *self._options]
        with (self._out.parent / f"{self._out.name}.log").open("a") as log:
            self._runner = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, text=True)

    def run_to_the_end(self) -> float:
        """Run until nothing is missing; gives the seconds. What we failed at is tried again by the same command."""
        started = monotonic()
        for _ in range(5):
            if self._runner is None or self._runner.poll() is not None:
                self.start_runner()
            assert self._runner is not None
            if self._runner.wait(timeout=20 * PATIENCE_S) == 0:
                return monotonic() - started
        raise SystemExit((self._out.parent / f"{self._out.name}.log").read_text())

    def run_with_kills(self, kills: list[tuple[int, Target]]) -> tuple[list[Target], float]:
        """The same with kills; gives what was killed, in order."""
        started = monotonic()
        self.start_runner()
        for lines, target in kills:
            self._wait_for(lines)
            self._kill(target)
        self.run_to_the_end()
        return [target for _, target in kills], monotonic() - started

    def _wait_for(self, lines: int) -> None:
        """Until the journal has so many lines; a run that ended before, because something failed, is started again."""
        waited_since = monotonic()
        while num_lines(self._out / JOURNAL) < lines:
            assert self._runner is not None
            if self._runner.poll() is not None:
                self.start_runner()
            if monotonic() - waited_since > PATIENCE_S:
                raise SystemExit(f"no {lines} lines within {PATIENCE_S:g} s")
            sleep(LOOK_S)

    def _kill(self, target: Target) -> None:
        assert self._runner is not None
        assert self._server is not None
        if target == "sandbox":
            for pid in children_of(self._server.pid):
                os.kill(pid, signal.SIGKILL)
        elif target == "server":
            self._server.kill()
            self._server.wait()
            self.start_server()
        else:
            self._runner.kill()
            self._runner.wait()
            self.start_runner()


def comparison(one: BenchmarkRun, other: BenchmarkRun, *, num_lines: int) -> dict[str, Any]:
    """What differs. Probabilities are floats: their last digits depend on what happened to share a batch."""
    first, second = ({judged.outline.id: judged for judged in run.judged} for run in (one, other))
    shared = first.keys() & second.keys()
    decided = [id for id in shared if decisions(first[id]) != decisions(second[id])]
    written = [id for id in shared if texts(first[id]) != texts(second[id])]
    gaps = [gap for id in shared for gap in probability_gaps(first[id], second[id])]
    num_keys = len({asked.key for planned in other.planned for asked in planned.asked})
    return {
        "num_judged": {"undisturbed": len(first), "disturbed": len(second)},
        "num_decisions_that_differ": len(decided),
        "num_items_whose_text_differs": len(written),
        "largest_gap_of_a_probability": max(gaps, default=None),
        "num_questions_on_record_twice": num_lines - num_keys,
        "identical": not decided
        and not written
        and num_lines == num_keys
        and len(first) == len(second) == len(one.outlines) == len(other.outlines),
    }


def decisions(judged: JudgedExample) -> list[tuple[Any, ...]]:
    return [(each.shown, each.best, each.tied, each.score, each.forced) for each in judged.decisions]


def texts(judged: JudgedExample) -> list[Any]:
    """All that the model wrote and was shown of its programs' output."""
    rollouts = [rollout for judgment in judged.judgments for rollout in judgment.rollouts]
    return [(turn.text, turn.output, turn.outcome) for rollout in rollouts for turn in rollout.turns]


def probability_gaps(one: JudgedExample, other: JudgedExample) -> Iterator[float]:
    for first, second in zip(one.decisions, other.decisions, strict=True):
        for p, q in zip(first.probabilities or (), second.probabilities or (), strict=True):
            yield abs(p - q)


def num_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def children_of(pid: int) -> list[int]:
    """The processes that one started itself; of a server those are the fork-servers of its sandbox."""
    return [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]


def free_port() -> int:
    """One that a server can be started at, and started anew."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    typer.run(main)
