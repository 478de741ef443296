"""Builds the policy, the sandbox and the collector of a stage from a recipe."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tirjudge.durable import write_file
from tirjudge.judge import Judge
from tirjudge.opening import open_functions
from tirjudge_training.collector import Collected, Collector
from tirjudge_training.config import Recipe
from tirjudge_training.difficulty import DifficultyOrder, EpochOrder
from tirjudge_training.policies import EmbeddedPolicy, Policy
from tirjudge_training.training_data import TrainingData
from tirjudge_training.validation import Validation, validate
from tirjudge_training.vllm_policy import VLLMPolicy

if TYPE_CHECKING:
    from tirjudge_training.trainers import StageJob


def rank_and_size() -> tuple[int, int]:
    """Return the rank of this process and the number of processes of the stage, as set by torchrun and accelerate."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


async def open_policy(checkpoint: Path, *, recipe: Recipe, stack: AsyncExitStack) -> Policy:
    """Open a policy for a checkpoint, with a sandbox, as configured in the recipe. `stack` closes both.

    Raises:
        ValueError: the functions of the recipe do not exist.
    """
    from tirjudge_sandbox import SandboxPool

    pool = SandboxPool(slots=recipe.sandbox.slots, allow_unsafe=recipe.sandbox.allow_unsafe)
    sandbox, engine = await stack.enter_async_context(pool), recipe.engine
    functions = await stack.enter_async_context(open_functions(recipe.functions))
    if engine.url is not None:
        rank, _ = rank_and_size()
        remote = VLLMPolicy(
            checkpoint,
            url=engine.url,
            folder=Path(engine.weights),
            sandbox=sandbox,
            functions=functions,
            rank=rank,
        )
        return await stack.enter_async_context(remote)
    embedded = EmbeddedPolicy(
        checkpoint, sandbox=sandbox, functions=functions, max_batch=engine.max_batch, backend=engine.backend
    )
    return await stack.enter_async_context(embedded)


async def validate_held_out(
    judge: Judge, data: TrainingData, *, recipe: Recipe, on_item: Callable[[], None] | None = None
) -> Validation:
    """Judge the held-out items with the settings of the recipe. `on_item` is called after each item."""
    return await validate(
        judge,
        data.held_out,
        seed=recipe.validation.seed,
        tools=recipe.tools_switch,
        max_tool_calls=recipe.rl.max_tool_calls,
        concurrency=recipe.validation.concurrency,
        on_item=on_item,
    )


class ResumableCollector(Collector):
    """The collector of a stage. It saves the state of its item order after each step, and restores it on resumption.

    The trainer saves its checkpoint of step s after the collection of step s, so the state for that checkpoint has the
    same step number.
    """

    def __init__(self, job: StageJob, *, data: TrainingData, policy: Policy) -> None:
        recipe, settings = job.recipe, job.recipe.rl
        _, num_ranks = rank_and_size()
        super().__init__(
            policy,
            data.train,
            rule=recipe.reward,
            group_size=settings.group_size,
            seed=job.seed,
            temperature=settings.temperature,
            tools=recipe.tools_switch,
            max_tool_calls=settings.max_tool_calls,
            max_rollouts=recipe.collecting.max_rollouts,
            max_draws=recipe.collecting.max_draws if settings.dynamic_sampling else 1.0,
            keep="correct" if settings.group_filter == "correctness" else "reward",
            order=DifficultyOrder(data.train, seed=job.seed, group_size=settings.group_size, num_ranks=num_ranks)
            if settings.difficulty
            else EpochOrder(data.train, seed=job.seed, num_ranks=num_ranks),
            pseudo=recipe.voting if job.without_labels else None,
        )
        self._folder = job.folder / "collector"

    async def collect(self, *, step: int, num_groups: int, rank: int = 0) -> Collected:
        before, after = (self._folder / f"step-{s:06d}-rank-{rank}.json" for s in (step - 1, step))
        if before.exists():
            self.restore(json.loads(before.read_text(encoding="utf-8")))
        collected = await super().collect(step=step, num_groups=num_groups, rank=rank)
        self._folder.mkdir(parents=True, exist_ok=True)
        write_file(after, json.dumps(self.state()), closed=False)
        return collected
