"""Computes GPUs, cores and cost from a number of judgments per day, with closed formulas.

With B sequences in a worker's batch, a rollout uses this much GPU time:

    seconds = output_tokens * step(B) / B  +  prefill(prompt)  +  prefill(outputs of programs)

All B sequences share a step, and no sequence decodes during prefill. At the actual request rate the batch is smaller than
its maximum; its size, and the latency of a rollout, follow from Little's law.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tirjudge_server.planning.figures import FigureSource, Gpu, ModelShape, PlanError, PlanFigure
from tirjudge_server.planning.inputs import FITTED_SHARES, inputs
from tirjudge_server.planning.queueing import servers_for
from tirjudge_server.planning.steps import Precision, StepCost, roofline, weights_bytes

DAY_S = 86_400
"""Seconds per day."""
READ_TOKENS = 16
"""Tokens that are computed again to read the label probabilities: about one block of the prefix cache."""
SPARE_TOKENS = 64
"""Tokens of the context that a rollout cannot use: the read of the verdict, and the last block, which is not full."""

FORMULAS: Mapping[str, tuple[str, str]] = {
    "mean_rollouts_per_s": ("1/s", "judgments_per_day * rollouts / 86400"),
    "peak_rollouts_per_s": ("1/s", "mean_rollouts_per_s * peak"),
    "weights_gb": ("GB", "parameters of the layers * bytes of the precision + embedding and output matrix * 2"),
    "kv_bytes_per_token": ("B", "2 * layers * kv_heads * head_dim * 2 bytes"),
    "held_tokens": (
        "tokens",
        "prompt_tokens + output_tokens + programs * observation_tokens: one rollout at its end",
    ),
    "kv_tokens": ("tokens", "(memory * memory_share - weights - reserve) / kv_bytes_per_token: of one worker"),
    "batch": ("", "min(max_sequences, kv_tokens / held_tokens): maximum rollouts in the batch of a worker"),
    "mean_context": (
        "tokens",
        "prompt_tokens + half of the later tokens: mean number of tokens that a token attends to",
    ),
    "step_ms": ("ms", "weights + batch * (computation + mean_context * keys and values)"),
    "tokens_per_s": ("1/s", "batch / step: of a worker that only decodes"),
    "prefill_ms": ("ms", "prompt once, programs' outputs, the read of the verdict"),
    "gpu_s_per_rollout": ("s", "output_tokens * step / batch + prefill: of a worker with a full batch"),
    "rollouts_per_s_per_worker": ("1/s", "1 / gpu_s_per_rollout"),
    "workers": ("", "peak_rollouts_per_s / (rollouts_per_s_per_worker * use), rounded up"),
    "gpus": ("", "workers * gpus_per_worker"),
    "batch_at_peak": ("", "Little's law: rate * output_tokens * step(batch) / (1 - rate * prefill), solved for batch"),
    "latency_at_peak_s": ("s", "mean: output_tokens * step(batch_at_peak), prefill and programs"),
    "latency_alone_s": ("s", "the same for a single rollout on an idle worker"),
    "programs_per_s": ("1/s", "peak_rollouts_per_s * programs"),
    "sandbox_slots": ("cores", "minimum at which at most a share of sandbox_wait of the programs waits (Erlang C)"),
    "server_core_ms": (
        "core-ms",
        "server_judgment_ms + programs * server_program_ms + (programs + 2) * server_call_ms: of one rollout",
    ),
    "servers": ("cores", "peak_rollouts_per_s * server_core_ms / use; a server process uses one core"),
    "under_way": ("", "Little's law: concurrent rollouts at the peak"),
    "places": ("", "1.5 * under_way / servers: --max-concurrency of each server"),
    "gpu_usd_per_day": ("$", "gpus * usd_per_gpu_hour * 24"),
    "core_usd_per_day": ("$", "(sandbox_slots + servers) * usd_per_core_hour * 24"),
    "usd_per_million": (
        "$",
        "(gpu_usd_per_day + core_usd_per_day) / judgments_per_day * 1e6: the fleet is rented all day",
    ),
    "usd_per_million_at_full_use": (
        "$",
        "gpu_s_per_rollout * rollouts * usd_per_gpu_hour / 3600 * 1e6: GPUs that are never idle, as in a batch",
    ),
}
"""Name of an output -> its unit and its formula."""

_Values = dict[str, float]
"""Name -> value, of the inputs and of the outputs so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityQuestion:
    """The load, model and hardware to plan for."""

    judgments_per_day: float
    """Number of judgments per day."""
    gpu: Gpu
    """The GPU."""
    model: ModelShape
    """The model."""
    precision: Precision
    """Precision of the weights."""
    gpus_per_worker: int = 1
    """Number of GPUs that share the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPlan:
    """A capacity plan: its inputs and results."""

    question: CapacityQuestion
    """The load, model and hardware."""
    inputs: dict[str, PlanFigure]
    """Name -> input."""
    outputs: dict[str, PlanFigure]
    """Name -> result."""
    cost: StepCost
    """Step costs of the model on the GPU."""

    def __getitem__(self, name: str) -> float:
        """The value of an input or an output."""
        return (self.inputs | self.outputs)[name].value


def plan(question: CapacityQuestion, given: Mapping[str, float | None] | None = None) -> CapacityPlan:
    """Compute the fleet for a load.

    Args:
        question: the load, model and hardware.
        given: name of an input -> value; None: the default. None for the whole mapping: all defaults.

    Raises:
        PlanError: a number is out of range, or the model does not fit into memory.
    """
    if not 0 < question.judgments_per_day < math.inf:
        raise PlanError(f"--judgments-per-day: expected a number above 0, got {question.judgments_per_day:g}")
    found = inputs(given or {}, gpu=question.gpu, precision=question.precision)
    value = {name: figure.value for name, figure in found.items()}
    precision = replace(question.precision, **{name: value[name] for name in FITTED_SHARES})
    cost = roofline(
        question.gpu,
        question.model,
        precision=precision,
        gpus_per_worker=question.gpus_per_worker,
        split_efficiency=value["split_efficiency"],
    )
    value["mean_rollouts_per_s"] = question.judgments_per_day * value["rollouts"] / DAY_S
    value["peak_rollouts_per_s"] = value["mean_rollouts_per_s"] * value["peak"]
    _memory(value, question=question, precision=precision)
    _worker(value, cost=cost)
    _fleet(value, question=question, cost=cost)
    _processors(value)
    _money(value, question=question)
    outputs = {
        name: PlanFigure(name=name, value=value[name], unit=unit, origin=FigureSource.DERIVED, source=formula)
        for name, (unit, formula) in FORMULAS.items()
    }
    return CapacityPlan(question=question, inputs=found, outputs=outputs, cost=cost)


def _memory(value: _Values, *, question: CapacityQuestion, precision: Precision) -> None:
    """Compute the rollouts that fit into the memory of one worker.

    Raises:
        PlanError: the context is too small for a rollout, or the memory is too small for one sequence.
    """
    model, gpus = question.model, question.gpus_per_worker
    value["weights_gb"] = weights_bytes(model, precision=precision) / 1e9
    value["kv_bytes_per_token"] = model.kv_bytes_per_token
    memory_gb = question.gpu.memory_bytes * gpus * value["memory_share"] / 1e9
    left_gb = memory_gb - value["weights_gb"] - value["reserve_gb"] * gpus
    followed = value["output_tokens"] + value["programs"] * value["observation_tokens"]
    held = value["held_tokens"] = value["prompt_tokens"] + followed
    tokens = value["kv_tokens"] = math.floor(left_gb * 1e9 / model.kv_bytes_per_token)
    value["mean_context"] = value["prompt_tokens"] + followed / 2
    if held > value["max_model_len"] - SPARE_TOKENS:
        raise PlanError(
            f"--max-model-len: {value['max_model_len']:g} given, but one rollout has {held:.0f} tokens on average; use more"
        )
    if tokens < value["max_model_len"]:
        raise PlanError(
            f"{model.name} leaves memory for {max(0, tokens)} tokens on {gpus} {question.gpu.name}, but one sequence may "
            f"have {value['max_model_len']:.0f}; use --gpus-per-worker {gpus * 2}, --precision fp8, a larger GPU or a "
            "smaller --max-model-len"
        )
    value["batch"] = min(value["max_sequences"], math.floor(tokens / held))


def _worker(value: _Values, *, cost: StepCost) -> None:
    """Compute the throughput of one worker."""
    batch, context = value["batch"], value["mean_context"]
    step_s = cost.decode_s(num_sequences=batch, context_tokens=batch * context)
    value["step_ms"] = step_s * 1000
    value["tokens_per_s"] = batch / step_s
    later_tokens = value["programs"] * value["observation_tokens"] + READ_TOKENS
    prefill_s = cost.prefill_s(num_tokens=value["prompt_tokens"], start=0)
    prefill_s += cost.prefill_s(num_tokens=later_tokens, start=context)
    value["prefill_ms"] = prefill_s * 1000
    value["gpu_s_per_rollout"] = value["output_tokens"] * step_s / batch + prefill_s
    value["rollouts_per_s_per_worker"] = 1 / value["gpu_s_per_rollout"]


def _fleet(value: _Values, *, question: CapacityQuestion, cost: StepCost) -> None:
    """Compute the number of workers, and the latency of a rollout at the peak and on an idle worker."""
    peak, output_tokens = value["peak_rollouts_per_s"], value["output_tokens"]
    workers = value["workers"] = math.ceil(peak / (value["rollouts_per_s_per_worker"] * value["use"]))
    value["gpus"] = workers * question.gpus_per_worker
    per_s, prefill_s = peak / workers, value["prefill_ms"] / 1000
    decoding = 1 - per_s * prefill_s
    variable_s = cost.per_sequence_s + value["mean_context"] * cost.per_context_token_s
    each_s, programs_s = output_tokens / decoding, value["programs"] * value["program_s"]
    batch = value["batch_at_peak"] = per_s * each_s * cost.base_s / (1 - per_s * each_s * variable_s)
    value["latency_at_peak_s"] = each_s * (cost.base_s + batch * variable_s) + prefill_s / decoding + programs_s
    value["latency_alone_s"] = output_tokens * (cost.base_s + variable_s) + prefill_s + programs_s


def _processors(value: _Values) -> None:
    """Compute the cores of sandboxes and servers, and the concurrency of a server."""
    peak, programs = value["peak_rollouts_per_s"], value["programs"]
    per_s = value["programs_per_s"] = peak * programs
    value["sandbox_slots"] = (
        servers_for(arrivals_per_s=per_s, service_s=value["program_s"], wait_probability=value["sandbox_wait"])
        if per_s and value["program_s"]
        else 0
    )
    core_ms = value["server_judgment_ms"] + programs * value["server_program_ms"]
    core_ms = value["server_core_ms"] = core_ms + (programs + 2) * value["server_call_ms"]
    servers = value["servers"] = max(1, math.ceil(peak * core_ms / 1000 / value["use"]))
    value["under_way"] = peak * value["latency_at_peak_s"]
    value["places"] = math.ceil(value["under_way"] / servers * 1.5)


def _money(value: _Values, *, question: CapacityQuestion) -> None:
    """Compute the cost per day and per million judgments."""
    value["gpu_usd_per_day"] = value["gpus"] * value["usd_per_gpu_hour"] * 24
    value["core_usd_per_day"] = (value["sandbox_slots"] + value["servers"]) * value["usd_per_core_hour"] * 24
    millions = question.judgments_per_day / 1e6
    value["usd_per_million"] = (value["gpu_usd_per_day"] + value["core_usd_per_day"]) / millions
    gpu_s = value["gpu_s_per_rollout"] * question.gpus_per_worker
    value["usd_per_million_at_full_use"] = gpu_s * value["rollouts"] * value["usd_per_gpu_hour"] / 3600 * 1e6
