"""What is being trained, as the collector meets it: a judge whose weights change between collections."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tirjudge.judge import Judge
from tirjudge.profile import load_profile
from tirjudge.tools.python import Sandbox, python_tools

if TYPE_CHECKING:
    from tirjudge.engines.embedded import EmbeddedEngine

MAX_BATCH = 32
"""Rollouts that the embedded engine computes in one step; training wants throughput where serving wants latency."""


class Policy(Protocol):
    """A judge, and a way to give it new weights."""

    @property
    def judge(self) -> Judge:
        """What rolls out; it may be another object after `load`."""
        ...

    @property
    def version(self) -> int:
        """Of the weights: what `load` was last told."""
        ...

    async def load(self, weights: Mapping[str, Any], *, version: int) -> None:
        """Roll out with these from now on. Nothing may be rolling out meanwhile.

        Args:
            weights: name in the checkpoint -> torch tensor.
            version: rises with each load, such as the number of optimiser steps behind the weights.
        """
        ...


class EmbeddedPolicy:
    """The embedded engine with the sandbox that it is given, for models up to 20M parameters.

    Args:
        checkpoint: folder that it starts from; its tokenizer and profile stay.
        sandbox: runs the programs; None: none can be run.
        version: of the weights in the folder.
        max_batch: rollouts computed in one step.
        backend: as in `EmbeddedEngine.load`.
    """

    def __init__(
        self,
        checkpoint: Path,
        *,
        sandbox: Sandbox | None,
        version: int = 0,
        max_batch: int = MAX_BATCH,
        backend: str = "numpy",
    ) -> None:
        self._checkpoint = checkpoint
        self._sandbox = sandbox
        self._max_batch = max_batch
        self._backend = backend
        self._judge: Judge | None = None
        self._engine: EmbeddedEngine | None = None
        self.version = version

    async def __aenter__(self) -> EmbeddedPolicy:
        """Loads the checkpoint.

        Raises:
            CheckpointError: something is missing, or the model is not one for this engine.
        """
        from tirjudge.engines.embedded import EmbeddedEngine

        profile = load_profile(self._checkpoint)
        self._engine = await asyncio.to_thread(
            EmbeddedEngine.load,
            self._checkpoint,
            backend=self._backend,
            max_batch=self._max_batch,
            context_tokens=profile.context_tokens,
        )
        self._judge = Judge(engine=self._engine, tools=python_tools(self._sandbox), profile=profile)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._engine is not None:
            await asyncio.to_thread(self._engine.close)

    @property
    def judge(self) -> Judge:
        assert self._judge is not None, "a policy is entered before it is used"
        return self._judge

    async def load(self, weights: Mapping[str, Any], *, version: int) -> None:
        """A copy of the weights, so that the trainer may go on with its own.

        Raises:
            CheckpointError: they are of another model, or not all of them are numbers; nothing has changed.
        """
        assert self._engine is not None, "a policy is entered before it is used"
        await self._engine.swap({name: _array_of(tensor) for name, tensor in weights.items()}, version=version)
        self.version = version


def _array_of(tensor: Any) -> Any:
    """A NumPy array, float32, that shares no memory with the tensor."""
    return tensor.detach().float().cpu().numpy().copy()
