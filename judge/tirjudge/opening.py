"""A model to judge with: where its weights are, the engine that runs them, and the profile that belongs to them.

Engines are imported when one is opened, so that the command line starts without them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from tirjudge.errors import CheckpointError, EngineUnavailable
from tirjudge.loop import Engine
from tirjudge.profile import Profile, load_profile, tokenizer_sha256
from tirjudge.weights_lock import WeightsLock

DECIDES_NOTHING = frozenset({"transformers_version", "dtype", "torch_dtype", "_name_or_path", "use_cache"})
"""Entries of a `config.json` that may differ between two checkpoints of one model."""

CHUNK_BYTES = 2**24

MEASURED = frozenset({"real_rows.json", "scores.json", "training.json"})
"""Files of a checkpoint that say how it was made and how well it does: measured anew, it is the same judge."""

SERVED_SIZES = tuple(
    sorted(
        Profile.model_fields.keys() - {"name", "context_tokens", "loop_version", "prompts_sha256", "tokenizer_sha256"}
    )
)
"""What of a profile has to stay as it is while its model is served."""


@runtime_checkable
class Reloads(Protocol):
    """An engine that can exchange its weights."""

    async def reload(self, checkpoint: Path, *, version: str) -> None:
        """Go on with the weights of that folder, of the same model.

        Raises:
            CheckpointError: nothing has changed.
            EngineUnavailable: nobody knows which weights it has now.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """An opened model."""

    engine: Engine
    profile: Profile
    gate: WeightsLock = field(default_factory=WeightsLock)
    """For the judge that uses it; its version is the fingerprint of the weights."""
    config: Mapping[str, Any] | None = None
    """What of its `config.json` decides what is computed; None: it is out of sight."""
    tokenizer_sha256: str | None = None
    """None: it is out of sight."""

    @property
    def fingerprint(self) -> str | None:
        """A hash of the weights and the profile; None when they are out of sight, behind a URL."""
        return self.gate.version

    @property
    def ended(self) -> str | None:
        """Why the engine will never work again; None while it may, as one behind a URL always may."""
        return getattr(self.engine, "ended", None)

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
        if not isinstance(self.engine, Reloads):
            raise CheckpointError("this engine cannot exchange its weights")
        folder = checkpoint_folder(checkpoint).resolve()
        self._check(folder)
        swapping = asyncio.ensure_future(self._swap(self.engine, folder))
        try:
            return await asyncio.shield(swapping)
        except asyncio.CancelledError:  # half a swap is none that could be told
            await asyncio.wait([swapping])
            raise

    async def _swap(self, engine: Reloads, folder: Path) -> str:
        async with self.gate.closed():
            version = await asyncio.to_thread(fingerprint, folder)
            try:
                await engine.reload(folder, version=version)
            except EngineUnavailable:
                self.gate.version = None
                raise
            self.gate.version = version
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
        if config != self.config:
            raise _differs(folder / "config.json", "another model", "its own")
        if self.tokenizer_sha256 not in (None, tokenizer_sha256_of(folder)):
            raise _differs(folder / "tokenizer.json", "another tokenizer", "its own")


def bundled_checkpoint() -> Path:
    """The small judge that comes with the package."""
    return Path(str(resources.files("tirjudge").joinpath("checkpoints", "tiny")))


