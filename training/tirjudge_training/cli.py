"""`tirjudge train`: the training commands. Heavy packages are imported only when a command runs."""

from __future__ import annotations

import json
import os
import shutil
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

from tirjudge.cli import load_command
from tirjudge.help import HelpfulGroup

if TYPE_CHECKING:
    from tirjudge_training.stages import Command

ELSEWHERE = {
    "average": "tirjudge_training.bundled.averaging:average",
    "calibrate": "tirjudge_training.bundled.measuring.calibrate:calibrate",
    "data": "tirjudge_training.data.cli:app",
    "measure": "tirjudge_training.bundled.measuring.cli:measure",
    "pairs": "tirjudge_training.pairs.cli:pairs",
    "plot": "tirjudge_training.plots:plot",
    "watch": "tirjudge_training.watch:watch",
}
"""Commands defined in other modules: name -> import path, imported on first use."""


class Commands(HelpfulGroup):
    """The commands of this module and of `ELSEWHERE`."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *ELSEWHERE]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        return load_command(EntryPoint(name=cmd_name, value=ELSEWHERE[cmd_name], group=""))


app = typer.Typer(cls=Commands, no_args_is_help=True, add_completion=False, help="Train judges.")

BUNDLED = Path(__file__).parents[2] / "judge" / "tirjudge" / "checkpoints" / "tiny"

# OpenMP and glibc read these variables when torch is loaded. Idle threads must not spin. Freed memory must stay mapped,
# because mapping it again in every step made training up to a quarter slower, depending on the machine.
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
    out: Annotated[Path, typer.Option(help="Checkpoint folder; replaced when training has ended.")] = BUNDLED,
    generation: Annotated[
        int,
        typer.Option(
            min=1,
            max=2,
            help="1: trained on templates. 2: trained on written sentences.",
        ),
    ] = 2,
    seed: Annotated[int, typer.Option(help="Seed of data, order and weights.")] = 1,
    steps: Annotated[
        int | None,
        typer.Option(help="Optimizer steps of each stage but the last, which has 3/4 as many (generation 1: a fifth)."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Number of worker processes, one core each. With 1, a GPU is used if available.")
    ] = None,
    parent: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Run only the last stage, from this checkpoint; another --seed gives it new data. Default: all stages.",
        ),
    ] = None,
    decay: Annotated[
        bool,
        typer.Option(
            help="With --from: let the learning rate decay to zero. --no-decay: a stage that another follows."
        ),
    ] = True,
    items: Annotated[int, typer.Option(help="Held-out items per evaluation set; 0 skips the evaluation.")] = 1000,
    json_output: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Train the bundled judge from scratch, evaluate it, and write its card. The second generation is calibrated as well.

    The state is saved every few minutes in a folder beside the checkpoint, OUT.training. The same command goes on after an
    interruption.

    Examples:
        tirjudge train bundled --out checkpoints/tiny --workers 2
        tirjudge train bundled --generation 1 --out checkpoints/first
        tirjudge train bundled --from checkpoints/tiny --seed 7 --steps 400 --out checkpoints/further
    """
    if parent is None and not decay:
        raise typer.BadParameter(
            "given without --from; of all stages, the last one has to decay", param_hint="--no-decay"
        )
    if any(os.environ.get(name) != value for name, value in _ENVIRONMENT.items()):
        os.environ.update(_ENVIRONMENT)
        os.execv(sys.executable, sys.orig_argv)
    from tirjudge_training.bundled.build import second_generation, train_bundled
    from tirjudge_training.bundled.measuring.calibrate import NUM_ITEMS, calibrate_checkpoint
    from tirjudge_training.bundled.sft import BundledRecipe, StepReport, last_stage, stage_folder, stages_of
    from tirjudge_training.run_folder import StageRecord
    from tirjudge_training.stage_report import Reporter

    recipe = replace(BundledRecipe(), seed=seed) if generation == 1 else second_generation(seed=seed)
    recipe = recipe if steps is None else replace(recipe, num_steps=steps)
    recipe = recipe if workers is None else replace(recipe, num_workers=workers)
    state = out.parent / f"{out.name}.training"
    stages = stages_of(recipe, folder=state) if parent is None else [last_stage(recipe, parent=parent)]
    stages = stages if decay else [replace(stage, decay_share=0.0) for stage in stages]
    with Reporter(console=Console(stderr=True), line_every=50) as reporter:
        for number, stage in enumerate(stages, start=1):
            folder = stage_folder(state, number)
            made = out if number == len(stages) else folder / "checkpoint"
            if made != out and (made / "training.json").exists():
                continue
            reporter.began(StageRecord(name=f"stage {number} of {len(stages)}", kind="sft"))

            def on_step(report: StepReport, total: int = stage.num_steps) -> None:
                reporter.moved("training", report.step + 1, total, {"train/loss": report.loss})

            train_bundled(stage, out=made, state=folder, on_step=on_step)
    shutil.rmtree(state)
    if generation == 2:
        calibrate_checkpoint(out, num_items=NUM_ITEMS, console=Console(stderr=True))
    if items:
        evaluate(checkpoint=out, items=items, json_output=json_output)


