"""One RL update from made-up trajectories, as one process or as one of several: `distributed_step.py START FOLDER`."""

import asyncio
import json
import sys
from pathlib import Path

import torch

from tests.training.tiny import FixedCollector, made_up_groups, trajectory
from tirjudge_training.groups import Group
from tirjudge_training.settings import RLSettings
from tirjudge_training.trl_rl import Hooks, train_rl


def groups() -> list[Group]:
    """Four groups of four. The rows of the first are of very different lengths, which only one of two processes has."""
    first = tuple(
        trajectory(
            ids=[11 + i % 900 for i in range(length)], mask=[1] * length, reward=reward, logprobs=[-7.0] * length
        )
        for length, reward in ((4, 0.0), (12, 1.0), (36, 0.1), (108, 1.0))
    )
    return [Group(trajectories=first), *made_up_groups(num_groups=3, group_size=4)]


class StillPolicy:
    version = 0

    async def load(self, weights, *, version) -> None:
        self.version = version


def main(start: Path, folder: Path) -> None:
    torch.set_num_threads(1)
    # Plain gradient descent: Adam's first step would hide the size of the gradient.
    settings = RLSettings(
        group_size=4,
        prompts_per_step=4,
        per_device_batch=4,
        device="cpu",
        optim="sgd",
        learning_rate=0.1,
        max_grad_norm=9.0,
    )
    kept: list[int] = []
    log: list[dict] = []
    with asyncio.Runner() as runner:
        train_rl(
            start=start,
            folder=folder,
            collector=FixedCollector(groups()),
            policy=StillPolicy(),
            settings=settings,
            num_steps=2,
            run=runner.run,
            hooks=Hooks(log=log.append, keep=lambda step, rows: kept.append(len(rows))),
            max_answer_tokens=99,
        )
    if log:
        (folder / "seen.json").write_text(json.dumps({"log": log, "kept": kept}))


if __name__ == "__main__":
    from tirjudge_training.trl_trainer import end_distributed

    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    finally:
        end_distributed()
