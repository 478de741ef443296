"""Two RL updates on made-up trajectories, in one or several processes.

`distributed_step.py START FOLDER` makes them in two processes: with replicated weights in FOLDER/replicated; in
FOLDER/sharded, each process holds a part of the weights, as with accelerate's FSDP2 on GPUs, and the processes start again
after the first update. The processes are forks, because importing torch and TRL takes longer than the updates.
"""

import gc

if __name__ == "__main__":
    gc.disable()  # while modules are imported, which makes millions of objects that stay

import asyncio
import json
import os
import sys
import uuid
from pathlib import Path
from typing import Any

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


def main(start: Path, folder: Path, *, num_steps: int = 2) -> dict[str, Any]:
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
    return {"log": log, "kept": kept, "given": policy.shapes, "num_sharded": num_sharded()}


def one_of_two(start: Path, folder: Path, sharded: bool, num_steps: int) -> dict[str, Any]:
    """Run in one of the processes, and return what it saw."""
    if sharded:
        shard_on_cpu()
    try:
        return main(start, folder, num_steps=num_steps)
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def in_two_processes(start: Path, folder: Path, *, sharded: bool = False, num_steps: int = 2) -> dict[str, Any]:
    """Make the updates in two processes of torchrun, and return what the first process saw."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=2,
        run_id=str(uuid.uuid4()),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        start_method="fork",
    )
    return elastic_launch(config, one_of_two)(start, folder, sharded, num_steps)[0]


if __name__ == "__main__":
    from tirjudge_training.trainers.trl import adapters  # noqa: F401  (the forks need it)

    gc.freeze()
    gc.enable()
    given, out = map(Path, sys.argv[1:])
    seen = {
        "replicated": in_two_processes(given, out / "replicated"),
        "sharded": in_two_processes(given, out / "sharded", sharded=True, num_steps=1),
        "resumed": in_two_processes(given, out / "sharded", sharded=True),
    }
    (out / "seen.json").write_text(json.dumps(seen))
