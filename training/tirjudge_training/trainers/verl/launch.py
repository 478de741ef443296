"""Runs verl as a process: writes its input files, follows its metrics file, and finds its newest checkpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from tirjudge.engines.checkpoint import read_eos_token_ids
from tirjudge.errors import TirjudgeError
from tirjudge.profile import resolved_profile
from tirjudge_training.checkpoints import trained_profile, write_checkpoint_file
from tirjudge_training.trainers.base import OnStep, StageJob, TrainedStage
from tirjudge_training.trainers.verl.data import LoopSettings, write_verl_dataset
from tirjudge_training.trainers.verl.options import VerlSettings, check_settings, hydra_arguments, verl_options

if TYPE_CHECKING:
    from tirjudge_training.training_data import TrainingData


class VerlError(TirjudgeError):
    """verl was started and failed."""


def train_with_verl(
    job: StageJob, *, data: TrainingData, on_step: OnStep, log: Callable[[str], None] = print
) -> TrainedStage:
    """Train with verl until it ends. If the folder of the job has a checkpoint of verl, training resumes from it.

    Args:
        job: The stage. Data, log, checkpoints and metrics are written to its folder.
        data: Items; all must have labels.
        on_step: Called after each step.
        log: Called with each line that verl prints.

    Raises:
        ValueError: verl does not support a setting, or an option would change the equation.
        VerlError: verl failed, or wrote no checkpoint.
    """
    options = prepare(job, data=data)
    num_steps = job.recipe.rl.num_steps(num_prompts=data.num_prompts)
    # A new file for each start, because verl truncates an existing one.
    path = job.folder.resolve() / f"verl-{sum(1 for _ in job.folder.glob('verl-*.jsonl')):03}.jsonl"
    metrics = MetricsFile(path, record=lambda step, values: on_step(step, num_steps, values))

    def on_line(line: str) -> None:
        log(line)
        metrics.read()

    status = _run(
        verl_command(options), env={**os.environ, "VERL_FILE_LOGGER_PATH": str(path)}, folder=job.folder, log=on_line
    )
    metrics.read()
    if status != 0:
        raise VerlError(f"verl ended with status {status}; see {job.folder / 'verl.log'} for the reason")
    trained = last_checkpoint(job.folder)
    write_checkpoint_file(trained.checkpoint, profile=trained_profile(job.start))
    return trained


def prepare(job: StageJob, *, data: TrainingData) -> dict[str, JsonValue]:
    """Write the input files of verl into the folder of the job, and return the options for starting verl.

    Raises:
        ValueError: as in `train_with_verl`.
    """
    recipe, folder, model = job.recipe, job.folder.resolve(), job.start.resolve()
    check_settings(recipe.rl, rule=recipe.reward)
    verl: VerlSettings = recipe.settings_of("verl")
    loop = LoopSettings(
        profile=resolved_profile(model),
        eos_token_ids=tuple(sorted(read_eos_token_ids(model))),
        reward=recipe.reward,
        tools=recipe.tools_switch,
        functions=recipe.functions,
        rl=recipe.rl,
        verl=verl.model_copy(update={"options": {}}),
        allow_unsafe=recipe.sandbox.allow_unsafe,
        seed=job.seed,
    )
    options = verl_options(
        recipe.rl,
        verl=verl,
        model=model,
        folder=folder,
        context_tokens=loop.profile.context_tokens,
        response_tokens=loop.longest_response,
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_verl_dataset(data.train, folder / "train.parquet")
    write_verl_dataset(data.held_out, folder / "validation.parquet")
    loop.write(folder / "loop.yaml")
    return options


def verl_command(options: Mapping[str, JsonValue]) -> list[str]:
    """Return the command line of verl for the options."""
    return [sys.executable, "-m", "verl.trainer.main_ppo", *hydra_arguments(options)]


def _run(command: Sequence[str], *, env: Mapping[str, str], folder: Path, log: Callable[[str], None]) -> int:
    """Run a command and return its exit status. Each output line is passed to `log` and appended to verl.log.

    If this process raises, for example on Ctrl-C, the command is terminated.
    """
    with (
        (folder / "verl.log").open("a", encoding="utf-8") as kept,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=dict(env)
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                kept.write(line)
                kept.flush()
                log(line.rstrip("\n"))
        except BaseException:
            process.terminate()
            raise
        return process.wait()


def last_checkpoint(folder: Path) -> TrainedStage:
    """Return the last Hugging Face folder that verl wrote. It has no judge.json.

    Raises:
        VerlError: verl wrote no checkpoint.
    """
    checkpoints = folder / "checkpoints"
    tracker = checkpoints / "latest_checkpointed_iteration.txt"
    if not tracker.exists():
        raise VerlError(f"{checkpoints}: verl wrote no checkpoint; set save_every to at most the number of steps")
    step = int(tracker.read_text())
    found = checkpoints / f"global_step_{step}" / "actor" / "huggingface"
    if not any(found.glob("*.safetensors")):
        raise VerlError(f"{found}: no weights found; keep hf_model in checkpoint.save_contents")
    return TrainedStage(checkpoint=found, step=step)


METRICS: Mapping[str, str] = {
    "critic/score/mean": "reward/total",
    "actor/kl_loss": "train/kl",
    "actor/pg_loss": "train/loss",
    "actor/grad_norm": "train/grad_norm",
    "actor/lr": "train/lr",
    "actor/pg_clipfrac": "train/clip_frac",
    "actor/entropy_loss": "train/entropy",
    "response_length/mean": "length/tokens",
    "prompt_length/mean": "length/prompt",
    "training/filter_groups/evicted_samples": "dapo/dropped",
    "timing_s/step": "perf/step_s",
    "timing_s/gen": "perf/collect_s",
}
"""Name of a metric in verl -> name of the same metric in metrics.jsonl."""


class MetricsFile:
    """Follows the file of verl's file logger, and translates its metrics.

    Args:
        path: Path of the file. It may not exist yet.
        record: Called with each step and its metrics (names of metrics.jsonl).
    """

    def __init__(self, path: Path, *, record: Callable[[int, Mapping[str, float]], None]) -> None:
        self.path = path
        self._record = record
        self._offset = 0

    def read(self) -> None:
        """Process the complete lines that were appended since the previous call."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                entry = json.loads(line)
                if metrics := _ours(entry["data"]):
                    self._record(entry["step"], metrics)


def _ours(data: Mapping[str, Any]) -> dict[str, float]:
    """Return verl's metrics with the names of metrics.jsonl. Metrics without such a name are omitted."""
    before, after = "val-core/", "/acc/mean@1"  # around task and mode
    metrics = {ours: data[name] for name, ours in METRICS.items() if name in data}
    for name, value in data.items():
        if name.startswith(before) and name.endswith(after):
            metrics["val/acc/" + name.removeprefix(before).removesuffix(after)] = value
    return metrics
