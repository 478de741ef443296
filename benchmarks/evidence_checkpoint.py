"""Train experimental checkpoints of the bundled kind whose programs query evidence, and measure them.

    python -m benchmarks.evidence_checkpoint --out benchmarks/results/evidence_checkpoint.json

The bundled judge is trained for one more stage on tasks of evidence: questions that tables, graphs and documents decide, with
the lines of the functions in the prompt. A tenth of the examples has no functions and no evidence, and a random verdict. The
judge is measured on an ontology that training never sees, with the evidence and without it. The checkpoints stay in
`runs/evidence-checkpoint-SEED`; they are not the bundled one.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.reporting import Out, report
from tirjudge.concurrency import map_concurrently
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.judge import Judge
from tirjudge.model import bundled_checkpoint
from tirjudge.profile import load_profile
from tirjudge.statistics import wilson_interval
from tirjudge.tools.functions import chosen_functions
from tirjudge.tools.python import PythonTool
from tirjudge.types import JudgeRequest, Mode
from tirjudge_evidence.functions import EvidenceSettings, functions_of, open_stores
from tirjudge_evidence.tasks.generating import FUNCTIONS, EvidenceTask, draw_tasks
from tirjudge_sandbox import SandboxPool
from tirjudge_training.bundled.build import train_bundled
from tirjudge_training.bundled.sft import BundledRecipe, StepReport, second_stage
from tirjudge_training.synthetic.examples import Mixture
from tirjudge_training.validation import names_best

NUM_RESAMPLES = 10_000
"""Number of bootstrap resamples of the items for the interval of a difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceSet:
    """One set of items."""

    name: str
    mode: Mode
    held_out: bool = True
    with_evidence: bool = True


SETS = (
    EvidenceSet(name="held-out, pairwise, with evidence", mode=Mode.PAIRWISE),
    EvidenceSet(name="held-out, pairwise, without evidence", mode=Mode.PAIRWISE, with_evidence=False),
    EvidenceSet(name="held-out, pointwise pairs, with evidence", mode=Mode.POINTWISE),
    EvidenceSet(name="held-out, pointwise pairs, without evidence", mode=Mode.POINTWISE, with_evidence=False),
    EvidenceSet(name="training ontologies, pairwise, with evidence", mode=Mode.PAIRWISE, held_out=False),
)
"""The sets. A set without evidence follows the same set with evidence."""


async def function_lines() -> tuple[str, ...]:
    """Return the lines that prompts present."""
    async with open_stores(EvidenceSettings()) as stores:
        return tuple(each.line for each in chosen_functions(functions_of(stores), names=FUNCTIONS))


def recipe_of(num_steps: int, *, seed: int, functions: Sequence[str]) -> BundledRecipe:
    """Return the recipe of the experimental stage."""
    mixture = Mixture(evidence=1.0, numeric=0.0, conduct=0.0, toolless=0.0, ties=0.0)
    base = BundledRecipe(
        mixture=mixture, functions=tuple(functions), num_steps=5 * num_steps, mode_shares=(0.35, 0.65, 0.0),
        examples_per_step=32, examples_per_shard=1024, batch_tokens=6144, most_shared=640,
    )  # fmt: skip
    staged = second_stage(base, parent=bundled_checkpoint())
    return replace(staged, seed=seed, matrix_lr=0.6 * base.matrix_lr, other_lr=0.6 * base.other_lr, whole=0.25)


def request_of(task: EvidenceTask, test_set: EvidenceSet) -> JudgeRequest:
    """Return the request for a task. Without evidence, it names no function and has no store."""
    return JudgeRequest.model_validate(
        {
            "mode": test_set.mode,
            "prompt": task.question,
            "responses": list(task.responses),
            "functions": list(FUNCTIONS) if test_set.with_evidence else [],
            "evidence": list(task.stores) if test_set.with_evidence else None,
        }
    )


async def measure(
    checkpoint: Path, *, num_items: int, seed: int, sets: Sequence[EvidenceSet] = SETS
) -> list[dict[str, Any]]:
    """Judge the sets with the embedded engine, a real sandbox and real stores."""
    engine = EmbeddedEngine.load(checkpoint)
    found: list[dict[str, Any]] = []
    credits: dict[str, list[bool]] = {}
    try:
        async with AsyncExitStack() as stack:
            pool = await stack.enter_async_context(SandboxPool())
            stores = await stack.enter_async_context(open_stores(EvidenceSettings()))
            tools = [PythonTool(pool, functions_of(stores))]
            judge = Judge(engine=engine, tools=tools, profile=load_profile(checkpoint))
            for test_set in sets:
                tasks = list(islice(draw_tasks(seed=f"measure-{seed}", held_out=test_set.held_out), num_items))
                measured, credits[test_set.name] = await _measured(judge, test_set, tasks)
                given = credits.get(test_set.name.replace("without evidence", "with evidence"))
                if not test_set.with_evidence and given is not None:
                    measured["gain"] = _gain(given, credits[test_set.name])
                found.append(measured | {"data_seed": seed})
    finally:
        engine.close()
    return found


