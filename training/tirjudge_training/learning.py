"""One stage that changes weights, SFT or RL: from a recipe to the trainer, in this process or in several.

Several processes are started by torchrun (or accelerate) as `python -m tirjudge_training.learning JOB`; the job is a file,
and everything else follows from the recipe in it. Only the first process writes.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, nullcontext, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from tirjudge.durable import lock_folder, write_file
from tirjudge.profile import load_profile
from tirjudge_training.checkpoints import write_checkpoint_file
from tirjudge_training.collector import Collected, Collector
from tirjudge_training.config import Recipe, accelerate_file, parse_recipe
from tirjudge_training.difficulty import DifficultyOrder, EpochOrder
from tirjudge_training.journal import MetricsJournal
from tirjudge_training.policies import EmbeddedPolicy, Policy
from tirjudge_training.training_data import TrainingData, load_data
from tirjudge_training.training_samples import TrainingSample, read_trajectories, write_trajectories
from tirjudge_training.validation import Validation, validate
from tirjudge_training.vllm_policy import VLLMPolicy

OnStep = Callable[[int, int, Mapping[str, float]], None]
"""Told of each step: which, of how many, and its metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageJob:
    """What one stage is to do; paths are absolute."""

    kind: Literal["sft", "rl"]
    stage: str
    run: str
    """Folder of the run."""
    start: str
    """Checkpoint whose weights it begins with."""
    folder: str
    """The trainer's own; a killed stage goes on from what is in it."""
    trajectories: tuple[str, ...] = ()
    """Files to learn from (SFT)."""
    without_labels: bool = False
    """Whether RL votes for its labels (T3RL)."""


def learn(job: StageJob, *, recipe: Recipe, data: TrainingData | None, on_step: OnStep | None = None) -> Path:
    """Do a job, in as many processes as the recipe says.

    Args:
        job: what to do.
        recipe: how.
        data: as `load_data(recipe)` gives it; None: not loaded yet.
        on_step: told of each step, where it is this process that trains.

    Returns:
        The folder of the trained weights: after RL the best validated ones; the last without labels, and with verl.

    Raises:
        ValueError: an option, the data or a checkpoint is not as it has to be, or a gradient was no number.
        EngineUnavailable, SandboxUnavailable: the rollouts could not be made.
        RuntimeError: a process that trained has failed.
    """
    if job.kind == "rl" and recipe.trainer == "verl":
        return _learn_with_verl(job, recipe=recipe, data=data or load_data(recipe), on_step=on_step)
    if recipe.launch.processes > 1:
        return _launch(job, recipe=recipe)
    return _learn_here(job, recipe=recipe, data=data or load_data(recipe), on_step=on_step)


def _learn_here(job: StageJob, *, recipe: Recipe, data: TrainingData, on_step: OnStep | None) -> Path:
    is_main = _rank() == 0
    verbose = (recipe.sft if job.kind == "sft" else recipe.rl).verbose
    with (
        MetricsJournal(Path(job.run), recipe=recipe, silent=not is_main) as journal,
        nullcontext() if verbose else _silenced(),
    ):
        if job.kind == "sft":
            return _learn_sft(job, recipe=recipe, journal=journal, on_step=on_step)
        return _learn_rl(job, recipe=recipe, data=data, journal=journal, on_step=on_step)


@contextmanager
def _silenced() -> Iterator[None]:
    """Trainers print their metrics, which are in metrics.jsonl, to an output that is ours."""
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        yield


def _learn_sft(job: StageJob, *, recipe: Recipe, journal: MetricsJournal, on_step: OnStep | None) -> Path:
    from tirjudge_training.trl_sft import train_sft_on_trajectories

    trajectories = [trajectory for file in job.trajectories for trajectory in read_trajectories(file)]
    fitting = sum(len(one.prompt_ids) + len(one.ids) <= recipe.sft.context_tokens for one in trajectories)
    num_steps = recipe.sft.num_steps(num_rows=fitting)
    return train_sft_on_trajectories(
        trajectories,
        start=Path(job.start),
        folder=Path(job.folder),
        settings=recipe.sft,
        log=_logger(journal, stage=job.stage, num_steps=num_steps, on_step=on_step),
    )


