"""A model to judge with: where its weights are, the engine that runs them, and the profile that belongs to them.

Engines are imported when one is opened, so that the command line starts without them.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from tirjudge.errors import CheckpointError
from tirjudge.loop import Engine
from tirjudge.profile import Profile, load_profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """An opened model."""

    engine: Engine
    profile: Profile
    fingerprint: str | None
    """A hash of the weights and the profile; None when they are out of sight, behind a URL."""

    @property
    def ended(self) -> str | None:
        """Why the engine will never work again; None while it may, as one behind a URL always may."""
        return getattr(self.engine, "ended", None)


def bundled_checkpoint() -> Path:
    """The small judge that comes with the package."""
    return Path(str(resources.files("tirjudge").joinpath("checkpoints", "tiny")))


@asynccontextmanager
async def open_model(checkpoint: Path | None = None, *, engine_url: str | None = None) -> AsyncIterator[Model]:
    """Open a model, and close it afterwards.

    Args:
        checkpoint: its folder; None: the bundled judge.
        engine_url: a vLLM server that runs it; `checkpoint` then only gives the profile (None: the default one). Without
            a URL the embedded engine runs the checkpoint in this process.

    Raises:
        CheckpointError: there is no such folder, or it cannot be loaded.
        EngineUnavailable: the URL does not answer.
    """
    if engine_url is not None:
        from tirjudge.engines.vllm import VLLMEngine

        remote = VLLMEngine(engine_url)
        try:
            served = await remote.ready()
            profile = Profile(name=served.name) if checkpoint is None else load_profile(checkpoint_folder(checkpoint))
            context_tokens = min(served.context_tokens, profile.context_tokens)
            profile = profile.model_copy(update={"context_tokens": context_tokens})
            yield Model(engine=remote, profile=profile, fingerprint=None)
        finally:
            await remote.aclose()
    else:
        from tirjudge.engines.embedded import EmbeddedEngine

        folder = checkpoint_folder(checkpoint)
        profile = load_profile(folder)
        embedded = EmbeddedEngine.load(folder)
        try:
            yield Model(engine=embedded, profile=profile, fingerprint=fingerprint(folder))
        finally:
            embedded.close()


def checkpoint_folder(checkpoint: Path | None) -> Path:
    """The folder of a checkpoint; None: of the bundled judge.

    Raises:
        CheckpointError: there is none.
    """
    folder = checkpoint or bundled_checkpoint()
    if not folder.is_dir():
        raise CheckpointError(f"model: {folder} is no folder; the folder of a checkpoint would do")
    return folder


def fingerprint(checkpoint: Path) -> str:
    """The first 16 hex digits of a hash over the weights, the tokenizer and the profile of a checkpoint folder."""
    digest = hashlib.sha256()
    for path in sorted([*checkpoint.glob("*.json"), *checkpoint.glob("*.safetensors")]):
        digest.update(f"{path.name}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
