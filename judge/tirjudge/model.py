"""An opened model: the engine that runs it, its profile, and the fingerprint of its weights."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from tirjudge.checks import Checks
from tirjudge.engines.base import Engine
from tirjudge.errors import CheckpointError, EngineUnavailable
from tirjudge.formats import format_named
from tirjudge.prices import Prices
from tirjudge.profile import Profile, load_profile, tokenizer_sha256
from tirjudge.template_options import TemplateOptions, shown_options
from tirjudge.weights_lock import WeightsLock

DECIDES_NOTHING = frozenset({"transformers_version", "dtype", "torch_dtype", "_name_or_path", "use_cache"})
"""Entries of `config.json` that do not affect the output and may differ between two checkpoints of one model."""

CHUNK_BYTES = 2**24
"""Read size for hashing weights."""

MEASURED = frozenset({"measured.json", "scores.json", "training.json"})
"""Checkpoint files about training and measured quality. They are not part of the fingerprint."""

SERVED_SIZES = tuple(
    sorted(
        Profile.model_fields.keys()
        - {"name", "context_tokens", "format", "format_sha256", "tokenizer_sha256", "chat_template_kwargs"}
    )
)
"""Profile fields that a weight swap must not change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """An opened model."""

    engine: Engine
    """Engine that generates the completions."""
    profile: Profile
    """Name, sizes and format of the model."""
    weights: WeightsLock = field(default_factory=WeightsLock)
    """Lock that every judgment holds. Its version is the fingerprint of the weights."""
    config: Mapping[str, Any] | None = None
    """Entries of `config.json` that affect the output. None: not known, because the model is behind a URL."""
    tokenizer_sha256: str | None = None
    """Hash of the tokenizer. None: not known, because the model is behind a URL."""
    chat_template: str | None = None
    """Source of the chat template. None: not known, because the model is behind a URL."""
    checks: Checks | None = None
    """Checks that judge in place of a model. None: a model."""

    @property
    def fingerprint(self) -> str | None:
        """Hash of the weights, the tokenizer and the profile. None: not known, because the model is behind a URL."""
        return self.weights.version

    @property
    def ended(self) -> str | None:
        """Why the engine has failed permanently. None: it works or may recover. An engine behind a URL never ends."""
        return self.engine.ended

    async def swap(self, checkpoint: Path) -> str:
        """Replace the weights with those of another checkpoint of the same model.

        Running judgments finish with the old weights. New judgments wait until the swap is complete. The name of the
        model does not change, because clients request it by name.

        Returns:
            The fingerprint of the new weights, which is the model version of every following judgment.

        Raises:
            CheckpointError: the checkpoint does not exist or is broken, or its model, tokenizer or sizes differ from
                those being served. The old weights are still in use.
            EngineUnavailable: the engine failed during the swap. The version of its weights is not known.
        """
        if not self.engine.facts.reloads:
            raise CheckpointError("this engine cannot replace its weights; restart the server with the new checkpoint")
        folder = checkpoint_folder(checkpoint).resolve()
        self._check(folder)
        swapping = asyncio.ensure_future(self._swap(self.engine, folder))
        try:
            return await asyncio.shield(swapping)
        except asyncio.CancelledError:  # finish the swap, so that the version of the weights stays known
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
        """Check that the checkpoint in `folder` can replace this one.

        Raises:
            CheckpointError: its model, tokenizer or sizes differ.
        """
        # Read config.json first: a folder without one is not a checkpoint.
        config = None if self.config is None else decisive_config(folder)
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
        if theirs.chat_template_kwargs not in (None, ours.chat_template_kwargs or {}):
            given = f"chat_template_kwargs is {shown_options(theirs.chat_template_kwargs)}"
            raise _differs(folder / "judge.json", given, shown_options(ours.chat_template_kwargs))
        if self.chat_template not in (None, chat_template_of(folder)):
            raise _differs(folder, "another chat template", "its own")
        if config != self.config:
            raise CheckpointError(
                f"{folder / 'config.json'}: differs from the served model; restart the server to serve it"
            )
        if self.tokenizer_sha256 not in (None, tokenizer_sha256_of(folder)):
            raise CheckpointError(
                f"{folder / 'tokenizer.json'}: differs from the served model; restart the server to serve it"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Options for opening a model, besides its address. Each engine uses the options that apply to it."""

    profile: Path | None = None
    """Folder with the `judge.json` to use. None: the checkpoint's own, or the default profile."""
    key: str | None = None
    """API key of the servers or the endpoint. None: no key is sent."""
    wait_s: float = 0.0
    """Maximum time to wait at startup until a server answers, in seconds."""
    timeout_s: float | None = None
    """Maximum seconds of one answer of a chat endpoint. None: the default of the engine."""
    max_concurrency: int | None = None
    """Maximum number of concurrent requests to a chat endpoint. None: the default of the engine."""
    context_tokens: int | None = None
    """Context of a model behind a chat endpoint, in tokens. None: the default of the engine."""
    prices: Prices | None = None
    """Prices of a chat endpoint, in US dollars. None: unknown."""
    urls: Callable[[], Sequence[str]] | None = None
    """Returns the current URLs of the vLLM servers, for fleets that change. None: use the address."""
    on_hung: Callable[[str], None] | None = None
    """Called with the URL of a server that hangs. None: no callback."""
    vllm_arguments: Sequence[str] = ()
    """Command line arguments of `vllm serve`, for vLLM in this process."""
    chat_template_kwargs: TemplateOptions | None = None
    """Options of the chat template. None: those of the profile."""
    slots: int | None = None
    """Maximum number of concurrent programs of checks. None: the number of CPU cores."""
    allow_unsafe_sandbox: bool = False
    """Whether checks run programs even if this machine offers no isolation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKind:
    """A kind of engine, the object that an entry point of the group `tirjudge.engines` names."""

    name: str
    """Name of the kind, the part of a model address before the colon."""
    address: str
    """Syntax of the part after `NAME:`, for help and messages, such as `URL[,URL]`."""
    open: Callable[[str, EngineOptions], AbstractAsyncContextManager[Model]]
    """Return a context manager that opens the model at an address and closes it on exit. It raises CheckpointError,
    EngineUnavailable or ValueError."""


def bundled_checkpoint() -> Path:
    """Return the folder of the small judge that is part of the package."""
    return Path(str(resources.files("tirjudge").joinpath("checkpoints", "tiny")))


def checkpoint_folder(checkpoint: Path | None, *, option: str = "model") -> Path:
    """Return the folder of a checkpoint. None: the bundled judge.

    Args:
        checkpoint: the folder.
        option: name of the option that gave it, for the error.

    Raises:
        CheckpointError: the folder does not exist.
    """
    folder = checkpoint or bundled_checkpoint()
    if not folder.is_dir():
        raise CheckpointError(f"{option}: {folder} is not a checkpoint folder")
    return folder


def fingerprint(checkpoint: Path) -> str:
    """Return the first 16 hex digits of a SHA-256 over the weights, the tokenizer and the profile of a checkpoint
    folder."""
    digest = hashlib.sha256()
    deciding = (path for path in checkpoint.glob("*.json") if path.name not in MEASURED)
    for path in sorted([*deciding, *checkpoint.glob("*.safetensors")]):
        digest.update(f"{path.name}\0".encode())
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()[:16]


def decisive_config(checkpoint: Path) -> dict[str, Any]:
    """Return the entries of a checkpoint's `config.json` that affect the output.

    Raises:
        CheckpointError: the file does not exist or is not valid JSON.
    """
    from tirjudge.engines.checkpoint import read_json

    config = read_json(checkpoint / "config.json")
    return {name: value for name, value in config.items() if name not in DECIDES_NOTHING}


def tokenizer_sha256_of(checkpoint: Path) -> str:
    """Return the hash of a checkpoint's tokenizer.

    Raises:
        CheckpointError: the folder has no `tokenizer.json`, or it is not valid JSON.
    """
    path = checkpoint / "tokenizer.json"
    if not path.exists():
        raise CheckpointError(f"{checkpoint}: no tokenizer.json")
    return tokenizer_sha256(path)


def chat_template_of(checkpoint: Path) -> str:
    """Return the source of a checkpoint's chat template, without surrounding whitespace.

    Raises:
        CheckpointError: the template is broken.
    """
    from tirjudge.chat_template import ChatTemplate

    return ChatTemplate.load(checkpoint, kwargs={}).source.strip()


def identity_of(checkpoint: Path) -> dict[str, Any]:
    """Return the fields of `Model` that identify a checkpoint: `config`, `tokenizer_sha256` and `chat_template`.

    Raises:
        CheckpointError: the folder has no `config.json` or no `tokenizer.json`, or a file is broken.
    """
    return {
        "config": decisive_config(checkpoint),
        "tokenizer_sha256": tokenizer_sha256_of(checkpoint),
        "chat_template": chat_template_of(checkpoint),
    }


def _differs(path: Path, theirs: str, served: str) -> CheckpointError:
    return CheckpointError(f"{path}: {theirs}, but the served model has {served}; restart the server to serve it")