def _learn_rl(
    job: StageJob, *, recipe: Recipe, data: TrainingData, journal: MetricsJournal, on_step: OnStep | None
) -> Path:
    from tirjudge_training.trl_rl import Hooks, train_rl

    settings = recipe.rl
    num_steps = settings.num_steps(num_prompts=sum(item.num_groups for item in data.train))
    rollouts = Path(job.run) / "rollouts" / job.stage
    with asyncio.Runner() as runner, _Opened(runner) as opened:
        policy = opened.policy(Path(job.start), recipe=recipe)
        profile = policy.judge.profile

        def keep(step: int, trajectories: Sequence[TrainingSample]) -> None:
            write_trajectories(rollouts / f"step-{step:06d}.parquet", trajectories)

        def measure(step: int, policy: Policy) -> Mapping[str, float]:
            measured = runner.run(validate_as_recipe(policy.judge, data, recipe=recipe)).metrics()
            return {name: value for name, value in measured.items() if value is not None}

        trained = train_rl(
            start=Path(job.start),
            folder=Path(job.folder),
            collector=_collector(job, recipe=recipe, data=data, policy=policy),
            policy=policy,
            settings=settings,
            num_steps=num_steps,
            run=runner.run,
            hooks=Hooks(
                log=_logger(journal, stage=job.stage, num_steps=num_steps, on_step=on_step),
                keep=keep,
                validate=measure if data.held_out else None,
            ),
            max_answer_tokens=profile.rollout_tokens,
        )
    return trained.last if job.without_labels else trained.best


def _learn_with_verl(job: StageJob, *, recipe: Recipe, data: TrainingData, on_step: OnStep | None) -> Path:
    """verl trains in processes of its own, and validates in them too; what it leaves gets the profile of the start."""
    from tirjudge_training.verl_config import launch_verl

    if job.without_labels:
        raise ValueError("trainer: verl given, but pseudo-labels are voted in TRL's processes only; trl would do")
    num_steps = recipe.rl.num_steps(num_prompts=sum(item.num_groups for item in data.train))
    with MetricsJournal(Path(job.run), recipe=recipe) as journal:
        tell = _logger(journal, stage=job.stage, num_steps=num_steps, on_step=on_step)
        trained = launch_verl(
            recipe.rl,
            verl=recipe.verl,
            model=Path(job.start),
            train=data.train,
            validation=data.held_out,
            folder=Path(job.folder),
            rule=recipe.reward,
            tools="auto" if recipe.tools else "off",
            seed=_seed(recipe.seed, job.stage),
            stage=job.stage,
            record=lambda row: tell({name: value for name, value in row.items() if name != "stage"}),
        )
    write_checkpoint_file(trained, profile=load_profile(Path(job.start)))
    return trained


def validate_as_recipe(
    judge: Any, data: TrainingData, *, recipe: Recipe, on_item: Callable[[], None] | None = None
) -> Any:
    """A coroutine that judges the held-out items as the recipe says, and gives a `Validation`."""
    return validate(
        judge,
        data.held_out,
        seed=recipe.validation.seed,
        tools="auto" if recipe.tools else "off",
        max_tool_calls=recipe.rl.max_tool_calls,
        concurrency=recipe.validation.concurrency,
        on_item=on_item,
    )


def _logger(
    journal: MetricsJournal, *, stage: str, num_steps: int, on_step: OnStep | None
) -> Callable[[Mapping[str, Any]], None]:
    def log(row: Mapping[str, Any]) -> None:
        values = {name: value for name, value in row.items() if name != "step"}
        journal.write({**values, "train/num_steps": num_steps}, stage=stage, step=int(row["step"]))
        if on_step is not None:
            on_step(int(row["step"]), num_steps, values)

    return log


# RL ---------------------------------------------------------------------------------------------------------------------


