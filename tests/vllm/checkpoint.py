"""The bundled judge as a folder that vLLM serves: with the files that transformers wants of a tokenizer, its template, and
an output layer of its own, without which vLLM on a CPU cannot exchange its weights. And how another judge is made of it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from tirjudge.engines.checkpoint import read_safetensors
from tirjudge.model import bundled_checkpoint
from tirjudge_training.checkpoints import load_tokenizer, save_tokenizer


def write_served(out: Path) -> Path:
    """The folder, written to `out`, which is made."""
    source = bundled_checkpoint()
    out.mkdir(parents=True)
    save_tokenizer(load_tokenizer(source), out)
    for name in ("config.json", "generation_config.json", "judge.json", "model.safetensors"):
        shutil.copy(source / name, out / name)
    untie(out)
    return out


def move_weights(checkpoint: Path, *, by: float) -> None:
    """Move the weights of a folder in some direction, by so many of their standard deviations."""
    rng = np.random.default_rng(3)
    weights = read_safetensors(checkpoint / "model.safetensors")
    moved = {name: array + array.std() * by * rng.normal(size=array.shape) for name, array in weights.items()}
    save_file({name: array.astype(np.float32) for name, array in moved.items()}, checkpoint / "model.safetensors")


def untie(checkpoint: Path) -> None:
    """Give the output layer of a folder weights of its own, equal to those that it had in common with the embedding."""
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    weights = read_safetensors(checkpoint / "model.safetensors")
    save_file(
        {**weights, "lm_head.weight": weights["model.embed_tokens.weight"].copy()}, checkpoint / "model.safetensors"
    )
