"""`tirjudge train`: makes checkpoints."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

app = typer.Typer(no_args_is_help=True, help="Train judges.")

BUNDLED = Path(__file__).parents[2] / "judge" / "tirjudge" / "checkpoints" / "tiny"

# Read by OpenMP, oneDNN and glibc when torch is loaded: idle threads shall not spin, what was compiled for a shape shall be
# kept, and freed memory shall stay with the process instead of being mapped anew in every step.
_ENVIRONMENT = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "16384",
    "MALLOC_MMAP_THRESHOLD_": str(2**33),
    "MALLOC_TRIM_THRESHOLD_": str(2**33),
    "MALLOC_TOP_PAD_": str(2**28),
}


@app.callback()
def train() -> None:
    """Train judges."""


@app.command()
def bundled(
    out: Annotated[Path, typer.Option(help="Folder of the checkpoint; replaced when training has ended.")] = BUNDLED,
    seed: Annotated[int, typer.Option(help="Decides data, order and weights.")] = 1,
    steps: Annotated[
        int | None, typer.Option(help="Optimizer steps of the first stage, five times those of the second.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes that share the work, one core each. 1 uses a GPU.")
    ] = None,
    parent: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Only the second, gentler stage, from this checkpoint; default: both, from nothing."
        ),
    ] = None,
    items: Annotated[int, typer.Option(help="Held-out items to measure on in each set; 0 measures nothing.")] = 1000,
    json_output: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Train the bundled judge from nothing, measure it, and write its card."""
    if any(os.environ.get(name) != value for name, value in _ENVIRONMENT.items()):
        os.environ.update(_ENVIRONMENT)
        os.execv(sys.executable, sys.orig_argv)
    from tirjudge_training.bundled.build import train_bundled
    from tirjudge_training.bundled.sft import Recipe, StepReport, going_on

    recipe = replace(Recipe(), seed=seed)
    recipe = recipe if steps is None else replace(recipe, num_steps=steps)
    recipe = recipe if workers is None else replace(recipe, num_workers=workers)
    stages = [recipe, going_on(recipe, parent=out)] if parent is None else [going_on(recipe, parent=parent)]
    with _progress() as progress:
        for number, stage in enumerate(stages, start=1):
            name = f"stage {number} of {len(stages)}"
            task = progress.add_task(name, total=stage.num_steps)

            def on_step(
                report: StepReport, name: str = name, task: TaskID = task, total: int = stage.num_steps
            ) -> None:
                progress.update(task, advance=1, description=f"{name}, loss {report.loss:.4f}")
                if not progress.console.is_terminal and report.step % 50 == 0:
                    line = f"{name}: step {report.step} of {total}, loss {report.loss:.4f}, {report.elapsed_s:.0f} s"
                    progress.console.print(line)

            train_bundled(stage, out=out, on_step=on_step)
    if items:
        evaluate(checkpoint=out, items=items, json_output=json_output)


@app.command()
def evaluate(
    checkpoint: Annotated[Path, typer.Argument(help="Folder of a checkpoint.")] = BUNDLED,
    items: Annotated[int, typer.Option(help="Held-out items in each set.")] = 1000,
    json_output: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Measure a checkpoint on held-out synthetic items and write its card."""
    from tirjudge_training.bundled.build import evaluate_and_write_card
    from tirjudge_training.bundled.evaluate import TEST_SETS

    with _progress() as progress:
        task = progress.add_task("measuring", total=items * len(TEST_SETS))
        scores = evaluate_and_write_card(
            checkpoint, num_items=items, on_item=lambda name: progress.update(task, advance=1, description=name)
        )
    if json_output:
        print(json.dumps([asdict(score) for score in scores], indent=1))
        return
    console = Console()
    for score in scores:
        console.print(f"{score.name:46} {score.accuracy:6.1%}   failed programs {score.code_error_rate:.2%}")
    console.print(f"card: {checkpoint / 'README.md'}")


def _progress() -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True))
