"""Two RL updates on made-up trajectories, in one or several processes: `distributed_step.py START FOLDER`.

With --steps 1, the script stops after the first update. With --sharded, each process holds a part of the weights, as with
accelerate's FSDP2 on GPUs.
"""

import argparse
import asyncio
import gc
import json
import os
from pathlib import Path

import torch
from torch.distributed.tensor import DTensor

from tests.training.tiny import FixedCollector, made_up_groups, trajectory
from tirjudge_training.config import accelerate_file
from tirjudge_training.groups import RolloutGroup
from tirjudge_training.settings import RLSettings
from tirjudge_training.trainers.trl.rl import RLStage


def groups() -> list[RolloutGroup]:
    """Four groups of four rows. The rows of the first group have very different lengths, and are all in one process."""
    first = tuple(
        trajectory(
            ids=[11 + i % 900 for i in range(length)], mask=[1] * length, reward=reward, logprobs=[-7.0] * length
        )
        for length, reward in ((4, 0.0), (12, 1.0), (36, 0.1), (108, 1.0))
    )
    return [RolloutGroup(trajectories=first), *made_up_groups(num_groups=3, group_size=4)]


class StillPolicy:
    version = 0
    shapes: dict[str, list[int]]

    async def load(self, weights, *, version) -> None:
        self.version = version
        self.shapes = {name: list(tensor.shape) for name, tensor in weights.items()}


def shard_on_cpu() -> None:
    """Shard the weights as in the config file for accelerate, which supports sharding on accelerators only.

    torch can shard on a CPU with gloo. So an accelerator is simulated until accelerate has chosen its mode.
    """
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import DistributedType
    from accelerate.utils.launch import prepare_multi_gpu_env

    command = ["--config_file", accelerate_file("fsdp2"), "--num_processes", "2", __file__]
    options, *_ = _validate_launch_command(launch_command_parser().parse_args(command))
    env = prepare_multi_gpu_env(options)
    os.environ |= {name: value for name, value in env.items() if name.startswith(("ACCELERATE_USE_FSDP", "FSDP_"))}
    begin = AcceleratorState.__init__

    def begin_sharded(self, *arguments, **options) -> None:
        if not AcceleratorState._shared_state:
            PartialState(cpu=True)
            PartialState._shared_state["distributed_type"] = DistributedType.MULTI_XPU
        begin(self, *arguments, **options)

    AcceleratorState.__init__ = begin_sharded


def num_sharded() -> int:
    """Return the number of parameters of which this process holds only a part."""
    # `isinstance` of any object reads its attribute `__class__`, which some objects of torch answer with a warning.
    sharded = [one for one in gc.get_objects() if issubclass(type(one), DTensor)]
    return sum(isinstance(one, torch.nn.Parameter) for one in sharded)


def main(start: Path, folder: Path, *, num_steps: int = 2) -> None:
    # Plain gradient descent, because the first step of Adam does not depend on the size of the gradient.
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
    policy = StillPolicy()
    with asyncio.Runner() as runner:
        RLStage(
            start=start,
            folder=folder,
            collector=FixedCollector(groups()),
            policy=policy,
            settings=settings,
            num_steps=num_steps,
            run=runner.run,
            on_step=lambda step, total, metrics: log.append({"step": step, **metrics}),
            keep=lambda step, rows: kept.append(len(rows)),
            max_answer_tokens=99,
        ).train()
    if log:
        (folder / "seen.json").write_text(
            json.dumps({"log": log, "kept": kept, "given": policy.shapes, "num_sharded": num_sharded()})
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sharded", action="store_true")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("start", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.sharded:
        shard_on_cpu()
    try:
        main(options.start, options.folder, num_steps=options.steps)
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
