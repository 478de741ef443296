"""The duration of one step of an engine with continuous batching, as a linear model.

In each step the engine computes one token of every decoding sequence, and some prompt tokens. Reading the weights takes the
same time for any batch size; each sequence adds its computation and the read of its keys and values. The model has five
coefficients, which follow from the GPU's data sheet and the model's sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tirjudge_server.planning.figures import Gpu, ModelShape, PlanError


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """The coefficients of the duration of a step, in seconds."""

    base_s: float
    """Seconds of an empty step."""
    per_sequence_s: float = 0.0
    """Seconds per decoding sequence."""
    per_context_token_s: float = 0.0
    """Seconds per cached token that a decoding sequence attends to."""
    per_prefill_token_s: float = 0.0
    """Seconds per computed prompt token."""
    per_prefill_pair_s: float = 0.0
    """Seconds per pair of a computed prompt token and a token that it attends to."""

    def decode_s(self, *, num_sequences: float, context_tokens: float) -> float:
        """Seconds of a step that only decodes.

        Args:
            num_sequences: number of decoding sequences.
            context_tokens: total context tokens of these sequences.
        """
        return self.base_s + num_sequences * self.per_sequence_s + context_tokens * self.per_context_token_s

    def prefill_s(self, *, num_tokens: float, start: float) -> float:
        """Additional seconds for computing prompt tokens.

        Args:
            num_tokens: number of prompt tokens.
            start: number of tokens before the first of them.
        """
        pairs = num_tokens * (start + num_tokens / 2)
        return num_tokens * self.per_prefill_token_s + pairs * self.per_prefill_pair_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """A precision of the weights, and the efficiency that an engine reaches with it."""

    weight_bytes: float
    """Bytes per weight of the layers; embedding and output matrix have 2 bytes per weight."""
    weight_read: float
    """Achieved share of the memory bandwidth when reading weights."""
    kv_read: float
    """Achieved share of the memory bandwidth when reading keys and values, which have 2 bytes per number."""
    decode_share: float
    """Share of a decoded token's operations, at bfloat16 speed, that does not overlap with memory reads."""
    prefill_mfu: float
    """Achieved share of the peak bfloat16 operations in prefill."""


PRECISIONS: Mapping[str, Precision] = {
    "bf16": Precision(weight_bytes=2, weight_read=0.66, kv_read=0.90, decode_share=0.64, prefill_mfu=0.55),
    "fp8": Precision(weight_bytes=1, weight_read=0.53, kv_read=0.90, decode_share=0.62, prefill_mfu=0.67),
}
"""Name -> precision. `benchmarks/plan_engine.py` fits the shares to published measurements of vLLM 0.30 with Qwen3-8B on an
H100."""

SPLIT_EFFICIENCY = 0.85
"""Speed of each GPU when several share a model, relative to a single GPU."""


def roofline(
    gpu: Gpu,
    model: ModelShape,
    *,
    precision: Precision,
    gpus_per_worker: int = 1,
    split_efficiency: float = SPLIT_EFFICIENCY,
) -> StepCost:
    """Step costs of a model on a GPU. Decoding is bound by memory bandwidth, prefill by computation.

    Args:
        gpu: the GPU.
        model: the model.
        precision: precision of the weights.
        gpus_per_worker: number of GPUs that share the model.
        split_efficiency: speed of each GPU if there are several, relative to a single one.
    """
    speed = gpus_per_worker * (split_efficiency if gpus_per_worker > 1 else 1.0)
    bandwidth, flops = gpu.bandwidth * speed, gpu.flops * speed
    read_bytes = precision.weight_bytes * model.num_body_parameters + 2 * model.num_head_parameters
    decode_flops = 2.0 * (model.num_body_parameters + model.num_head_parameters)
    return StepCost(
        base_s=read_bytes / (bandwidth * precision.weight_read),
        per_sequence_s=precision.decode_share * decode_flops / flops,
        per_context_token_s=model.kv_bytes_per_token / (bandwidth * precision.kv_read),
        per_prefill_token_s=2.0 * model.num_body_parameters / (flops * precision.prefill_mfu),
        per_prefill_pair_s=model.attention_flops_per_pair / (flops * precision.prefill_mfu),
    )


def weights_bytes(model: ModelShape, *, precision: Precision) -> float:
    """Bytes of the weights in memory."""
    kept = model.num_parameters - model.num_body_parameters
    return precision.weight_bytes * model.num_body_parameters + 2 * kept


def find_precision(name: str) -> Precision:
    """Return a precision by its name (case-insensitive).

    Raises:
        PlanError: the table has no such precision.
    """
    precision = PRECISIONS.get(name.lower())
    if precision is None:
        raise PlanError(f"precision: expected one of {', '.join(PRECISIONS)}, got {name!r}")
    return precision
