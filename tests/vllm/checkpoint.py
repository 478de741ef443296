"""The bundled judge as a folder that vLLM serves: with the files that transformers wants of a tokenizer, and its template."""

from __future__ import annotations

import shutil
from pathlib import Path

from tirjudge.model import bundled_checkpoint
from tirjudge_training.checkpoints import load_tokenizer, save_tokenizer


def write_served(out: Path) -> Path:
    """The folder, written to `out`, which is made."""
    source = bundled_checkpoint()
    out.mkdir(parents=True)
    save_tokenizer(load_tokenizer(source), out)
    for name in ("config.json", "generation_config.json", "judge.json", "model.safetensors"):
        shutil.copy(source / name, out / name)
    return out
