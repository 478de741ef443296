"""One RL update from made-up trajectories, as one process or as one of several: `distributed_step.py START FOLDER`."""

import asyncio
import json
import sys
from pathlib import Path

import torch

from tests.training.tiny import FixedCollector, made_up_groups
from tirjudge_training.settings import RLSettings
from tirjudge_training.trl_rl import Hooks, train_rl


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
            collector=FixedCollector(made_up_groups(num_groups=4, group_size=4)),
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
