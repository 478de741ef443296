"""A Hugging Face checkpoint folder of a small Qwen3 model, as the embedded engine reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize

from tirjudge.errors import CheckpointError

MAX_PARAMETERS = 20_000_000
"""Above this the weights no longer fit a CPU's cache, and vLLM is faster even there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen3Config:
    """The part of a Qwen3 `config.json` that decides what is computed."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_tokens: int
    """Longest sequence, `max_position_embeddings`."""
    rope_theta: float
    rms_norm_eps: float
    tied: bool
    """Whether the output matrix is the embedding."""

    @classmethod
    def parse(cls, config: Mapping[str, Any], *, source: str = "config") -> Qwen3Config:
        """From the content of `config.json`, as transformers 4 or 5 writes it.

        Raises:
            CheckpointError: another architecture, a variant that is not computed here, or a model that is too large.
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
                raise _needs_vllm(f"{source}: {name} is {given!r}, the embedded engine computes {supported!r}")
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
                f"the embedded engine takes up to {MAX_PARAMETERS / 1e6:.0f}M"
            )
        return parsed

    @property
    def num_parameters(self) -> int:
        """Matrices alone; the norms add less than a thousandth."""
        attention = 2 * self.hidden_size * self.head_dim * (self.num_heads + self.num_kv_heads)
        layer = attention + 3 * self.hidden_size * self.intermediate_size
        return self.num_layers * layer + (1 if self.tied else 2) * self.vocab_size * self.hidden_size

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name in the checkpoint -> shape, of every weight there is."""
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
        """
        Args:
            weights: name in the checkpoint -> array of NumPy or torch.
            source: what they are called.

        Raises:
            CheckpointError: they are not of such a model.
        """
        wanted = self.shapes()
        for name, shape in wanted.items():
            if name not in weights:
                raise CheckpointError(f"{source}: there is no {name}")
            if tuple(weights[name].shape) != shape:
                raise CheckpointError(f"{source}: {name} is {list(weights[name].shape)}, the model has {list(shape)}")
        for name in weights:
            if name not in wanted and name.startswith("model.layers."):
                raise CheckpointError(f"{source}: {name} is none of the model's weights")


def _needs_vllm(problem: str) -> CheckpointError:
    return CheckpointError(f"{problem}; serve it with vLLM and run `tirjudge serve --engine http://host:8000`")


def read_eos_token_ids(path: Path) -> frozenset[int]:
    """Ids that end a turn: those of generation_config.json, else of config.json; none if neither names any."""
    found = read_json(path / "config.json").get("eos_token_id")
    if (path / "generation_config.json").exists():
        found = read_json(path / "generation_config.json").get("eos_token_id", found)
    if found is None:
        return frozenset()
    return frozenset(found if isinstance(found, list) else [found])


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Every tensor of a file, as float32.

    Raises:
        CheckpointError: there is no such file, it is broken, or it holds other types than float32, float16 and bfloat16.
    """
    if not path.exists():
        raise CheckpointError(f"{path}: there is no such file")
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
        raise CheckpointError(f"{name} is {tensor['dtype']}; float32, float16 and bfloat16 can be read")
    return flat.reshape(tensor["shape"])


def read_json(path: Path) -> dict[str, Any]:
    if not path.exists():
        best = path.parent / "best"
        would_do = f"{best} would do" if (best / path.name).exists() else "a Hugging Face checkpoint folder is needed"
        raise CheckpointError(f"{path}: there is no such file; {would_do}")
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise CheckpointError(f"{path}: broken: {error}") from error