class _Opened:
    """Sandbox and policy on the loop of a runner; closed there too."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._stack = AsyncExitStack()

    def __enter__(self) -> _Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._stack.aclose())

    def policy(self, checkpoint: Path, *, recipe: Recipe) -> Policy:
        return self._runner.run(open_policy(checkpoint, recipe=recipe, stack=self._stack))


async def open_policy(checkpoint: Path, *, recipe: Recipe, stack: AsyncExitStack) -> Policy:
    """What rolls out a checkpoint, with a sandbox, as the recipe says; both are closed by `stack`."""
    from tirjudge_sandbox import SandboxPool

    sandbox = await stack.enter_async_context(
        SandboxPool(slots=recipe.sandbox.slots, allow_unsafe=recipe.sandbox.allow_unsafe)
    )
    engine = recipe.engine
    if engine.url is not None:
        remote = VLLMPolicy(checkpoint, url=engine.url, folder=Path(engine.weights), sandbox=sandbox, rank=_rank())
        return await stack.enter_async_context(remote)
    embedded = EmbeddedPolicy(checkpoint, sandbox=sandbox, max_batch=engine.max_batch, backend=engine.backend)
    return await stack.enter_async_context(embedded)


def _collector(job: StageJob, *, recipe: Recipe, data: TrainingData, policy: Policy) -> _Remembering:
    settings, num_ranks = recipe.rl, int(os.environ.get("WORLD_SIZE", "1"))
    seed = _seed(recipe.seed, job.stage)
    order = (
        DifficultyOrder(data.train, seed=seed, group_size=settings.group_size, num_ranks=num_ranks)
        if settings.difficulty
        else EpochOrder(data.train, seed=seed, num_ranks=num_ranks)
    )
    collector = Collector(
        policy,
        data.train,
        rule=recipe.reward,
        group_size=settings.group_size,
        seed=seed,
        temperature=settings.temperature,
        tools="auto" if recipe.tools else "off",
        max_tool_calls=settings.max_tool_calls,
        max_rollouts=recipe.collecting.max_rollouts,
        max_draws=recipe.collecting.max_draws if settings.dynamic_sampling else 1.0,
        keep="correct" if settings.group_filter == "correctness" else "reward",
        order=order,
        pseudo=recipe.voting if job.without_labels else None,
    )
    return _Remembering(collector, folder=Path(job.folder))


class _Remembering:
    """A collector that writes down after each step what it has learnt of the items, and takes it up again.

    The trainer's checkpoint of step s is made after the collection of step s, so its twin here is of the same step.
    """

    def __init__(self, collector: Collector, *, folder: Path) -> None:
        self._collector = collector
        self._folder = folder / "collector"

    async def collect(self, *, step: int, num_groups: int, rank: int = 0) -> Collected:
        before = self._path(step - 1, rank=rank)
        if before.exists():
            self._collector.restore(json.loads(before.read_text(encoding="utf-8")))
        collected = await self._collector.collect(step=step, num_groups=num_groups, rank=rank)
        write_file(self._path(step, rank=rank), json.dumps(self._collector.state()), closed=False)
        return collected

    def _path(self, step: int, *, rank: int) -> Path:
        return self._folder / f"step-{step:06d}-rank-{rank}.json"


def _seed(seed: int, stage: str) -> int:
    import hashlib

    return int.from_bytes(hashlib.sha256(f"{seed}/{stage}".encode()).digest()[:6], "big")


# Several processes ------------------------------------------------------------------------------------------------------


def _launch(job: StageJob, *, recipe: Recipe) -> Path:
    """Start the processes, and wait for them.

    Raises:
        ValueError: one of them refused what it was given.
        RuntimeError: one ended with anything else.
    """
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    file, answer = folder / "job.json", folder / "trained.json"
    answer.unlink(missing_ok=True)
    write_file(file, json.dumps({"job": asdict(job), "recipe": recipe.resolved()}), closed=False)
    launch = recipe.launch
    if launch.accelerate is not None:
        starter = ["accelerate.commands.launch", "--config_file", accelerate_file(launch.accelerate)]
        starter += ["--num_processes", str(launch.processes), "--module"]
    else:
        starter = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(launch.processes), "--module"]
    done = subprocess.run([sys.executable, "-m", *starter, "tirjudge_training.learning", str(file)], check=False)
    told = json.loads(answer.read_text(encoding="utf-8")) if answer.exists() else {}
    if refused := told.get("refused"):
        raise ValueError(f"{job.stage}: {refused}")
    if done.returncode or "folder" not in told:
        raise RuntimeError(
            f"{job.stage}: a process that trains ended with status {done.returncode}; its output says why"
        )
    return Path(told["folder"])


def _main(file: Path) -> None:
    """One of several processes."""
    told = json.loads(file.read_text(encoding="utf-8"))
    recipe = parse_recipe(told["recipe"], source=str(file))
    job = StageJob(**{**told["job"], "trajectories": tuple(told["job"]["trajectories"])})
    if _rank() == 0:
        # The lock of the run is gone if the run was killed and this process was not.
        lock_folder(Path(job.folder), closed=False)

    from tirjudge_training.trl_trainer import end_distributed

    answer = Path(job.folder) / "trained.json"
    try:
        trained = _learn_here(job, recipe=recipe, data=load_data(recipe), on_step=None)
        if _rank() == 0:
            write_file(answer, json.dumps({"folder": str(trained)}), closed=False)
    except ValueError as error:  # whichever is first: the others may be ended before they can say so
        write_file(answer, json.dumps({"refused": str(error)}), closed=False)
        raise
    finally:
        end_distributed()


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


__all__ = ["OnStep", "StageJob", "Validation", "learn", "open_policy", "validate_as_recipe"]

if __name__ == "__main__":
    _main(Path(sys.argv[1]))
