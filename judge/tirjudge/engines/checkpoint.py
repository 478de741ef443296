"""Read a Hugging Face checkpoint folder of a small Qwen3 model for the embedded engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize

from tirjudge.errors import CheckpointError

MAX_PARAMETERS = 40_000_000
"""Maximum model size. It admits a judge of a few million parameters with a vocabulary of 150,000 tokens. For larger
models, vLLM is faster even on a CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen3Config:
    """The entries of a Qwen3 `config.json` that affect the output."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_tokens: int
    """Maximum length of a sequence, `max_position_embeddings`."""
    rope_theta: float
    rms_norm_eps: float
    tied: bool
    """Whether the output matrix is the embedding."""

    @classmethod
    def parse(cls, config: Mapping[str, Any], *, source: str = "config") -> Qwen3Config:
        """Parse the content of a `config.json` written by transformers 4 or 5.

        Args:
            config: content of the file.
            source: name of the checkpoint, for error messages.

        Raises:
            CheckpointError: the architecture or one of its options is not supported, or the model is too large.
        """
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        features = {
            "model_type": (config.get("model_type"), "qwen3"),
            "hidden_act": (config.get("hidden_act", "silu"), "silu"),
            "attention_bias": (config.get("attention_bias", False), False),
            "use_sliding_window": (config.get("use_sliding_window", False), False),
            "rope_type": (rope.get("rope_type", "default"), "default"),
        }
        for name, (given, supported) in features.items():
            if given != supported:
                raise _needs_vllm(f"{source}: {name} is {given!r}, but the embedded engine supports only {supported!r}")
        num_heads, hidden_size = config["num_attention_heads"], config["hidden_size"]
        parsed = cls(
            vocab_size=config["vocab_size"],
            hidden_size=hidden_size,
            intermediate_size=config["intermediate_size"],
            num_layers=config["num_hidden_layers"],
            num_heads=num_heads,
            num_kv_heads=config.get("num_key_value_heads") or num_heads,
            head_dim=config.get("head_dim") or hidden_size // num_heads,
            context_tokens=config["max_position_embeddings"],
            rope_theta=float(rope.get("rope_theta") or config.get("rope_theta") or 10_000.0),
            rms_norm_eps=config["rms_norm_eps"],
            tied=config.get("tie_word_embeddings", False),
        )
        if parsed.num_parameters > MAX_PARAMETERS:
            raise _needs_vllm(
                f"{source}: the model has {parsed.num_parameters / 1e6:.1f}M parameters, "
                f"but the embedded engine supports at most {MAX_PARAMETERS / 1e6:.0f}M"
            )
        return parsed

    @property
    def num_parameters(self) -> int:
        """Number of parameters, without the norms, which add less than 0.1 %."""
        attention = 2 * self.hidden_size * self.head_dim * (self.num_heads + self.num_kv_heads)
        layer = attention + 3 * self.hidden_size * self.intermediate_size
        return self.num_layers * layer + (1 if self.tied else 2) * self.vocab_size * self.hidden_size

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return name in the checkpoint -> shape, for every weight."""
        hidden, inner = (self.hidden_size,), self.intermediate_size
        queries, keys = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        layer = {
            "input_layernorm": hidden,
            "post_attention_layernorm": hidden,
            "self_attn.q_proj": (queries, *hidden),
            "self_attn.k_proj": (keys, *hidden),
            "self_attn.v_proj": (keys, *hidden),
            "self_attn.o_proj": (*hidden, queries),
            "self_attn.q_norm": (self.head_dim,),
            "self_attn.k_norm": (self.head_dim,),
            "mlp.gate_proj": (inner, *hidden),
            "mlp.up_proj": (inner, *hidden),
            "mlp.down_proj": (*hidden, inner),
        }
        layers = {f"model.layers.{n}.{name}": shape for n in range(self.num_layers) for name, shape in layer.items()}
        embedding = (self.vocab_size, *hidden)
        head = {} if self.tied else {"lm_head": embedding}
        shapes = {"model.embed_tokens": embedding, "model.norm": hidden, **head, **layers}
        return {f"{name}.weight": shape for name, shape in shapes.items()}

    def check(self, weights: Mapping[str, Any], *, source: str = "weights") -> None:
        """Check the names and shapes of weights against this configuration.

        Args:
            weights: name in the checkpoint -> array of NumPy or torch.
            source: name of the weights, for error messages.

        Raises:
            CheckpointError: a weight is missing, unknown, or has another shape.
        """
        expected = self.shapes()
        for name, shape in expected.items():
            if name not in weights:
                raise CheckpointError(f"{source}: {name} is missing")
            if tuple(weights[name].shape) != shape:
                found = list(weights[name].shape)
                raise CheckpointError(
                    f"{source}: {name} has shape {found}, but the configuration requires {list(shape)}"
                )
        for name in weights:
            if name not in expected and name.startswith("model.layers."):
                raise CheckpointError(f"{source}: {name} is not a weight of this model")


def _needs_vllm(problem: str) -> CheckpointError:
    return CheckpointError(f"{problem}; serve it with vLLM and run `tirjudge serve --engine http://host:8000`")


def read_eos_token_ids(path: Path) -> frozenset[int]:
    """Return the end-of-turn ids from generation_config.json or config.json; empty if neither file has any.

    Raises:
        CheckpointError: config.json does not exist, or one of the files is not valid JSON.
    """
    found = read_json(path / "config.json").get("eos_token_id")
    if (path / "generation_config.json").exists():
        found = read_json(path / "generation_config.json").get("eos_token_id", found)
    if found is None:
        return frozenset()
    return frozenset(found if isinstance(found, list) else [found])


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Read every tensor of a safetensors file as float32.

    Raises:
        CheckpointError: the file does not exist or is broken, or a tensor is not float32, float16 or bfloat16.
    """
    if not path.exists():
        raise CheckpointError(f"{path}: no such file")
    try:
        tensors = deserialize(path.read_bytes())
    except SafetensorError as error:
        raise CheckpointError(f"{path}: broken: {error}") from error
    return {name: _float32(tensor, name=f"{path}: {name}") for name, tensor in tensors}


def _float32(tensor: Mapping[str, Any], *, name: str) -> np.ndarray:
    if tensor["dtype"] == "BF16":  # the upper half of a float32
        flat = (np.frombuffer(tensor["data"], dtype=np.uint16).astype(np.uint32) << 16).view(np.float32)
    elif tensor["dtype"] in ("F32", "F16"):
        flat = np.frombuffer(tensor["data"], dtype=f"<f{int(tensor['dtype'][1:]) // 8}").astype(np.float32)
    else:
        raise CheckpointError(f"{name} has type {tensor['dtype']}; supported are float32, float16 and bfloat16")
    return flat.reshape(tensor["shape"])


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file of a checkpoint folder.

    Raises:
        CheckpointError: the file does not exist or is not valid JSON. If the folder `best` next to it is a checkpoint,
            the message names that folder.
    """
    if not path.exists():
        best = path.parent / "best"
        advice = f"give {best}" if (best / path.name).exists() else "give a Hugging Face checkpoint folder"
        raise CheckpointError(f"{path}: no such file; {advice}")
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise CheckpointError(f"{path}: broken: {error}") from error
