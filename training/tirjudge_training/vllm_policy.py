"""A policy that uses a vLLM server. New weights are passed through a folder that both can access, ideally in shared
memory.

If several processes train, the first one sends the weights, and all of them wait until the server has loaded them.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tirjudge.durable import replacing_folder
from tirjudge.engines.vllm import VLLMEngine
from tirjudge.judge import Judge
from tirjudge.profile import resolved_profile
from tirjudge.tools.functions import ToolFunction
from tirjudge.tools.python import Sandbox, python_tools


class VLLMPolicy:
    """A policy with a vLLM server, which must be started with VLLM_SERVER_DEV_MODE=1 and serve the start checkpoint.

    Args:
        checkpoint: Folder with the initial weights, the config, the tokenizer and the profile.
        url: URL of the server.
        folder: Folder for new weights. The server must see it under the same path.
        sandbox: Sandbox that runs programs. None: programs cannot be run.
        functions: Functions that programs may call.
        rank: Rank of this process. Rank 0 sends the weights.

    Raises:
        CheckpointError: the folder has a broken file.
    """

    def __init__(
        self,
        checkpoint: Path,
        *,
        url: str,
        folder: Path,
        sandbox: Sandbox | None,
        functions: Sequence[ToolFunction] = (),
        rank: int = 0,
    ) -> None:
        self._checkpoint = checkpoint
        self._profile = resolved_profile(checkpoint)
        self._engine = VLLMEngine(url, chat_template_kwargs=self._profile.chat_template_kwargs)
        self._folder = folder
        self._tools = python_tools(sandbox, functions=functions)
        self._rank = rank
        self.version = 0

    async def __aenter__(self) -> VLLMPolicy:
        """Load the checkpoint into the server.

        Raises:
            CheckpointError: the server cannot replace its weights, or it serves a different model.
            EngineUnavailable: the server does not respond.
        """
        served = await self._engine.ready()
        await self._engine.tokenizer.chat_template_kwargs()  # the server supports them, and writes no channels
        context_tokens = min(served.context_tokens, self._profile.context_tokens)
        profile = self._profile.model_copy(update={"context_tokens": context_tokens})
        self.judge = Judge(engine=self._engine, tools=self._tools, profile=profile)
        if self._rank == 0:
            await self._engine.reload(self._checkpoint, version=str(self._checkpoint))
        _wait_for_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._engine.aclose()

    async def load(self, weights: Mapping[str, Any], *, version: int) -> None:
        """Write the weights to the folder, and let the server load them."""
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
