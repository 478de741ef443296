"""Whether a run of `tirjudge bench run` survives `kill -9`: of itself, of the server that it asks, and of that one's sandbox.

    python benchmarks/harness_kill.py --out benchmarks/results/harness_kill.json

Judges generated pairs twice with the bundled judge, through `tirjudge serve` without records, which could answer in its
place: once undisturbed, once with kills at random points of the journal, each of a random target; what is dead is started
again by the same command. At the end both runs must have the same decisions, item for item, and no question may be on
record twice. Exits 1 if not.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Annotated, Any, Literal

import psutil
import typer
from reporting import TIRJUDGE, Out, report

from tirjudge.types import Mode
from tirjudge_harness.answers import JOURNAL
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.run import BenchmarkRun, load_run
from tirjudge_training.synthetic.examples import Mixture
from tirjudge_training.synthetic.items import generate_items
from tirjudge_web.process import bind

LOOK_S = 0.002
"""Between two looks at the journal."""
PATIENCE_S = 300.0
"""Longest wait for the next line of the journal."""

Target = Literal["runner", "server", "sandbox"]
TARGETS: tuple[Target, ...] = ("runner", "server", "sandbox")


def main(
    items: Annotated[int, typer.Option(help="Pairs to judge.")] = 500,
    kills: Annotated[int, typer.Option(help="Processes to kill.")] = 20,
    seed: Annotated[int, typer.Option(help="Of the pairs, the points and the targets.")] = 0,
    concurrency: Annotated[int, typer.Option(help="As of `tirjudge bench run`.")] = 16,
    model: Annotated[Path | None, typer.Option(help="Checkpoint folder; default: the bundled judge.")] = None,
    out: Out = None,
) -> None:
    """Run, kill, compare, and print the result as JSON."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "natural.json"
        data.write_text(json.dumps(rows(items, seed=seed)))
        bench = ("--data", str(data), "--part", "natural", "--seed", str(seed), "--concurrency", str(concurrency))
        serve = () if model is None else ("--model", str(model))
        with Setting(folder / "undisturbed", bench=bench, serve=serve) as setting:
            undisturbed_s = setting.run_with_kills([])
        planned = points(kills, num_items=items, seed=seed)
        with Setting(folder / "disturbed", bench=bench, serve=serve) as setting:
            disturbed_s = setting.run_with_kills(planned)
        result = {
            "num_items": items,
            "kills": dict(Counter(target for _, target in planned)),
            "killed": [target for _, target in planned],
            "undisturbed_s": round(undisturbed_s, 1),
            "disturbed_s": round(disturbed_s, 1),
            "num_starts_of_the_runner": setting.num_starts["runner"],
            "num_starts_of_the_server": setting.num_starts["server"],
            "failures_on_record": num_lines(folder / "disturbed" / "failures.jsonl"),
            **comparison(
                load_run(folder / "undisturbed"),
                load_run(folder / "disturbed"),
                num_lines=num_lines(folder / "disturbed" / JOURNAL),
            ),
        }
    report(result, out)
    if not result["identical"]:
        raise typer.Exit(1)


