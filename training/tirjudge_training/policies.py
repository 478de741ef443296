"""Policies: judges whose weights can be replaced between collections."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tirjudge.judge import Judge
from tirjudge.profile import resolved_profile
from tirjudge.tools.functions import ToolFunction
from tirjudge.tools.python import Sandbox, python_tools

if TYPE_CHECKING:
    from tirjudge.engines.embedded import EmbeddedEngine

MAX_BATCH = 32
"""Maximum number of rollouts in one step of the embedded engine. Serving uses a smaller number, for lower latency."""


class Policy(Protocol):
    """A judge with replaceable weights."""

    @property
    def judge(self) -> Judge:
        """Judge that generates rollouts. It may be another object after `load`."""
        ...

    @property
    def version(self) -> int:
        """Version of the weights, as given to the last `load`."""
        ...

    async def load(self, weights: Mapping[str, Any], *, version: int) -> None:
        """Replace the weights. No rollouts may be in progress.

        Args:
            weights: Name in the checkpoint -> torch tensor.
            version: Version of the weights, such as the number of optimizer steps. It must increase with each call.
        """
        ...


class EmbeddedPolicy:
    """A policy with the embedded engine and a sandbox, for models with up to 40M parameters.

    Args:
        checkpoint: Folder with the initial weights, the tokenizer and the profile.
        sandbox: Sandbox that runs programs. None: programs cannot be run.
        functions: Functions that programs may call.
        version: Version of the weights in the folder.
        max_batch: Maximum number of rollouts computed in one step.
        backend: As in `EmbeddedEngine.load`.
    """

    def __init__(
        self,
        checkpoint: Path,
        *,
        sandbox: Sandbox | None,
        functions: Sequence[ToolFunction] = (),
        version: int = 0,
        max_batch: int = MAX_BATCH,
        backend: str = "numpy",
    ) -> None:
        self._checkpoint = checkpoint
        self._tools = python_tools(sandbox, functions=functions)
        self._max_batch = max_batch
        self._backend = backend
        self._judge: Judge | None = None
        self._engine: EmbeddedEngine | None = None
        self.version = version

    async def __aenter__(self) -> EmbeddedPolicy:
        """Load the checkpoint.

        Raises:
            CheckpointError: a file is missing, or the engine does not support the model.
        """
        from tirjudge.engines.embedded import EmbeddedEngine

        profile = resolved_profile(self._checkpoint)
        self._engine = await asyncio.to_thread(
            EmbeddedEngine.load,
            self._checkpoint,
            backend=self._backend,
            max_batch=self._max_batch,
            context_tokens=profile.context_tokens,
            chat_template_kwargs=profile.chat_template_kwargs,
        )
        self._judge = Judge(engine=self._engine, tools=self._tools, profile=profile)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._engine is not None:
            await asyncio.to_thread(self._engine.close)

    @property
    def judge(self) -> Judge:
        """The judge that uses this policy's engine. Available inside the policy's context only."""
        assert self._judge is not None, "the policy must be entered before use"
        return self._judge

    async def load(self, weights: Mapping[str, Any], *, version: int) -> None:
        """Copy the weights into the engine. The trainer may change its tensors afterwards.

        Raises:
            CheckpointError: the weights belong to a different model, or are not finite. The old weights are kept.
        """
        assert self._engine is not None, "the policy must be entered before use"
        await self._engine.swap({name: _array_of(tensor) for name, tensor in weights.items()}, version=version)
        self.version = version


def _array_of(tensor: Any) -> Any:
    """Return a float32 NumPy array that shares no memory with the tensor."""
    return tensor.detach().float().cpu().numpy().copy()
