"""Checkpoints: Hugging Face folders with a `judge.json` and a card, replaced atomically.

A server that has loaded a checkpoint is not affected when the folder is replaced.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tirjudge.chat_template import ChatTemplate
from tirjudge.durable import recover_folder, replacing_folder
from tirjudge.errors import CheckpointError
from tirjudge.formats import format_named
from tirjudge.profile import CheckpointFile, Lineage, Profile, resolved_profile, tokenizer_sha256

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel, PreTrainedTokenizerFast


# ------------------------------------------------------------------------------------------------------------- in and out


def export_checkpoint(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    *,
    out: Path,
    profile: Profile,
    lineage: Lineage | None = None,
    metrics: Mapping[str, float] | None = None,
    state_dict: Mapping[str, Any] | None = None,
) -> None:
    """Write a checkpoint that can be served and trained from.

    Args:
        model: Model to save. The weights keep their data type.
        tokenizer: Tokenizer with a chat template.
        out: Checkpoint folder. An existing folder is replaced; if this fails, it is unchanged.
        profile: Profile of the judge. The hash of the tokenizer is added.
        lineage: Origin of the weights. None: unknown.
        metrics: Name -> value, measured on held-out items. None: nothing was measured.
        state_dict: Complete weights, if `model` has only a part of them (FSDP, DeepSpeed). None: the weights of
            `model`.

    Raises:
        CheckpointError: a metric is not finite, the disk is full, or the folder cannot be written.
    """
    state = untied(model, model.state_dict() if state_dict is None else state_dict)
    with replacing(out) as folder:
        model.save_pretrained(folder, state_dict=state)
        save_tokenizer(tokenizer, folder)
        write_checkpoint_file(folder, profile=profile, lineage=lineage, metrics=metrics)
        num_parameters = sum(tensor.numel() for tensor in state.values())
        (folder / "README.md").write_text(_card(folder, num_parameters=num_parameters), encoding="utf-8")


def untied(model: PreTrainedModel, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the weights without tied ones, such as an output layer that equals the embedding.

    Tied weights are found by name, not by shared memory: weights gathered from several processes are separate copies.
    """
    return {name: tensor for name, tensor in state.items() if name not in model.all_tied_weights_keys}


def load_checkpoint(path: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerFast, Profile]:
    """Load a checkpoint for training.

    Returns:
        The model in float32, the tokenizer with its chat template, and the profile with the options of the template.

    Raises:
        CheckpointError: the checkpoint is missing or broken, or it was trained with different prompts, a different
            loop or a different tokenizer.
    """
    import torch
    from transformers import AutoModelForCausalLM

    recover_folder(path)
    if not path.is_dir():
        raise CheckpointError(f"not a checkpoint folder: {path}")
    profile = resolved_profile(path)
    try:
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, local_files_only=True)
    except Exception as error:
        raise CheckpointError(f"{path}: transformers cannot load it: {' '.join(str(error).split())[:300]}") from error
    return model, load_tokenizer(path), profile


def load_tokenizer(path: Path) -> PreTrainedTokenizerFast:
    """Load the tokenizer of a checkpoint folder.

    If the folder has no `tokenizer_config.json`, the tokenizer is loaded from `tokenizer.json`. transformers cannot load
    such a folder: it derives another tokenizer class from the architecture. The tokenizer gets the chat template with
    which the folder is served; ChatML if the folder has none.

    Raises:
        CheckpointError: tokenizer.json is missing, or the chat template is broken.
    """
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    from tirjudge_training.bundled.tokenizer import with_template

    template = ChatTemplate.load(path).source

    file = path / "tokenizer.json"
    if not file.exists():
        raise CheckpointError(f"{path}: no tokenizer.json")
    if not (path / "tokenizer_config.json").exists():
        return with_template(Tokenizer.from_file(str(file)), template=template)
    tokenizer: Any = AutoTokenizer.from_pretrained(path, local_files_only=True)
    tokenizer.chat_template = template
    return tokenizer


UNCALIBRATED = {"label_temperature": 1.0, "program_weight": None, "checked_from": 0.0, "unchecked_weight": 1.0}
"""Fields of the profile of a judge whose probabilities are not calibrated."""