@app.command()
def evaluate(
    checkpoint: Annotated[Path, typer.Argument(help="Checkpoint folder.")] = BUNDLED,
    items: Annotated[int, typer.Option(help="Held-out items per evaluation set.")] = 1000,
    json_output: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Evaluate a checkpoint on held-out synthetic items and write its card.

    Examples:
        tirjudge train evaluate checkpoints/tiny --items 200
    """
    from tirjudge_training.bundled.build import evaluate_and_write_card
    from tirjudge_training.bundled.evaluate import TEST_SETS
    from tirjudge_training.bundled.measuring.progress import progress_of

    num_done, num_items, moved = count(1), items * len(TEST_SETS), progress_of(Console(stderr=True))
    moved("evaluation", 0, num_items)
    scores = evaluate_and_write_card(
        checkpoint, num_items=items, on_item=lambda _: moved("evaluation", next(num_done), num_items)
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
    str, typer.Argument(metavar="RECIPE", help=f"A YAML file, or the name of a bundled recipe: {SHIPPED}.")
]
Out = Annotated[Path, typer.Option(help="Folder of the run. An existing run is resumed.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the recipe, such as rl.steps=20; repeatable."),
]
Resume = Annotated[bool, typer.Option(help="Resume an existing run. With --no-resume, an existing run is an error.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the state of the run as JSON.")]
ChatKey = Annotated[
    str | None,
    typer.Option(
        "--chat-api-key",
        envvar="TIRJUDGE_CHAT_API_KEY",
        help="API key of the teacher's chat endpoint. Prefer the environment variable.",
    ),
]


def _add(command: Command, help: str, *, example: str, has_teacher: bool = False) -> None:
    """Add a command that runs stages.

    Args:
        example: the recipe in the example of the help.
        has_teacher: whether the command has an option for the API key of the teacher.
    """

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

    examples = f"Examples:\n    tirjudge train {command} {example} --out runs/{command}"
    app.command(command, help=f"{help}\n\n{examples}")(with_key if has_teacher else without_key)


_add("sft", "Supervised learning on existing trajectories.", example="sft.yaml")
_add("rl", "Reinforcement learning from a checkpoint.", example="rl.yaml")
_add(
    "sample",
    "Sample trajectories from a checkpoint or a teacher, and keep those worth learning from.",
    example="sample.yaml",
    has_teacher=True,
)
_add("distill", "TIR-Judge-Distill: a teacher's trajectories, SFT, RL.", example="one-gpu-distill", has_teacher=True)
_add("zero", "TIR-Judge-Zero: RL, then rounds of sampling, SFT and RL, without a teacher.", example="tiny-cpu-zero")
_add(
    "ttrl",
    "T3RL: RL without ground-truth labels, on pseudo-labels from a vote weighted by the results of programs.",
    example="tiny-cpu-ttrl",
)


@app.command()
def status(run: Annotated[Path, typer.Argument(help="Folder of a run.")], json_output: AsJson = False) -> None:
    """Print the state of a run.

    Examples:
        tirjudge train status runs/zero
    """
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
            raise ValueError(f"{out}: contains a run already; use --resume to continue it, or another --out")
        loaded = load_recipe(recipe, overrides=overrides or [])
        with Reporter(console=Console(stderr=True)) as reporter:
            state = run_stages(command, loaded, out=out, callback=reporter, chat_key=chat_key)
    if json_output:
        print(state.model_dump_json(indent=1))
    else:
        print_state(state, run=out, console=Console())


@contextmanager
def _one_line_for_mistakes(command: str) -> Iterator[None]:
    """Print an error on one line and exit, with status 2 for a user error and 1 for a failure during the run."""
    from tirjudge.errors import TirjudgeError

    try:
        yield
    except (ValueError, TirjudgeError, OSError, RuntimeError) as error:
        is_mistake = isinstance(error, ValueError)
        hint = "" if is_mistake else "; run the same command again to resume"
        typer.echo(" ".join(f"tirjudge train {command}: {error}{hint}".split()), err=True)
        raise typer.Exit(2 if is_mistake else 1) from None
