"""Train experimental checkpoints of the bundled kind whose programs query evidence, and measure them.

    tirjudge train bundled --generation 1 --out runs/first
    python -m benchmarks.evidence_checkpoint runs/first --out benchmarks/results/evidence_checkpoint.json

A judge of the first generation is trained further on tasks of evidence: questions that tables, graphs and documents decide.
The prompt has the lines of the functions. A tenth of the examples has no functions and no evidence, and a random verdict.
All checkpoints share two stages, with the seeds 0 and 1: the first trains the choice of the lookup alone, the second whole
programs. Each has a third stage with its own seed, from 2 on. So the seeds show the variation of the third stage and of the
items, and not that of the shared stages. The judge is measured on ontologies that training never sees, with the evidence
and without it. The checkpoints stay in `runs/evidence-checkpoint-SEED`; they are not the bundled one.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.reporting import Out, report
from tirjudge.concurrency import map_concurrently
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.judge import Judge
from tirjudge.profile import load_profile
from tirjudge.statistics import wilson_interval
from tirjudge.tools.functions import chosen_functions
from tirjudge.tools.python import PythonTool
from tirjudge.types import JudgeRequest, Mode
from tirjudge_evidence.functions import EvidenceSettings, functions_of, open_stores
from tirjudge_evidence.tasks.generating import FUNCTIONS, KINDS, EvidenceTask, draw_tasks
from tirjudge_sandbox import SandboxPool
from tirjudge_training.bundled.build import train_bundled
from tirjudge_training.bundled.sft import BundledRecipe, StepReport
from tirjudge_training.checkpoints import weights_sha256
from tirjudge_training.synthetic.examples import Mixture
from tirjudge_training.validation import names_best

NUM_RESAMPLES = 10_000
"""Number of bootstrap resamples of the items for the interval of a difference."""


MORE_VALUES = (*KINDS, "value", "value")
"""Kinds of questions of the last stage. Sources conflict in most questions for values, and each conflict has a lookup of its
own, so these lookups are rare otherwise."""


async def function_lines() -> tuple[str, ...]:
    """Return the lines that prompts present."""
    async with open_stores(EvidenceSettings()) as stores:
        return tuple(each.line for each in chosen_functions(functions_of(stores), names=FUNCTIONS))


def recipe_of(
    num_steps: int,
    *,
    seed: int,
    functions: Sequence[str],
    parent: Path,
    plan_alone: float,
    whole: float,
    kinds: tuple[str, ...] = KINDS,
) -> BundledRecipe:
    """Return the recipe of a stage.

    Args:
        num_steps: training steps.
        seed: seed of data and order.
        functions: lines that prompts present.
        parent: checkpoint to start from.
        plan_alone, whole: as in `BundledRecipe`.
        kinds: kinds of questions.
    """
    base = BundledRecipe()
    return replace(
        base,
        mixture=Mixture(evidence=1.0, numeric=0.0, conduct=0.0, toolless=0.0, ties=0.0, evidence_kinds=kinds),
        functions=tuple(functions), num_steps=num_steps, seed=seed, parent=str(parent), mode_shares=(0.15, 0.85, 0.0),
        matrix_lr=0.3 * base.matrix_lr, other_lr=0.3 * base.other_lr, warmup_steps=15, decay_share=0.3,
        whole=whole, plan_alone=plan_alone, examples_per_step=32, examples_per_shard=1024, batch_tokens=4096, most_shared=640,
    )  # fmt: skip


def request_of(task: EvidenceTask, *, with_evidence: bool) -> JudgeRequest:
    """Return the request for a task. Without evidence, it names no function and has no store."""
    return JudgeRequest.model_validate(
        {
            "mode": Mode.PAIRWISE,
            "prompt": task.question,
            "responses": list(task.responses),
            "functions": list(FUNCTIONS) if with_evidence else [],
            "evidence": list(task.stores) if with_evidence else None,
        }
    )


async def measure(checkpoint: Path, *, num_items: int, seed: int) -> list[dict[str, Any]]:
    """Judge held-out tasks with and without evidence, with the embedded engine, a real sandbox and real stores."""
    tasks = list(islice(draw_tasks(seed=f"measure-{seed}", held_out=True), num_items))
    engine = EmbeddedEngine.load(checkpoint)
    try:
        async with AsyncExitStack() as stack:
            pool = await stack.enter_async_context(SandboxPool())
            stores = await stack.enter_async_context(open_stores(EvidenceSettings()))
            tools = [PythonTool(pool, functions_of(stores))]
            judge = Judge(engine=engine, tools=tools, profile=load_profile(checkpoint))
            given, right_given = await _measured(judge, tasks, with_evidence=True)
            without, right_without = await _measured(judge, tasks, with_evidence=False)
    finally:
        engine.close()
    without["gain"] = _gain(right_given, right_without)
    return [given, without]


async def _measured(
    judge: Judge, tasks: Sequence[EvidenceTask], *, with_evidence: bool
) -> tuple[dict[str, Any], list[bool]]:
    requests = [request_of(task, with_evidence=with_evidence) for task in tasks]
    judgments = await map_concurrently((judge.judge(request) for request in requests), num_at_once=8)
    name = f"held-out, pairwise, {'with' if with_evidence else 'without'} evidence"
    print(f"{name} done", file=sys.stderr)
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
        "set": name,
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


def train(recipe: BundledRecipe, *, out: Path) -> dict[str, Any]:
    """Train one checkpoint, unless the folder has the checkpoint of this recipe. Return the record of the stage."""

    def on_step(step: StepReport) -> None:
        if step.step % 10 == 0:
            print(f"{out.name} step {step.step} loss {step.loss:.4f} ({step.elapsed_s:.0f} s)", file=sys.stderr)

    if not (out / "training.json").exists() or last_stage(out)["recipe"] != stage_recipe(recipe):
        train_bundled(recipe, out=out, on_step=on_step)
    stage = last_stage(out)["trained"]
    return {
        "seed": recipe.seed,
        "steps": recipe.num_steps,
        "examples": stage["num_examples"],
        "tokens": stage["num_tokens"],
        "train_s": round(stage["elapsed_s"], 1),
        "last_loss": stage["losses"][-1],
    }


def last_stage(checkpoint: Path) -> dict[str, Any]:
    """Return the record of the last training stage of a checkpoint."""
    return json.loads((checkpoint / "training.json").read_text(encoding="utf-8"))["stages"][-1]


def stage_recipe(recipe: BundledRecipe) -> dict[str, Any]:
    """Return a recipe as a checkpoint records it."""
    assert recipe.parent is not None
    return json.loads(json.dumps(asdict(replace(recipe, parent=weights_sha256(Path(recipe.parent))))))


def measure_once(checkpoint: Path, *, num_items: int, seed: int) -> list[dict[str, Any]]:
    """Measure a checkpoint, unless its folder has the result."""
    file = checkpoint / f"evidence-{seed}-{num_items}.json"
    if not file.exists():
        measured = asyncio.run(measure(checkpoint, num_items=num_items, seed=seed))
        file.write_text(json.dumps(measured), encoding="utf-8")
    return json.loads(file.read_text(encoding="utf-8"))


def main(
    parent: Annotated[Path, typer.Argument(help="Checkpoint of the first generation.")],
    plan_steps: Annotated[int, typer.Option(help="Training steps of the shared stage on the plans alone.")] = 150,
    common_steps: Annotated[int, typer.Option(help="Training steps of the shared stage on whole programs.")] = 130,
    steps: Annotated[int, typer.Option(help="Training steps of each checkpoint's own stage.")] = 100,
    items: Annotated[int, typer.Option(help="Items per set and seed of data.")] = 200,
    workers: Annotated[int, typer.Option(help="Training processes, each on one core.")] = 1,
    seeds: Annotated[int, typer.Option(help="Number of training seeds. Each has its own items.")] = 3,
    checkpoint: Annotated[Path, typer.Option(help="Folder of the checkpoints, to which -SEED is added.")] = Path(
        "runs/evidence-checkpoint"
    ),
    out: Out = None,
) -> None:
    """Train, measure, and print the result as JSON. Checkpoints and results in the folders are used again."""
    functions = asyncio.run(function_lines())

    def trained_stage(seed: int, num_steps: int, *, parent: Path, **shares: Any) -> dict[str, Any]:
        recipe = recipe_of(num_steps, seed=seed, functions=functions, parent=parent, **shares)
        return train(replace(recipe, num_workers=workers), out=folder_of(seed))

    def folder_of(seed: int) -> Path:
        return checkpoint.with_name(f"{checkpoint.name}-{seed}")

    trained = [
        trained_stage(0, plan_steps, parent=parent, plan_alone=1.0, whole=0.0),
        trained_stage(1, common_steps, parent=folder_of(0), plan_alone=0.6, whole=0.2),
    ]
    measured: list[dict[str, Any]] = []
    for seed in range(2, seeds + 2):
        trained.append(trained_stage(seed, steps, parent=folder_of(1), plan_alone=0.6, whole=0.2, kinds=MORE_VALUES))
        results = measure_once(folder_of(seed), num_items=items, seed=seed)
        measured += [one | {"seed": seed} for one in results]
    report({"trained": trained, "checkpoints": measured}, out)


if __name__ == "__main__":
    typer.run(main)
