"""A vLLM server as what rolls out: new weights go to it through a folder that both see, best in shared memory.

Of several training processes the first sends the weights, and all of them wait until the server has them.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tirjudge.durable import replacing_folder
from tirjudge.engines.vllm import VLLMEngine
from tirjudge.judge import Judge
from tirjudge.profile import load_profile
from tirjudge.tools.python import Sandbox, python_tools


class VLLMPolicy:
    """A server started with VLLM_SERVER_DEV_MODE=1 that serves the checkpoint training starts from.

    Args:
        checkpoint: folder that training starts from; its config, tokenizer and profile stay.
        url: of the server.
        folder: where new weights are put for it; the server reads it under the same path.
        sandbox: runs the programs; None: none can be run.
        rank: of this process; 0 sends.
    """

    def __init__(self, checkpoint: Path, *, url: str, folder: Path, sandbox: Sandbox | None, rank: int = 0) -> None:
        self._checkpoint = checkpoint
        self._engine = VLLMEngine(url)
        self._folder = folder
        self._sandbox = sandbox
        self._rank = rank
        self.version = 0

    async def __aenter__(self) -> VLLMPolicy:
        """Has the server load the checkpoint.

        Raises:
            CheckpointError: it cannot exchange its weights, or the checkpoint is not its model.
            EngineUnavailable: it does not answer.
        """
        served = await self._engine.ready()
        profile = load_profile(self._checkpoint)
        context_tokens = min(served.context_tokens, profile.context_tokens)
        profile = profile.model_copy(update={"context_tokens": context_tokens})
        self.judge = Judge(engine=self._engine, tools=python_tools(self._sandbox), profile=profile)
        if self._rank == 0:
            await self._engine.reload(self._checkpoint, version=str(self._checkpoint))
        _wait_for_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._engine.aclose()

    async def load(self, weights: Mapping[str, Any], *, version: int) -> None:
        """Write the weights for the server, and have it go on with them."""
        if self._rank == 0:
            await asyncio.to_thread(self._write, weights)
            await self._engine.reload(self._folder, version=str(version))
        _wait_for_all()
        self.version = version

    def _write(self, weights: Mapping[str, Any]) -> None:
        from safetensors.torch import save_file

        with replacing_folder(self._folder) as fresh:
            for file in self._checkpoint.iterdir():
                if file.is_file() and ".safetensors" not in file.name:
                    shutil.copyfile(file, fresh / file.name)
            # Tied weights share memory, which the format does not allow.
            tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in weights.items()}
            save_file(tensors, fresh / "model.safetensors", metadata={"format": "pt"})


def _wait_for_all() -> None:
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.barrier()
