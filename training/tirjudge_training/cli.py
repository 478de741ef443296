"""`tirjudge train`: makes checkpoints. What is heavy is imported when a command runs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.metadata import EntryPoint
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from tirjudge.cli import load_command

if TYPE_CHECKING:
    from tirjudge_training.stages import Command

ELSEWHERE = {
    "data": "tirjudge_training.data.cli:app",
    "pairs": "tirjudge_training.pairs.cli:pairs",
    "plot": "tirjudge_training.plots:plot",
    "watch": "tirjudge_training.watch:watch",
}
"""Commands that other files have: name -> what is imported when it is asked for."""


class Commands(TyperGroup):
    """The commands of this file and of others."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *ELSEWHERE]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        return load_command(EntryPoint(name=cmd_name, value=ELSEWHERE[cmd_name], group=""))


app = typer.Typer(cls=Commands, no_args_is_help=True, add_completion=False, help="Train judges.")

BUNDLED = Path(__file__).parents[2] / "judge" / "tirjudge" / "checkpoints" / "tiny"

# Read by OpenMP and glibc when torch is loaded: idle threads shall not spin, and freed memory shall stay with the process
# instead of being mapped anew in every step, which cost a quarter of the speed on one machine and nothing on another.
_ENVIRONMENT = {
    "OMP_WAIT_POLICY": "PASSIVE",
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
    from tirjudge_training.bundled.sft import BundledRecipe, StepReport, going_on
    from tirjudge_training.run_folder import StageRecord
    from tirjudge_training.stage_report import Reporter

    recipe = replace(BundledRecipe(), seed=seed)
    recipe = recipe if steps is None else replace(recipe, num_steps=steps)
    recipe = recipe if workers is None else replace(recipe, num_workers=workers)
    stages = [recipe, going_on(recipe, parent=out)] if parent is None else [going_on(recipe, parent=parent)]
    with Reporter(console=Console(stderr=True), line_every=50) as reporter:
        for number, stage in enumerate(stages, start=1):
            reporter.began(StageRecord(name=f"stage {number} of {len(stages)}", kind="sft"))

            def on_step(report: StepReport, total: int = stage.num_steps) -> None:
                reporter.moved("training", report.step + 1, total, {"train/loss": report.loss})

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
    from tirjudge_training.stage_report import Reporter

    num_done = count(1)
    with Reporter(console=Console(stderr=True)) as reporter:
        scores = evaluate_and_write_card(
            checkpoint,
            num_items=items,
            on_item=lambda _: reporter.moved("validating", next(num_done), items * len(TEST_SETS), {}),
        )
    if json_output:
        print(json.dumps([asdict(score) for score in scores], indent=1))
        return
    console = Console()
    for score in scores:
        console.print(f"{score.name:46} {score.accuracy:6.1%}   failed programs {score.code_error_rate:.2%}")
    console.print(f"card: {checkpoint / 'README.md'}")


# Stages -----------------------------------------------------------------------------------------------------------------

SHIPPED = ", ".join(sorted(file.stem for file in (Path(__file__).parent / "recipes").glob("*.yaml")))

RecipeName = Annotated[
    str, typer.Argument(metavar="RECIPE", help=f"A YAML file, or one that comes with the package: {SHIPPED}.")
]
Out = Annotated[Path, typer.Option(help="Folder of the run; one that is there goes on.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a key of the recipe anew, as rl.steps=20; repeatable."),
]
Resume = Annotated[bool, typer.Option(help="Go on with a run that is there; otherwise such a folder is refused.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the state of the run as JSON.")]
ChatKey = Annotated[
    str | None,
    typer.Option(
        "--chat-api-key",
        envvar="TIRJUDGE_CHAT_API_KEY",
        help="Key of the teacher's chat endpoint; better in the environment than here.",
    ),
]


def _add(command: Command, help: str, *, has_teacher: bool = False) -> None:
    """A command of stages."""

    def without_key(
        recipe: RecipeName, out: Out, set_: Set = None, resume: Resume = True, json_output: AsJson = False
    ) -> None:
        _train(command, recipe, out=out, overrides=set_, resume=resume, json_output=json_output)

    def with_key(
        recipe: RecipeName,
        out: Out,
        set_: Set = None,
        resume: Resume = True,
        json_output: AsJson = False,
        chat_api_key: ChatKey = None,
    ) -> None:
        _train(command, recipe, out=out, overrides=set_, resume=resume, json_output=json_output, chat_key=chat_api_key)

    app.command(command, help=help)(with_key if has_teacher else without_key)


_add("sft", "Supervised learning on trajectories that there are.")
_add("rl", "Reinforcement learning from a checkpoint.")
_add(
    "sample",
    "Sample trajectories, of a checkpoint or of a teacher, and keep those worth learning from.",
    has_teacher=True,
)
_add("distill", "TIR-Judge-Distill: a teacher's trajectories, SFT, RL.", has_teacher=True)
_add("zero", "TIR-Judge-Zero: RL, then rounds of sampling, SFT and RL, without a teacher.")
_add("ttrl", "T3RL: RL without labels, on those that executed evidence votes for.")


@app.command()
def status(run: Annotated[Path, typer.Argument(help="Folder of a run.")], json_output: AsJson = False) -> None:
    """Where a run stands."""
    from tirjudge_training.run_folder import read_state
    from tirjudge_training.stage_report import print_state
    from tirjudge_training.watch import look_at

    with _one_line_for_mistakes("status"):
        state = read_state(run)
        under_way = look_at(run).pulse == "running"
    if json_output:
        print(state.model_dump_json(indent=1))
    else:
        print_state(state, run=run, console=Console(), under_way=under_way)


def _train(
    command: Command,
    recipe: str,
    *,
    out: Path,
    overrides: list[str] | None,
    resume: bool,
    json_output: bool,
    chat_key: str | None = None,
) -> None:
    if any(name not in os.environ for name in _ENVIRONMENT):
        os.environ.update({**_ENVIRONMENT, **os.environ})
        os.execv(sys.executable, sys.orig_argv)
    from tirjudge_training.config import load_recipe
    from tirjudge_training.stage_report import Reporter, print_state
    from tirjudge_training.stages import run_stages

    with _one_line_for_mistakes(command):
        if not resume and (out / "state.json").exists():
            raise ValueError(f"{out}: there is a run already; --resume goes on with it, another --out begins anew")
        loaded = load_recipe(recipe, overrides=overrides or [])
        with Reporter(console=Console(stderr=True)) as reporter:
            state = run_stages(command, loaded, out=out, callback=reporter, chat_key=chat_key)
    if json_output:
        print(state.model_dump_json(indent=1))
    else:
        print_state(state, run=out, console=Console())


@contextmanager
def _one_line_for_mistakes(command: str) -> Iterator[None]:
    """A mistake that the user can mend ends in one line and status 2; what failed on the way, in one line and status 1."""
    from tirjudge.errors import TirjudgeError

    try:
        yield
    except (ValueError, TirjudgeError, OSError, RuntimeError) as error:
        is_mistake = isinstance(error, ValueError)
        goes_on = "" if is_mistake else "; the same command goes on where it was"
        typer.echo(" ".join(f"tirjudge train {command}: {error}{goes_on}".split()), err=True)
        raise typer.Exit(2 if is_mistake else 1) from None