def trained_profile(start: Path) -> Profile:
    """Return the profile of a checkpoint that was trained from another one: the format of its prompts and the options of
    its chat template are recorded. Its probabilities are not calibrated yet.

    Args:
        start: Checkpoint folder with which training started.

    Raises:
        CheckpointError: `judge.json` or the chat template of the folder is broken.
    """
    profile = resolved_profile(start)
    format = format_named(profile.format)
    own = {"format": format.name, "format_sha256": format.sha256}
    return profile.model_copy(update=own | UNCALIBRATED)


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and chat_template.jinja."""
    tokenizer.save_pretrained(folder)
    backend: Tokenizer = tokenizer.backend_tokenizer
    backend.save(str(folder / "tokenizer.json"))  # overwrites the file that transformers wrote, which may differ


def write_checkpoint_file(
    folder: Path, *, profile: Profile, lineage: Lineage | None = None, metrics: Mapping[str, float] | None = None
) -> None:
    """Write `judge.json` into a checkpoint folder that has its tokenizer already. It names the format even if
    the profile does not: the model was trained with the default format then.

    Args:
        folder: Checkpoint folder with a tokenizer.json.
        profile: Profile of the judge. The hash of the tokenizer is added.
        lineage: Origin of the weights. None: unknown.
        metrics: Name -> value, measured on held-out items. None: nothing was measured.

    Raises:
        CheckpointError: a metric is not finite.
    """
    served: dict[str, Any] = profile.model_dump()
    served["format"] = format_named(profile.format).name
    served["tokenizer_sha256"] = tokenizer_sha256(folder / "tokenizer.json")
    try:
        file = CheckpointFile(**served, lineage=lineage, metrics=None if metrics is None else dict(metrics))
    except ValueError as error:
        raise CheckpointError(f"{folder}: metrics must be finite numbers: {dict(metrics or {})}") from error
    text = file.model_dump_json(indent=1, exclude_none=True)
    (folder / "judge.json").write_text(text + "\n", encoding="utf-8")


def weights_sha256(checkpoint: Path) -> str:
    """Return the hash of the weights of a checkpoint folder, which identifies the parent in a lineage.

    Raises:
        CheckpointError: the folder has no weights.
    """
    files = sorted(checkpoint.glob("*.safetensors"))
    if not files:
        raise CheckpointError(f"{checkpoint}: no model.safetensors")
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            while block := opened.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


# --------------------------------------------------------------------------------------------------------------- in place


@contextmanager
def replacing(out: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces `out` at the end of the block. If the block raises, `out` is unchanged.

    All files get the permissions that the umask gives: safetensors writes files that only their owner may read, and a server
    often runs as another user.

    Raises:
        CheckpointError: the disk is full, or the folder cannot be written.
    """
    try:
        with replacing_folder(out) as fresh:
            yield fresh
            for file in filter(Path.is_file, fresh.rglob("*")):
                file.chmod(fresh.stat().st_mode & 0o666)
    except BaseException as error:
        problem = _disk_problem(error)
        if problem is None:
            raise
        kept = "the previous checkpoint is unchanged" if out.exists() else "nothing was written"
        raise CheckpointError(f"{out}: {problem}; {kept}") from error


def _disk_problem(error: BaseException) -> str | None:
    """Return a message about the disk error; None: it is not a disk error.

    safetensors and tokenizers raise other exception types than OSError. Their text contains the message of the operating
    system.
    """
    if isinstance(error, CheckpointError):
        return None
    no_space = os.strerror(errno.ENOSPC)
    if no_space in str(error):
        return f"{no_space}; free some space"
    return error.strerror if isinstance(error, OSError) and error.errno is not None else None


# --------------------------------------------------------------------------------------------------------------- the card


def _card(folder: Path, *, num_parameters: int) -> str:
    """Return the README.md of a checkpoint: recorded facts and measured figures only."""
    file = CheckpointFile.model_validate_json((folder / "judge.json").read_bytes())
    facts = {
        "parameters": f"{num_parameters:,}",
        "weights (SHA-256)": weights_sha256(folder),
        "tokenizer (SHA-256)": file.tokenizer_sha256,
        "format": file.format,
        "format (SHA-256)": file.format_sha256,
        "context": f"{file.context_tokens} tokens",
        **{
            name.replace("_", " "): value for name, value in (file.lineage.model_dump() if file.lineage else {}).items()
        },
    }
    noted = "".join(f"| {name} | {value} |\n" for name, value in facts.items() if value is not None)
    measured = "".join(f"| {name} | {value:.6g} |\n" for name, value in sorted((file.metrics or {}).items()))
    figures = f"| figure | value |\n|---|---|\n{measured}" if measured else "Nothing was measured.\n"
    return (
        f"# {file.name}\n\nA checkpoint of a tool-integrated judge, written by `tirjudge train`. `judge.json` has the same"
        f" facts in machine-readable form.\n\n| | |\n|---|---|\n{noted}\n## Held-out figures\n\n{figures}"
    )