def rows(num: int, *, seed: int) -> list[dict[str, Any]]:
    """Pairs of which one follows an instruction and the other does not, in the columns of LLMBar; no two alike."""
    items = generate_items(Mode.PAIRWISE, count=num, seed=seed, mixture=Mixture(conduct=0.0), held_out=True)
    return [
        {
            "input": f"Task {number}. {item.prompt}",
            "output_1": item.responses[0],
            "output_2": item.responses[1],
            "label": 1 + (item.best or 0),
        }
        for number, item in enumerate(items)
    ]


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
        bench: options of `tirjudge bench run`.
        serve: options of the server.
    """

    def __init__(self, out: Path, *, bench: Iterable[str], serve: Iterable[str]) -> None:
        with bind("127.0.0.1", port=0) as probe:  # a port at which a server can be started anew
            port = str(probe.getsockname()[1])
        self.num_starts = Counter[str]()
        self._journal = out / JOURNAL
        self._log = out.with_suffix(".log")
        self._serve = [*TIRJUDGE, "serve", "--port", port, "--records", "none", "--files", "none", *serve]
        run = ("bench", "run", "llmbar", "--out", str(out), "--url", f"http://127.0.0.1:{port}", "--json")
        self._run = [*TIRJUDGE, *run, *bench]

    def __enter__(self) -> Setting:
        self._start_server()
        self._start_runner()
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self._runner, self._server):
            with process:
                process.terminate()

    def _start_server(self) -> None:
        """Start it, and wait until it answers."""
        self.num_starts["server"] += 1
        self._server = subprocess.Popen(self._serve, stdout=subprocess.PIPE, text=True)
        assert self._server.stdout is not None
        if not self._server.stdout.readline():
            raise SystemExit(f"tirjudge serve ended with status {self._server.wait()}")

    def _start_runner(self) -> None:
        self.num_starts["runner"] += 1
        with self._log.open("a") as log:
            self._runner = subprocess.Popen(self._run, stdout=subprocess.DEVNULL, stderr=log, text=True)

    def run_with_kills(self, kills: Iterable[tuple[int, Target]]) -> float:
        """Run until nothing is missing; gives the seconds. What failed is tried again by the same command."""
        began = monotonic()
        for lines, target in kills:
            self._wait_for(lines)
            self._kill(target)
        for _ in range(5):
            if self._runner.wait(timeout=20 * PATIENCE_S) == 0:
                return monotonic() - began
            self._start_runner()
        raise SystemExit(self._log.read_text())

    def _wait_for(self, lines: int) -> None:
        """Until the journal has so many lines; a run that ended before, because something failed, is started again."""
        began = monotonic()
        while num_lines(self._journal) < lines:
            if self._runner.poll() is not None:
                self._start_runner()
            if monotonic() - began > PATIENCE_S:
                raise SystemExit(f"no {lines} lines within {PATIENCE_S:g} s")
            sleep(LOOK_S)

    def _kill(self, target: Target) -> None:
        if target == "sandbox":  # the fork-servers are the processes that the server started itself
            for child in psutil.Process(self._server.pid).children():
                os.kill(child.pid, signal.SIGKILL)
            return
        with self._server if target == "server" else self._runner as process:
            process.kill()
        if target == "server":
            self._start_server()
        else:
            self._start_runner()


def comparison(one: BenchmarkRun, other: BenchmarkRun, *, num_lines: int) -> dict[str, Any]:
    """What differs. Probabilities are floats: their last digits depend on what happened to share a batch."""
    first, second = ({judged.outline.id: judged for judged in run.judged} for run in (one, other))
    pairs = [(first[id], second[id]) for id in first.keys() & second.keys()]
    decided = sum(decisions(a) != decisions(b) for a, b in pairs)
    written = sum(texts(a) != texts(b) for a, b in pairs)
    gaps = [
        abs(p - q)
        for a, b in pairs
        for mine, theirs in zip(a.decisions, b.decisions, strict=True)
        for p, q in zip(mine.probabilities or (), theirs.probabilities or (), strict=True)
    ]
    num_twice = num_lines - len({asked.key for planned in other.planned for asked in planned.asked})
    is_whole = len(pairs) == len(first) == len(second) == len(one.outlines) == len(other.outlines)
    return {
        "num_judged": {"undisturbed": len(first), "disturbed": len(second)},
        "num_decisions_that_differ": decided,
        "num_items_whose_text_differs": written,
        "largest_gap_of_a_probability": max(gaps, default=None),
        "num_questions_on_record_twice": num_twice,
        "identical": is_whole and not (decided or written or num_twice),
    }


def decisions(judged: JudgedExample) -> list[tuple[Any, ...]]:
    return [(each.shown, each.best, each.tied, each.score, each.forced) for each in judged.decisions]


def texts(judged: JudgedExample) -> list[Any]:
    """All that the model wrote and was shown of its programs' output."""
    rollouts = [rollout for judgment in judged.judgments for rollout in judgment.rollouts]
    return [(turn.text, turn.output, turn.outcome) for rollout in rollouts for turn in rollout.turns]


def num_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


if __name__ == "__main__":
    typer.run(main)
