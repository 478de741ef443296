"""Runs verl as a process: writes what it reads, follows the metrics that it writes, and finds the checkpoint it
leaves."""

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
from tirjudge.profile import load_profile
from tirjudge_training.checkpoints import write_checkpoint_file
from tirjudge_training.trainers.base import OnStep, StageJob, TrainedStage
from tirjudge_training.trainers.verl.data import LoopSettings, write_verl_dataset
from tirjudge_training.trainers.verl.options import VerlSettings, check_settings, hydra_arguments, verl_options

if TYPE_CHECKING:
    from tirjudge_training.training_data import TrainingData


class VerlError(TirjudgeError):
    """verl was started and did not end well."""


def train_with_verl(
    job: StageJob, *, data: TrainingData, on_step: OnStep, log: Callable[[str], None] = print
) -> TrainedStage:
    """Train with verl until it ends. Killed and called again with the same folder, it goes on from verl's last
    checkpoint.

    Args:
        job: the stage; data, log, checkpoints and metrics go to its folder.
        data: items; all must know their best response.
        on_step: told of each step.
        log: told each line that verl prints.

    Raises:
        ValueError: a setting that verl cannot follow, or an option that would change the equation.
        VerlError: it ended with an error, or without a checkpoint.
    """
    options = prepare(job, data=data)
    num_steps = job.recipe.rl.num_steps(num_prompts=data.num_prompts)
    # A new file each time it is started, because verl empties the one it is given.
    path = job.folder.resolve() / f"verl-{sum(1 for _ in job.folder.glob('verl-*.jsonl')):03}.jsonl"
    metrics = MetricsFile(path, record=lambda step, values: on_step(step, num_steps, values))

    def told(line: str) -> None:
        log(line)
        metrics.read()

    status = _run(
        verl_command(options), env={**os.environ, "VERL_FILE_LOGGER_PATH": str(path)}, folder=job.folder, log=told
    )
    metrics.read()
    if status != 0:
        raise VerlError(f"verl ended with status {status}; {job.folder / 'verl.log'} says why")
    trained = last_checkpoint(job.folder)
    write_checkpoint_file(trained.checkpoint, profile=load_profile(job.start))
    return trained


def prepare(job: StageJob, *, data: TrainingData) -> dict[str, JsonValue]:
    """Write what verl reads into the folder; returns the options to start it with. Raises ValueError as
    `train_with_verl`."""
    recipe, folder, model = job.recipe, job.folder.resolve(), job.start.resolve()
    check_settings(recipe.rl, rule=recipe.reward)
    verl: VerlSettings = recipe.settings_of("verl")
    loop = LoopSettings(
        profile=load_profile(model),
        eos_token_ids=tuple(sorted(read_eos_token_ids(model))),
        reward=recipe.reward,
        tools=recipe.tools_switch,
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
    """The process that trains."""
    return [sys.executable, "-m", "verl.trainer.main_ppo", *hydra_arguments(options)]


def _run(command: Sequence[str], *, env: Mapping[str, str], folder: Path, log: Callable[[str], None]) -> int:
    """Exit status; each line goes to `log` and to verl.log as it comes. An exception of ours ends the process too."""
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
    """The Hugging Face folder that verl wrote last, without judge.json.

    Raises:
        VerlError: there is none.
    """
    checkpoints = folder / "checkpoints"
    tracker = checkpoints / "latest_checkpointed_iteration.txt"
    if not tracker.exists():
        raise VerlError(f"{checkpoints}: verl left no checkpoint; set save_every no larger than the number of steps")
    step = int(tracker.read_text())
    found = checkpoints / f"global_step_{step}" / "actor" / "huggingface"
    if not any(found.glob("*.safetensors")):
        raise VerlError(f"{found}: no weights in it; verl was told to write hf_model")
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
"""verl's name -> ours, of what both mean the same by."""


class MetricsFile:
    """Follows what verl's file logger writes, and hands on each step under our names.

    Args:
        path: of the file; it may not be there yet.
        record: told each step and its metrics.
    """

    def __init__(self, path: Path, *, record: Callable[[int, Mapping[str, float]], None]) -> None:
        self.path = path
        self._record = record
        self._offset = 0

    def read(self) -> None:
        """Hand on what was written since the last time, whole lines alone."""
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
    """verl's metrics under our names, without what has none."""
    before, after = "val-core/", "/acc/mean@1"  # around task and mode
    metrics = {ours: data[name] for name, ours in METRICS.items() if name in data}
    for name, value in data.items():
        if name.startswith(before) and name.endswith(after):
            metrics["val/acc/" + name.removeprefix(before).removesuffix(after)] = value
    return metrics