@asynccontextmanager
async def open_model(
    checkpoint: Path | None = None,
    *,
    engine_urls: Sequence[str] | Callable[[], Sequence[str]] | None = None,
    engine_key: str | None = None,
    engine_wait_s: float = 0.0,
    on_hung_engine: Callable[[str], None] | None = None,
    vllm_arguments: Sequence[str] | None = None,
) -> AsyncIterator[Model]:
    """Open a model, and close it afterwards.

    Args:
        checkpoint: its folder, or with `vllm_arguments` perhaps its name on the hub; None: the bundled judge.
        engine_urls: of vLLM servers that run it, one at least, or what says where they are now (`FleetEngine`);
            `checkpoint` then only gives the profile (None: the default one). None: the embedded engine runs the checkpoint
            in this process.
        engine_key: what the servers were given as `--api-key`; None: nothing.
        engine_wait_s: for how long to ask where engines are, and them, again while none answers at first.
        on_hung_engine: is told the URL of one that hangs.
        vllm_arguments: instead of the embedded engine vLLM runs the checkpoint in this process, with these arguments of
            `vllm serve`; None: it does not.

    Raises:
        CheckpointError: there is no such folder, or it cannot be loaded.
        EngineUnavailable: no URL answers, or vLLM is not here.
    """
    if vllm_arguments is not None:
        async with _open_in_process(checkpoint or bundled_checkpoint(), arguments=vllm_arguments) as model:
            yield model
        return
    if engine_urls is None:
        from tirjudge.engines.embedded import EmbeddedEngine

        folder = checkpoint_folder(checkpoint)
        profile = load_profile(folder)
        embedded = EmbeddedEngine.load(folder)
        try:
            yield Model(
                engine=embedded, profile=profile, gate=WeightsLock(version=fingerprint(folder)), **_seen(folder)
            )
        finally:
            embedded.close()
        return
    from tirjudge.engines.fleet import FleetEngine
    from tirjudge.engines.vllm import VLLMEngine

    connect = partial(VLLMEngine, api_key=engine_key)
    if isinstance(engine_urls, str):  # which is a sequence of strings too
        engine_urls = [engine_urls]
    if callable(engine_urls):
        remote = FleetEngine(engine_urls, connect=connect, on_hung=on_hung_engine, wait_s=engine_wait_s)
    elif len(engine_urls) > 1:
        remote = FleetEngine(lambda: engine_urls, connect=connect)
    else:  # which nobody can stand in for: to leave it out would only fail what it could still do
        remote = connect(engine_urls[0])
    try:
        served = await remote.ready()
        profile = Profile(name=served.name) if checkpoint is None else load_profile(checkpoint_folder(checkpoint))
        context_tokens = min(served.context_tokens, profile.context_tokens)
        profile = profile.model_copy(update={"context_tokens": context_tokens})
        # Only a folder with the tokenizer is that of the model; else it is the profile alone.
        seen = {} if checkpoint is None or not (checkpoint / "tokenizer.json").exists() else _seen(checkpoint)
        yield Model(engine=remote, profile=profile, **seen)
    finally:
        await remote.aclose()


@asynccontextmanager
async def _open_in_process(checkpoint: Path, *, arguments: Sequence[str]) -> AsyncIterator[Model]:
    from tirjudge.engines.vllm_inprocess import open_in_process, options_of

    folder = _folder_or_none(checkpoint)
    profile = Profile(name=str(checkpoint)) if folder is None else load_profile(folder)
    seen = {} if folder is None or not (folder / "tokenizer.json").exists() else _seen(folder)
    version = None if folder is None else await asyncio.to_thread(fingerprint, folder)
    options = {"max_model_len": profile.context_tokens, **options_of(arguments)}
    async with open_in_process(checkpoint, **options) as engine:
        context_tokens = min(engine.served.context_tokens, profile.context_tokens)
        yield Model(
            engine=engine,
            profile=profile.model_copy(update={"context_tokens": context_tokens}),
            gate=WeightsLock(version=version),
            **seen,
        )


def _folder_or_none(checkpoint: Path) -> Path | None:
    """None: it is the name of a model on the hub."""
    return checkpoint if checkpoint.is_dir() else None


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


def _seen(checkpoint: Path) -> dict[str, Any]:
    return {"config": decisive_config(checkpoint), "tokenizer_sha256": tokenizer_sha256_of(checkpoint)}


def _differs(path: Path, theirs: str, served: str) -> CheckpointError:
    return CheckpointError(f"{path}: {theirs}, and what is served has {served}; opening it anew would do")
