"""Kill a benchmark run, its server and the server's sandbox at random points, and check that the result is the same.

    python benchmarks/harness_kill.py --out benchmarks/results/harness_kill.json

Judges generated pairs twice with `tirjudge bench run` and the bundled judge, through a `tirjudge serve` without records:
once undisturbed, and once with `kill -9` of a random target whenever the journal reaches a randomly drawn number of lines.
A killed process is started again by the same command. Both runs must have the same decision for each item, and no request
may be in the journal twice. Otherwise the exit status is 1.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Annotated, Any, Literal

import typer
from reporting import TIRJUDGE, Out, report

from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.run import BenchmarkRun, load_run
from tirjudge_harness.run_store import JOURNAL

BENCHMARK = "llmbar"
"""Benchmark whose file format the generated rows have."""

POLL_S = 0.002
"""Seconds between two reads of the journal."""

TIMEOUT_S = 300.0
"""Maximum seconds until the journal has the next line."""

Target = Literal["runner", "server", "sandbox"]
TARGETS: tuple[Target, ...] = ("runner", "server", "sandbox")

THINGS = ("sea", "forest", "harbour", "market", "garden", "mountain", "library", "station", "desert", "bridge")
FILLER = ("calm", "bright", "old", "quiet", "wide", "cold", "early", "green", "slow", "deep", "near", "tall")


def main(
    items: Annotated[int, typer.Option(help="Pairs to judge.")] = 500,
    kills: Annotated[int, typer.Option(help="Number of kills.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed of the pairs, and of the times and targets of the kills.")] = 0,
    concurrency: Annotated[int, typer.Option(help="As for `tirjudge bench run`.")] = 16,
    model: Annotated[Path | None, typer.Option(help="Checkpoint folder. Default: the bundled judge.")] = None,
    out: Out = None,
) -> None:
    """Run, kill, compare, and print the result as JSON."""
    with TemporaryDirectory() as folder:
        result = experiment(
            Path(folder), num_items=items, num_kills=kills, seed=seed, concurrency=concurrency, model=model
        )
    report(result, out, failed=not result["identical"])


def experiment(
    folder: Path, *, num_items: int, num_kills: int, seed: int, concurrency: int, model: Path | None
) -> dict[str, Any]:
    """Execute both runs, and compare them."""
    data = folder / "natural.json"
    data.write_text(json.dumps(rows(num_items, seed=seed)))
    options = ["--data", str(data), "--part", "natural", "--seed", str(seed)]
    # Restarting the server takes longer than the default of --connect-retry-s.
    options += ["--concurrency", str(concurrency), "--connect-retry-s", "300", "--json"]
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
    """Generate pairs of a response that follows an instruction and one that does not. All pairs differ."""
    rng = random.Random(seed)

    def sentence(thing: str, num_words: int) -> str:
        return " ".join(["The", thing, "is", *(rng.choice(FILLER) for _ in range(num_words - 3))]) + "."

    def row(number: int) -> dict[str, Any]:
        thing, num_words = rng.choice(THINGS), rng.randint(6, 12)
        right, wrong, instruction = rng.choice(
            [
                (num_words + rng.randint(0, 3), num_words - rng.randint(1, 3), f"Use at least {num_words} words."),
                (num_words, num_words + rng.choice((-2, -1, 1, 2)), f"Use exactly {num_words} words."),
            ]
        )
        pair = [sentence(thing, right), sentence(thing, wrong)]
        return {
            "input": f"Write sentence {number} about the {thing}. {instruction}",
            "output_1": pair[number % 2 == 0],
            "output_2": pair[number % 2],
            "label": 2 - number % 2,
        }

    return [row(number) for number in range(num)]


def points(num: int, *, num_items: int, seed: int) -> list[tuple[int, Target]]:
    """Draw when to kill which process: (lines in the journal, target). Each target is killed equally often."""
    rng = random.Random(seed + 1)
    targets: list[Target] = [TARGETS[number % len(TARGETS)] for number in range(num)]
    rng.shuffle(targets)
    lines = sorted(rng.randrange(1, num_items - num_items // 10) for _ in range(num))
    return list(zip(lines, targets, strict=True))


class Setting:
    """A server and a benchmark run, as a context manager that terminates the processes it started.

    Args:
        out: folder of the run.
        options: other options of `tirjudge bench run`.
        model: checkpoint folder of the server. None: the bundled judge.

    Attributes:
        num_starts: `runner` or `server` -> how often it was started.
    """

    def __init__(self, out: Path, *, options: list[str], model: Path | None) -> None:
        self.num_starts = Counter[str]()
        self._out = out
        self._options = options
        self._serve = [*TIRJUDGE, "serve", "--port", str(free_port()), "--records", "none", "--files", "none"]
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
        """Start the server, and wait until it answers."""
        self.num_starts["server"] += 1
        if self._server is not None and self._server.stdout is not None:
            self._server.stdout.close()
        self._server = subprocess.Popen(self._serve, stdout=subprocess.PIPE, text=True)
        assert self._server.stdout is not None
        if not self._server.stdout.readline():
            raise SystemExit(f"tirjudge serve ended with status {self._server.wait()}")

    def start_runner(self) -> None:
        """Start the benchmark run, or resume it."""
        self.num_starts["runner"] += 1
        command = [*TIRJUDGE, "bench", "run", BENCHMARK, "--out", str(self._out), "--url", self._url, *self._options]
        with (self._out.parent / f"{self._out.name}.log").open("a") as log:
            self._runner = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, text=True)

    def run_to_the_end(self) -> float:
        """Repeat the run until it has no failures, at most five times, and return the elapsed time in seconds."""
        started = monotonic()
        for _ in range(5):
            if self._runner is None or self._runner.poll() is not None:
                self.start_runner()
            assert self._runner is not None
            if self._runner.wait(timeout=20 * TIMEOUT_S) == 0:
                return monotonic() - started
        raise SystemExit((self._out.parent / f"{self._out.name}.log").read_text())

    def run_with_kills(self, kills: list[tuple[int, Target]]) -> tuple[list[Target], float]:
        """Run the benchmark with kills. Return the killed targets in order, and the duration in seconds."""
        started = monotonic()
        self.start_runner()
        for lines, target in kills:
            self._wait_for(lines)
            self._kill(target)
        self.run_to_the_end()
        return [target for _, target in kills], monotonic() - started

    def _wait_for(self, lines: int) -> None:
        """Wait until the journal has `lines` lines. Resume the run if it ends before."""
        waited_since = monotonic()
        while num_lines(self._out / JOURNAL) < lines:
            assert self._runner is not None
            if self._runner.poll() is not None:
                self.start_runner()
            if monotonic() - waited_since > TIMEOUT_S:
                raise SystemExit(f"the journal has fewer than {lines} lines after {TIMEOUT_S:g} s")
            sleep(POLL_S)

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
    """Compare both runs. The last digits of probabilities may differ, because they depend on the batches of the engine."""
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
    """Return the decisions of an item, without probabilities."""
    return [(each.shown, each.best, each.tied, each.score, each.forced) for each in judged.decisions]


def texts(judged: JudgedExample) -> list[Any]:
    """Return the texts of the model and the outputs of its programs."""
    rollouts = [rollout for judgment in judged.judgments for rollout in judgment.rollouts]
    return [(turn.text, turn.output, turn.outcome) for rollout in rollouts for turn in rollout.turns]


def probability_gaps(one: JudgedExample, other: JudgedExample) -> Iterator[float]:
    """Yield the differences of all probabilities of an item."""
    for first, second in zip(one.decisions, other.decisions, strict=True):
        for p, q in zip(first.probabilities or (), second.probabilities or (), strict=True):
            yield abs(p - q)


def num_lines(path: Path) -> int:
    """Return the number of lines of a file; 0 if the file does not exist."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def children_of(pid: int) -> list[int]:
    """Return the child processes. The child processes of a server are the fork servers of its sandbox."""
    return [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]


def free_port() -> int:
    """Return a free port, so that a restarted server has the same URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    typer.run(main)
