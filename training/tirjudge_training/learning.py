"""Runs a stage that changes weights (SFT or RL) with the trainer of its recipe, in one or several processes.

torchrun or accelerate start several processes as `python -m tirjudge_training.learning JOB`. JOB is a file with the job
and its recipe. Only the first process writes metrics and checkpoints.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from tirjudge.durable import lock_folder, write_file
from tirjudge_training.config import accelerate_file, parse_recipe
from tirjudge_training.journal import MetricsJournal
from tirjudge_training.rollouts import rank_and_size
from tirjudge_training.trainers import OnStep, StageJob, TrainedStage, trainer_of
from tirjudge_training.training_data import TrainingData, load_data


def learn(job: StageJob, *, data: TrainingData | None = None, on_step: OnStep | None = None) -> TrainedStage:
    """Run a job with the trainer of its recipe, in `launch.processes` processes.

    Args:
        job: The job.
        data: Result of `load_data(job.recipe)`. None: this function loads the data.
        on_step: Called after each step, if this process trains.

    Raises:
        ValueError: an option, the data or a checkpoint is invalid, or a gradient was not finite.
        EngineUnavailable, SandboxUnavailable: rollouts failed.
        RuntimeError: a training process failed.
    """
    if job.recipe.launch.processes > 1 and trainer_of(job.recipe, job.kind).shared:
        return _launch(job)
    return _learn_here(job, data=data or load_data(job.recipe), on_step=on_step)


def _learn_here(job: StageJob, *, data: TrainingData, on_step: OnStep | None = None) -> TrainedStage:
    with MetricsJournal(job.run, recipe=job.recipe, silent=rank_and_size()[0] != 0) as journal:

        def write(step: int, num_steps: int, metrics: Mapping[str, float]) -> None:
            journal.write({**metrics, "train/num_steps": num_steps}, stage=job.name, step=step)
            if on_step is not None:
                on_step(step, num_steps, metrics)

        return trainer_of(job.recipe, job.kind).train(job, data=data, on_step=write)


# Several processes ------------------------------------------------------------------------------------------------------


def _launch(job: StageJob) -> TrainedStage:
    """Start the processes and wait for them.

    Raises:
        ValueError: a process raised a ValueError.
        RuntimeError: a process failed for a different reason.
    """
    job.folder.mkdir(parents=True, exist_ok=True)
    file, answer = job.folder / "job.json", job.folder / "trained.json"
    answer.unlink(missing_ok=True)
    write_job(job, file)
    launch = job.recipe.launch
    if launch.accelerate is not None:
        starter = ["accelerate.commands.launch", "--config_file", accelerate_file(launch.accelerate)]
        starter += ["--num_processes", str(launch.processes), "--module"]
    else:
        starter = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(launch.processes), "--module"]
    done = subprocess.run([sys.executable, "-m", *starter, "tirjudge_training.learning", str(file)], check=False)
    result = json.loads(answer.read_text(encoding="utf-8")) if answer.exists() else {}
    if refused := result.get("refused"):
        raise ValueError(f"{job.name}: {refused}")
    if done.returncode or "checkpoint" not in result:
        raise RuntimeError(
            f"{job.name}: a training process ended with status {done.returncode}; see its output for the reason"
        )
    return TrainedStage(checkpoint=Path(result["checkpoint"]), step=result["step"])


def write_job(job: StageJob, file: Path) -> None:
    """Write a job to a file, for `python -m tirjudge_training.learning`."""
    values = {field.name: getattr(job, field.name) for field in fields(job)}
    write_file(file, json.dumps({**values, "recipe": job.recipe.resolved()}, default=str), closed=False)


def read_job(file: Path) -> StageJob:
    """Read a job from a file written by `write_job`."""
    values = json.loads(file.read_text(encoding="utf-8"))
    recipe, samples = parse_recipe(values["recipe"], source=str(file)), tuple(map(Path, values["samples"]))
    folders = {name: Path(values[name]) for name in ("run", "start", "folder")}
    return StageJob(**(values | folders | {"recipe": recipe, "samples": samples}))


def main(file: Path) -> None:
    """Entry point of one of several training processes.

    Args:
        file: Job written by `write_job`.

    Raises:
        ValueError: as in `learn`, or another process works in the folder of the job.
    """
    job = read_job(file)
    is_first = rank_and_size()[0] == 0
    if is_first:
        # If the main process was killed and this process was not, the lock of the run is already released.
        lock_folder(job.folder, closed=False)

    import torch.distributed

    answer = job.folder / "trained.json"
    try:
        trained = _learn_here(job, data=load_data(job.recipe))
        if is_first:
            write_file(answer, json.dumps({"checkpoint": str(trained.checkpoint), "step": trained.step}), closed=False)
    except ValueError as error:  # every process writes the file, because the first failure may terminate the others
        write_file(answer, json.dumps({"refused": str(error)}), closed=False)
        raise
    finally:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
