"""A model to judge with: the engine that runs it, its profile, and what tells its weights from others."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from tirjudge.engines.base import Engine
from tirjudge.errors import CheckpointError, EngineUnavailable
from tirjudge.formats import format_named
from tirjudge.profile import Profile, load_profile, tokenizer_sha256
from tirjudge.weights_lock import WeightsLock

DECIDES_NOTHING = frozenset({"transformers_version", "dtype", "torch_dtype", "_name_or_path", "use_cache"})
"""Entries of a `config.json` that may differ between two checkpoints of one model."""

CHUNK_BYTES = 2**24

MEASURED = frozenset({"real_rows.json", "scores.json", "training.json"})
"""Files of a checkpoint that say how it was made and how well it does: measured anew, it is the same judge."""

SERVED_SIZES = tuple(
    sorted(Profile.model_fields.keys() - {"name", "context_tokens", "format", "format_sha256", "tokenizer_sha256"})
)
"""What of a profile has to stay as it is while its model is served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """An opened model."""

    engine: Engine
    profile: Profile
    weights: WeightsLock = field(default_factory=WeightsLock)
    """For the judge that uses it; its version is the fingerprint of the weights."""
    config: Mapping[str, Any] | None = None
    """What of its `config.json` decides what is computed; None: it is out of sight."""
    tokenizer_sha256: str | None = None
    """None: it is out of sight."""

    @property
    def fingerprint(self) -> str | None:
        """A hash of the weights and the profile; None when they are out of sight, behind a URL."""
        return self.weights.version

    @property
    def ended(self) -> str | None:
        """Why the engine will never work again; None while it may, as one behind a URL always may."""
        return self.engine.ended

    async def swap(self, checkpoint: Path) -> str:
        """Judge with the weights of another checkpoint of the same model from now on. Judgments under way end with those
        that they began with; those that come meanwhile wait. The name stays, since callers ask for it.

        Returns:
            the fingerprint of the weights, the version of every judgment that follows.

        Raises:
            CheckpointError: there is no such checkpoint, it is broken, or it is of another model, another tokenizer or
                with other sizes than what is served; nothing has changed.
            EngineUnavailable: the engine does not work; it is not known any more what it judges with.
        """
        if not self.engine.facts.reloads:
            raise CheckpointError("this engine cannot exchange its weights")
        folder = checkpoint_folder(checkpoint).resolve()
        self._check(folder)
        swapping = asyncio.ensure_future(self._swap(self.engine, folder))
        try:
            return await asyncio.shield(swapping)
        except asyncio.CancelledError:  # half a swap is none that could be told
            await asyncio.wait([swapping])
            raise

    async def _swap(self, engine: Engine, folder: Path) -> str:
        async with self.weights.closed():
            version = await asyncio.to_thread(fingerprint, folder)
            try:
                await engine.reload(folder, version=version)
            except EngineUnavailable:
                self.weights.version = None
                raise
            self.weights.version = version
            return version

    def _check(self, folder: Path) -> None:
        """
        Raises:
            CheckpointError: the weights there are not for this model.
        """
        config = (
            None if self.config is None else decisive_config(folder)
        )  # first: a folder without one is no checkpoint
        theirs, ours = load_profile(folder), self.profile
        if theirs.context_tokens < ours.context_tokens:
            raise _differs(
                folder / "judge.json", f"context_tokens is {theirs.context_tokens}", f"{ours.context_tokens}"
            )
        for name in SERVED_SIZES:
            if getattr(theirs, name) != getattr(ours, name):
                raise _differs(folder / "judge.json", f"{name} is {getattr(theirs, name)}", f"{getattr(ours, name)}")
        if theirs.format is not None and format_named(theirs.format) is not format_named(ours.format):
            raise _differs(folder / "judge.json", f"format is {theirs.format}", format_named(ours.format).name)
        if config != self.config:
            raise _differs(folder / "config.json", "another model", "its own")
        if self.tokenizer_sha256 not in (None, tokenizer_sha256_of(folder)):
            raise _differs(folder / "tokenizer.json", "another tokenizer", "its own")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """What is said of a model besides where it is. An engine takes what concerns it."""

    profile: Path | None = None
    """Folder whose `judge.json` has the sizes and the format; None: that of the checkpoint, or the default one."""
    key: str | None = None
    """Of the servers or the endpoint; None: none is sent."""
    wait_s: float = 0.0
    """For how long servers are asked again while none answers at first."""
    urls: Callable[[], Sequence[str]] | None = None
    """Says where vLLM servers are now, if that changes; instead of an address."""
    on_hung: Callable[[str], None] | None = None
    """Told the URL of a server that hangs."""
    vllm_arguments: Sequence[str] = ()
    """Of `vllm serve`, for vLLM in this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKind:
    """A kind of engine: what an entry point of the group `tirjudge.engines` names."""

    name: str
    address: str
    """What stands after `NAME:`, for help and messages, such as `URL[,URL]`."""
    open: Callable[[str, EngineOptions], AbstractAsyncContextManager[Model]]
    """Opens the model at an address, and closes it afterwards. Raises CheckpointError, EngineUnavailable or ValueError."""


def bundled_checkpoint() -> Path:
    """The small judge that comes with the package."""
    return Path(str(resources.files("tirjudge").joinpath("checkpoints", "tiny")))


def checkpoint_folder(checkpoint: Path | None) -> Path:
    """The folder of a checkpoint; None: of the bundled judge.

    Raises:
        CheckpointError: there is none.
    """
    folder = checkpoint or bundled_checkpoint()
    if not folder.is_dir():
        raise CheckpointError(f"model: {folder} is not a checkpoint folder")
    return folder


def fingerprint(checkpoint: Path) -> str:
    """The first 16 hex digits of a hash over the weights, the tokenizer and the profile of a checkpoint folder."""
    digest = hashlib.sha256()
    deciding = (path for path in checkpoint.glob("*.json") if path.name not in MEASURED)
    for path in sorted([*deciding, *checkpoint.glob("*.safetensors")]):
        digest.update(f"{path.name}\0".encode())
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()[:16]


def decisive_config(checkpoint: Path) -> dict[str, Any]:
    """What of the `config.json` of a checkpoint folder decides what is computed.

    Raises:
        CheckpointError: there is none, or it is broken.
    """
    from tirjudge.engines.checkpoint import read_json

    config = read_json(checkpoint / "config.json")
    return {name: value for name, value in config.items() if name not in DECIDES_NOTHING}


def tokenizer_sha256_of(checkpoint: Path) -> str:
    """
    Raises:
        CheckpointError: the folder has no tokenizer.
    """
    path = checkpoint / "tokenizer.json"
    if not path.exists():
        raise CheckpointError(f"{checkpoint}: no tokenizer.json")
    return tokenizer_sha256(path)


def identity_of(checkpoint: Path) -> dict[str, Any]:
    """The fields of `Model` that a checkpoint folder tells.

    Raises:
        CheckpointError: it has no configuration or no tokenizer.
    """
    return {"config": decisive_config(checkpoint), "tokenizer_sha256": tokenizer_sha256_of(checkpoint)}


def _differs(path: Path, theirs: str, served: str) -> CheckpointError:
    return CheckpointError(f"{path}: {theirs}, and what is served has {served}; restart the server to serve it")
