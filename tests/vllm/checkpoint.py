"""The bundled judge as a checkpoint folder for vLLM, and variants of it.

The folder has the tokenizer files and chat template that transformers needs. Its output layer is not tied to the embedding,
because vLLM on a CPU cannot replace tied weights.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from tests.vllm.http_conformance import REFUSES_REPEATED_ROLES
from tirjudge.engines.checkpoint import read_safetensors
from tirjudge.model import bundled_checkpoint
from tirjudge_training.checkpoints import load_tokenizer, save_tokenizer


def write_served(out: Path) -> Path:
    """Write the folder, and return it. `out` must not exist. Its chat template refuses two messages of one role in a row."""
    source = bundled_checkpoint()
    out.mkdir(parents=True)
    tokenizer = load_tokenizer(source)
    tokenizer.chat_template = REFUSES_REPEATED_ROLES + tokenizer.chat_template
    save_tokenizer(tokenizer, out)
    for name in ("config.json", "generation_config.json", "judge.json", "model.safetensors"):
        shutil.copy(source / name, out / name)
    untie(out)
    return out


def make_less_sure(checkpoint: Path) -> None:
    """Multiply the final norm of a folder by 0.8, which changes every probability as a temperature of 1.25 would."""
    weights = read_safetensors(checkpoint / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"] * np.float32(0.8)
    save_file(weights, checkpoint / "model.safetensors")


def untie(checkpoint: Path) -> None:
    """Replace the tied output layer of a folder with a copy of the embedding."""
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    weights = read_safetensors(checkpoint / "model.safetensors")
    save_file(
        {**weights, "lm_head.weight": weights["model.embed_tokens.weight"].copy()}, checkpoint / "model.safetensors"
    )
