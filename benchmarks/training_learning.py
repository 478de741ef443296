"""Run the experiments of docs/training-rl.md, each of which is one `tirjudge train` command for a tiny judge.

    python benchmarks/training_learning.py RUNS --out benchmarks/results/training_learning.json

All experiments start from the weak judge of the recipe `tiny-cpu-zero`, which is made once. RUNS contains a folder per run;
finished runs are not repeated. Two runs execute concurrently, with one thread each.

    zero        RL, then two rounds of sampling, SFT and RL (Figure 5 in miniature)
    rl          RL only, with more steps: the baseline of the other experiments that use only RL
    distill     SFT on a teacher's trajectories, then RL; the teacher is the best judge of `zero`
    text        RL without tools on the same data (Figure 4a)
    single      RL on one task, evaluated on all tasks like the other experiments (Figure 3)
    paper, robust   one round of sampling and SFT from the first RL checkpoint of `zero`, with the rejection rule `paper`
                    or `robust`, without the gate
    t3rl, majority  RL on pseudo-labels: verified votes weighted 4, and plain majority
    artist      RL with ARTIST's additive reward
    unmasked    RL with the programs' outputs in the loss, as if the model had written them
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from reporting import TIRJUDGE, Out, report

RECIPE = "tiny-cpu-zero"


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One run of `tirjudge train`."""

    name: str
    command: str
    """Command of `tirjudge train`."""
    sets: tuple[str, ...] = ()
    """Overrides of recipe keys. {zero} is replaced by the folder of the experiment `zero` with the same seed."""
    after: str | None = None
    """Name of the experiment whose checkpoint this experiment needs. None: no such experiment."""


LONGER = ("rl.steps=10", "rl.validate_every=10", "rl.save_every=10")
"""Overrides for experiments without rounds of sampling and SFT: more RL steps."""

ONE_ROUND = ("start.checkpoint={zero}/rl-0/checkpoint", "rl.steps=1", "stages.rounds=1", "gate.mode=off")

EXPERIMENTS = (
    Experiment(name="zero", command="zero"),
    Experiment(name="rl", command="rl", sets=LONGER),
    Experiment(name="text", command="rl", sets=(*LONGER, "tools=false")),
    Experiment(name="single", command="rl", sets=(*LONGER, "data.tasks=[instructions]", "gate.mode=off")),
    Experiment(name="artist", command="rl", sets=(*LONGER, "reward.kind=artist")),
    Experiment(name="unmasked", command="rl", sets=(*LONGER, "rl.mask_observations=false")),
    Experiment(name="t3rl", command="ttrl", sets=(*LONGER, "voting.weight=4.0")),
    Experiment(name="majority", command="ttrl", sets=(*LONGER, "voting.weight=1.0", "voting.min_verified_mass=0.0")),
    Experiment(
        name="distill", command="distill", sets=("teacher.checkpoint={zero}/best", "sampling.limit=400"), after="zero"
    ),
    Experiment(name="paper", command="zero", sets=(*ONE_ROUND, "sampling.preset=paper"), after="zero"),
    Experiment(name="robust", command="zero", sets=(*ONE_ROUND, "sampling.preset=robust"), after="zero"),
)


def main(
    runs: Annotated[Path, typer.Argument(help="Folder of the runs.")],
    seed: Annotated[list[int], typer.Option(help="Seed: each experiment is run once per seed. Repeatable.")] = [1],  # noqa: B006
    only: Annotated[list[str], typer.Option(help="Name of an experiment. Repeatable. Default: all.")] = [],  # noqa: B006
    sets: Annotated[list[str], typer.Option("--set", help="Override of a recipe key, for all runs. Repeatable.")] = [],  # noqa: B006
    jobs: Annotated[int, typer.Option(help="Runs executed concurrently.")] = 2,
    out: Out = None,
) -> None:
    """Train, and print the result as JSON."""
    train("sample", out=runs / "start", sets=(*sets, "sampling.limit=1"))  # creates the weak judge
    start = runs / "start" / "start" / "checkpoint"
    wanted = [one for one in EXPERIMENTS if not only or one.name in only]
    ended = {(one.name, number): threading.Event() for one in wanted for number in seed}

    def work(job: tuple[Experiment, int]) -> dict[str, Any]:
        experiment, number = job
        if experiment.after is not None and (experiment.after, number) in ended:
            ended[experiment.after, number].wait()
        try:
            return run(experiment, seed=number, runs=runs, start=start, sets=sets)
        finally:
            ended[experiment.name, number].set()

    with ThreadPoolExecutor(jobs) as pool:
        # Experiments that others depend on come first, so that no worker waits for a run that has not started.
        results = list(pool.map(work, [(one, number) for number in seed for one in wanted]))
    report({"runs": results}, out)


def run(experiment: Experiment, *, seed: int, runs: Path, start: Path, sets: Sequence[str]) -> dict[str, Any]:
    """Run one experiment, and return the validation results of its stages."""
    filled = [one.replace("{zero}", str(runs / f"zero-{seed}")) for one in experiment.sets]
    common = [one for one in sets if not one.startswith("start.")]  # these affect only the weak judge
    sets = ("start.weak=null", f"start.checkpoint={start}", f"seed={seed}", *common, *filled)
    state = train(experiment.command, out=runs / f"{experiment.name}-{seed}", sets=sets)
    stages = [_stage(stage) for stage in state["stages"]]
    return {"name": experiment.name, "seed": seed, "best": state["best"], "stages": stages}


def _stage(stage: dict[str, Any]) -> dict[str, Any]:
    found = stage["validation"] or {}
    kept = ("accuracy", "low", "high", "num", "tool_use", "failed_programs", "no_verdict")
    return {
        **{name: stage[name] for name in ("name", "accepted", "counts")},
        **{name: found.get(name) for name in kept},
        "cells": {name: [cell["num_right"], cell["num"]] for name, cell in (found.get("cells") or {}).items()},
    }


def train(command: str, *, out: Path, sets: Sequence[str]) -> dict[str, Any]:
    """Run one `tirjudge train` command in another process, and return the state of its run."""
    arguments = [*TIRJUDGE, "train", command, RECIPE, "--out", str(out), "--json"]
    for one in sets:
        arguments += ["--set", one]
    out.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{out}.log").open("ab") as log:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(arguments, check=True, stdout=subprocess.PIPE, stderr=log, env=environment)
    return json.loads(done.stdout)


if __name__ == "__main__":
    typer.run(main)