async def _measured(
    judge: Judge, test_set: EvidenceSet, tasks: Sequence[EvidenceTask]
) -> tuple[dict[str, Any], list[bool]]:
    requests = [request_of(task, test_set) for task in tasks]
    judgments = await map_concurrently((judge.judge(request) for request in requests), num_at_once=8)
    print(f"{test_set.name} done", file=sys.stderr)
    right = [names_best(judgment, task.label) for judgment, task in zip(judgments, tasks, strict=True)]
    groups = {
        "kind": [task.kind for task in tasks],
        "hops": [str(task.hops) for task in tasks],
        "status": [task.status for task in tasks],
        "conflict": [task.conflict for task in tasks],
        "instruction": ["hidden" if task.has_instruction else "none" for task in tasks],
    }
    low, high = wilson_interval(sum(right), num_trials=len(tasks))
    return {
        "set": test_set.name,
        "items": len(tasks),
        "right": sum(right),
        "accuracy": round(sum(right) / len(tasks), 4),
        "interval": [round(low, 4), round(high, 4)],
        "judgments_with_calls": sum(judgment.usage.function_calls > 0 for judgment in judgments),
        "by": {name: _shares(values, right) for name, values in groups.items()},
    }, right


def _shares(values: Sequence[str], right: Sequence[bool]) -> dict[str, str]:
    """Return `right/items` for each value."""
    counts = Counter(values)
    hits = Counter(value for value, is_right in zip(values, right, strict=True) if is_right)
    return {value: f"{hits[value]}/{counts[value]}" for value in sorted(counts)}


def _gain(given: Sequence[bool], without: Sequence[bool]) -> dict[str, Any]:
    """Return the gain in points with its 95 % interval, from paired resamples of the items."""
    differences = np.array(given, dtype=float) - np.array(without, dtype=float)
    draws = np.random.default_rng(0).integers(len(differences), size=(NUM_RESAMPLES, len(differences)))
    low, high = np.percentile(differences[draws].mean(axis=1), [2.5, 97.5])
    points = (differences.mean(), low, high)
    return dict(zip(("points", "low", "high"), (round(100 * float(each), 1) for each in points), strict=True))


def train(seed: int, *, num_steps: int, workers: int, checkpoint: Path) -> dict[str, Any]:
    """Train one checkpoint."""

    def on_step(step: StepReport) -> None:
        if step.step % 10 == 0:
            print(f"seed {seed} step {step.step} loss {step.loss:.4f} ({step.elapsed_s:.0f} s)", file=sys.stderr)

    recipe = replace(recipe_of(num_steps, seed=seed, functions=asyncio.run(function_lines())), num_workers=workers)
    done = train_bundled(recipe, out=checkpoint, on_step=on_step)
    return {
        "seed": seed,
        "steps": num_steps,
        "examples": done.num_examples,
        "train_s": round(done.elapsed_s, 1),
        "last_losses": done.losses[-5:],
    }


def main(
    steps: Annotated[int, typer.Option(help="Training steps.")] = 80,
    items: Annotated[int, typer.Option(help="Items per set and seed of data.")] = 200,
    workers: Annotated[int, typer.Option(help="Training processes, each on one core.")] = 1,
    seeds: Annotated[int, typer.Option(help="Number of training seeds. Each has its own items.")] = 3,
    checkpoint: Annotated[Path, typer.Option(help="Folder of the checkpoints, to which -SEED is added.")] = Path(
        "runs/evidence-checkpoint"
    ),
    only_measure: Annotated[bool, typer.Option("--only-measure", help="Measure checkpoints trained before.")] = False,
    out: Out = None,
) -> None:
    """Train, measure, and print the result as JSON."""
    started = time.perf_counter()
    trained: list[dict[str, Any]] = []
    measured: list[dict[str, Any]] = []
    for seed in range(1, seeds + 1):
        folder = checkpoint.with_name(f"{checkpoint.name}-{seed}")
        if not only_measure:
            trained.append(train(seed, num_steps=steps, workers=workers, checkpoint=folder))
        measured += [one | {"training_seed": seed} for one in asyncio.run(measure(folder, num_items=items, seed=seed))]
    before = asyncio.run(measure(bundled_checkpoint(), num_items=items, seed=1, sets=SETS[:1]))
    elapsed_s = round(time.perf_counter() - started, 1)
    report({"trained": trained, "checkpoints": measured, "bundled": before, "elapsed_s": elapsed_s}, out)


if __name__ == "__main__":
    typer.run(main)
