"""How long one step of a batched engine takes: a straight line in what the step computes.

An engine with continuous batching computes one token of every sequence that decodes, and some tokens of prompts, in each
step. Reading the weights costs the same however many there are; each sequence adds its own work, and its keys and values.
Five numbers, from the data sheet of a GPU and the sizes of a model, describe it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tirjudge_server.planning.figures import Gpu, ModelShape, PlanError


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Seconds of a step."""

    base_s: float
    """Of any step."""
    per_sequence_s: float = 0.0
    """Of each sequence that decodes."""
    per_context_token_s: float = 0.0
    """Of each token in the cache that a decoding sequence looks at."""
    per_prefill_token_s: float = 0.0
    """Of each prompt token that is computed."""
    per_prefill_pair_s: float = 0.0
    """Of each pair of a prompt token and a token that it looks at."""

    def decode_s(self, *, num_sequences: float, context_tokens: float) -> float:
        """Of a step that only decodes.

        Args:
            num_sequences: that decode.
            context_tokens: of all of them together.
        """
        return self.base_s + num_sequences * self.per_sequence_s + context_tokens * self.per_context_token_s

    def prefill_s(self, *, num_tokens: float, start: float) -> float:
        """What computing `num_tokens` of a prompt adds, the first of which looks at `start` others."""
        pairs = num_tokens * (start + num_tokens / 2)
        return num_tokens * self.per_prefill_token_s + pairs * self.per_prefill_pair_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """How weights are kept, and how near an engine comes to the data sheet with it."""

    weight_bytes: float
    """Of a weight of the layers; embedding and output matrix stay at 2."""
    weight_read: float
    """Share of the bandwidth that reading weights comes to."""
    kv_read: float
    """The same for keys and values, which are kept at 2 bytes a number."""
    decode_share: float
    """Share of a decoded token's operations, at the speed of bfloat16, that is not hidden behind reading."""
    prefill_mfu: float
    """Share of the operations of bfloat16 that prefill comes to."""


PRECISIONS: Mapping[str, Precision] = {
    "bf16": Precision(weight_bytes=2, weight_read=0.66, kv_read=0.90, decode_share=0.64, prefill_mfu=0.55),
    "fp8": Precision(weight_bytes=1, weight_read=0.53, kv_read=0.90, decode_share=0.62, prefill_mfu=0.67),
}
"""`benchmarks/plan_engine.py` fits them to published measurements of vLLM 0.30 with Qwen3-8B on an H100."""

SPLIT_EFFICIENCY = 0.85
"""Speed of a GPU of several that share a model, over that of one that has a model to itself."""


def roofline(
    gpu: Gpu,
    model: ModelShape,
    *,
    precision: Precision,
    gpus_per_worker: int = 1,
    split_efficiency: float = SPLIT_EFFICIENCY,
) -> StepCost:
    """The steps of a model on a GPU. Decoding is bound by what has to be read, prefill by what has to be computed.

    Args:
        gpu, model: which.
        precision: of the weights.
        gpus_per_worker: that share the model.
        split_efficiency: of each of them, where there are several.
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
    """That the weights take in memory."""
    kept = model.num_parameters - model.num_body_parameters
    return precision.weight_bytes * model.num_body_parameters + 2 * kept


def find_precision(name: str) -> Precision:
    """
    Raises:
        PlanError: there is no such precision in the table.
    """
    precision = PRECISIONS.get(name.lower())
    if precision is None:
        raise PlanError(f"precision: {name!r} given, known are {', '.join(PRECISIONS)}")
    return precision
