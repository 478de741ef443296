"""From a number of judgments a day to GPUs, cores and money, by formulas that can be checked by hand.

With B sequences in the batch of a worker, a judgment takes of its GPU

    seconds = output_tokens * step(B) / B  +  prefill(prompt)  +  prefill(outputs of programs)

since all B share a step, and nobody decodes while a prompt is computed. At the rate at which it is really asked, fewer are
in the batch; how many follows from Little's law, and with them the time that one judgment takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tirjudge_server.planning.batching import EngineLimits
from tirjudge_server.planning.figures import FigureSource, Gpu, ModelShape, PlanError, PlanFigure
from tirjudge_server.planning.inputs import inputs
from tirjudge_server.planning.queueing import servers_for
from tirjudge_server.planning.simulation import Fleet
from tirjudge_server.planning.steps import Precision, StepCost, roofline, weights_bytes
from tirjudge_server.planning.workload import Mix

DAY_S = 86_400
HOURS_A_DAY = 24
PREFILL_TOKENS = 8192
"""Of a step, the default of vLLM on large GPUs."""
READ_TOKENS = 16
"""Computed again to read the probabilities of the labels: about a block of the prefix cache."""
PROMPT_SPREAD = 0.66
"""Standard deviation of the logarithm of the prompts' lengths, measured as `prompt_tokens` was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityQuestion:
    """What is to be planned."""

    judgments_per_day: float
    gpu: Gpu
    model: ModelShape
    precision: Precision
    gpus_per_worker: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPlan:
    """The answer: every figure it rests on, and those that follow."""

    question: CapacityQuestion
    inputs: dict[str, PlanFigure]
    outputs: dict[str, PlanFigure]
    cost: StepCost

    def __getitem__(self, name: str) -> float:
        """The value of an input or an output."""
        return (self.inputs | self.outputs)[name].value

    @property
    def fleet(self) -> Fleet:
        """What is proposed, to be simulated."""
        return Fleet(
            cost=self.cost,
            limits=EngineLimits(
                max_sequences=int(self["max_sequences"]),
                kv_tokens=int(self["kv_tokens"]),
                prefill_tokens=PREFILL_TOKENS,
            ),
            num_engines=int(self["workers"]),
            num_servers=int(self["servers"]),
            places=int(self["places"]),
            server_judgment_s=self["server_judgment_ms"] / 1000,
            server_program_s=self["server_program_ms"] / 1000,
            server_call_s=self["server_call_ms"] / 1000,
            sandbox_slots=max(1, int(self["sandbox_slots"])),
        )

    @property
    def mix(self) -> Mix:
        """Judgments of the planned sizes that vary as real ones do."""
        return Mix(
            prompt_tokens=self["prompt_tokens"],
            output_tokens=self["output_tokens"],
            num_programs=self["programs"],
            observation_tokens=self["observation_tokens"],
            program_s=self["program_s"],
            prompt_spread=PROMPT_SPREAD,
            max_tokens=min(int(self["max_model_len"]), int(self["kv_tokens"]))
            - SPARE_TOKENS
            - math.ceil(self["programs"]) * math.ceil(self["observation_tokens"]),
        )


SPARE_TOKENS = 64
"""Of a context, for what is asked besides: the read of the verdict, and the last block that is not full."""


class _Outputs(dict[str, PlanFigure]):
    """Figures that follow from others."""

    def put(self, name: str, value: float, unit: str, formula: str) -> float:
        self[name] = PlanFigure(name=name, value=value, unit=unit, origin=FigureSource.DERIVED, source=formula)
        return value


def plan(question: CapacityQuestion, given: Mapping[str, float | None] | None = None) -> CapacityPlan:
    """The fleet for a load.

    Args:
        question: load, model and GPU.
        given: figures that replace their defaults, by name; None: the default stays.

    Raises:
        PlanError: a number that cannot be, or a model that does not fit.
    """
    if not 0 < question.judgments_per_day < math.inf:
        raise PlanError(f"--judgments-per-day: {question.judgments_per_day:g} given, a number above 0 would do")
    found = inputs(given or {}, gpu=question.gpu, precision=question.precision)
    outputs = _Outputs()
    value = {name: figure.value for name, figure in found.items()}
    precision = replace(
        question.precision,
        **{name: value[name] for name in ("weight_read", "kv_read", "decode_share", "prefill_mfu")},
    )
    cost = roofline(
        question.gpu,
        question.model,
        precision=precision,
        gpus_per_worker=question.gpus_per_worker,
        split_efficiency=value["split_efficiency"],
    )
    _load(outputs, value, question=question)
    _memory(outputs, value, question=question, precision=precision)
    _worker(outputs, value, cost=cost)
    _fleet(outputs, value, question=question, cost=cost)
    _processors(outputs, value)
    _money(outputs, value, question=question)
    return CapacityPlan(question=question, inputs=found, outputs=dict(outputs), cost=cost)


def _load(outputs: _Outputs, value: Mapping[str, float], *, question: CapacityQuestion) -> None:
    mean = outputs.put(
        "mean_rollouts_per_s",
        question.judgments_per_day * value["rollouts"] / DAY_S,
        "1/s",
        "judgments_per_day * rollouts / 86400",
    )
    outputs.put("peak_rollouts_per_s", mean * value["peak"], "1/s", "mean_rollouts_per_s * peak")


def _memory(outputs: _Outputs, value: Mapping[str, float], *, question: CapacityQuestion, precision: Precision) -> None:
    model = question.model
    weights = outputs.put(
        "weights_gb",
        weights_bytes(model, precision=precision) / 1e9,
        "GB",
        "parameters of the layers * bytes of the precision + embedding and output matrix * 2",
    )
    kv_bytes = outputs.put(
        "kv_bytes_per_token", model.kv_bytes_per_token, "B", "2 * layers * kv_heads * head_dim * 2 bytes"
    )
    memory = question.gpu.memory_bytes * question.gpus_per_worker * value["memory_share"] / 1e9
    left = memory - weights - value["reserve_gb"] * question.gpus_per_worker
    held = outputs.put(
        "held_tokens",
        value["prompt_tokens"] + value["output_tokens"] + value["programs"] * value["observation_tokens"],
        "tokens",
        "prompt_tokens + output_tokens + programs * observation_tokens, of one rollout at its end",
    )
    tokens = outputs.put(
        "kv_tokens",
        math.floor(left * 1e9 / kv_bytes),
        "tokens",
        "(memory * memory_share - weights - reserve) / kv_bytes_per_token, of one worker",
    )
    if held > value["max_model_len"] - SPARE_TOKENS:
        raise PlanError(
            f"--max-model-len: {value['max_model_len']:g} given, and one rollout takes {held:.0f} tokens on average"
        )
    needed = max(held, value["max_model_len"])
    if tokens < needed:
        raise PlanError(
            f"{model.name} leaves room for {max(0, int(tokens))} tokens on {question.gpus_per_worker} "
            f"{question.gpu.name}, and one sequence may take {needed:.0f}: try --gpus-per-worker "
            f"{question.gpus_per_worker * 2}, --precision fp8, a larger GPU or a smaller --max-model-len"
        )
    outputs.put(
        "batch",
        min(value["max_sequences"], math.floor(tokens / held)),
        "",
        "min(max_sequences, kv_tokens / held_tokens): rollouts in the batch of a worker at most",
    )


def _worker(outputs: _Outputs, value: Mapping[str, float], *, cost: StepCost) -> None:
    """What one worker can do."""
    batch = outputs["batch"].value
    context = outputs.put(
        "mean_context",
        value["prompt_tokens"] + (value["output_tokens"] + value["programs"] * value["observation_tokens"]) / 2,
        "tokens",
        "prompt_tokens + half of what follows: what a token looks at",
    )
    step_s = cost.decode_s(num_sequences=batch, context_tokens=batch * context)
    outputs.put("step_ms", step_s * 1000, "ms", "weights + batch * (own work + mean_context * keys and values)")
    outputs.put("tokens_per_s", batch / step_s, "1/s", "batch / step: of one worker that only decodes")
    prefill_s = cost.prefill_s(num_tokens=value["prompt_tokens"], start=0)
    tail = value["programs"] * value["observation_tokens"] + READ_TOKENS
    prefill_s += cost.prefill_s(num_tokens=tail, start=context)
    outputs.put("prefill_ms", prefill_s * 1000, "ms", "prompt once, programs' outputs, the read of the verdict")
    gpu_s = outputs.put(
        "gpu_s_per_rollout",
        value["output_tokens"] * step_s / batch + prefill_s,
        "s",
        "output_tokens * step / batch + prefill: of a worker that is full",
    )
    outputs.put("rollouts_per_s_per_worker", 1 / gpu_s, "1/s", "1 / gpu_s_per_rollout")


def _fleet(outputs: _Outputs, value: Mapping[str, float], *, question: CapacityQuestion, cost: StepCost) -> None:
    peak, most = outputs["peak_rollouts_per_s"].value, outputs["rollouts_per_s_per_worker"].value
    workers = outputs.put(
        "workers",
        math.ceil(peak / (most * value["use"])),
        "",
        "peak_rollouts_per_s / (rollouts_per_s_per_worker * use), rounded up",
    )
    outputs.put("gpus", workers * question.gpus_per_worker, "", "workers * gpus_per_worker")
    per_s = peak / workers
    prefill_s, context = outputs["prefill_ms"].value / 1000, outputs["mean_context"].value
    decoding = 1 - per_s * prefill_s
    variable_s = cost.per_sequence_s + context * cost.per_context_token_s
    each_s = value["output_tokens"] / decoding
    batch = per_s * each_s * cost.base_s / (1 - per_s * each_s * variable_s)
    outputs.put(
        "batch_at_peak",
        batch,
        "",
        "Little's law: rate * output_tokens * step(batch) / (1 - rate * prefill), solved for batch",
    )
    seconds = (
        each_s * (cost.base_s + batch * variable_s) + prefill_s / decoding + value["programs"] * value["program_s"]
    )
    outputs.put("latency_at_peak_s", seconds, "s", "mean: output_tokens * step(batch_at_peak), prefill and programs")
    idle_s = value["output_tokens"] * (cost.base_s + variable_s) + prefill_s + value["programs"] * value["program_s"]
    outputs.put("latency_alone_s", idle_s, "s", "the same with nobody else there")


def _processors(outputs: _Outputs, value: Mapping[str, float]) -> None:
    peak = outputs["peak_rollouts_per_s"].value
    programs = outputs.put("programs_per_s", peak * value["programs"], "1/s", "peak_rollouts_per_s * programs")
    slots = 0
    if programs and value["program_s"]:
        slots = servers_for(
            arrivals_per_s=programs, service_s=value["program_s"], wait_probability=value["sandbox_wait"]
        )
    outputs.put("sandbox_slots", slots, "cores", "the fewest at which at most sandbox_wait of programs wait (Erlang C)")
    calls = value["programs"] + 2
    core_s = (
        value["server_judgment_ms"] + value["programs"] * value["server_program_ms"] + calls * value["server_call_ms"]
    ) / 1000
    outputs.put(
        "server_core_ms",
        core_s * 1000,
        "core-ms",
        "server_judgment_ms + programs * server_program_ms + (programs + 2) * server_call_ms: of one rollout",
    )
    servers = outputs.put(
        "servers",
        max(1, math.ceil(peak * core_s / value["use"])),
        "cores",
        "peak_rollouts_per_s * server_core_ms / use; a server process uses one core",
    )
    inside = outputs.put(
        "under_way", peak * outputs["latency_at_peak_s"].value, "", "Little's law: rollouts under way at the peak"
    )
    outputs.put(
        "places",
        math.ceil(inside / servers * 1.5),
        "",
        "under_way / servers, and half as many again: --max-concurrency of each server",
    )


def _money(outputs: _Outputs, value: Mapping[str, float], *, question: CapacityQuestion) -> None:
    gpus = outputs["gpus"].value
    gpu_usd = outputs.put(
        "gpu_usd_per_day", gpus * value["usd_per_gpu_hour"] * HOURS_A_DAY, "$", "gpus * usd_per_gpu_hour * 24"
    )
    cores = outputs["sandbox_slots"].value + outputs["servers"].value
    core_usd = outputs.put(
        "core_usd_per_day",
        cores * value["usd_per_core_hour"] * HOURS_A_DAY,
        "$",
        "(sandbox_slots + servers) * usd_per_core_hour * 24",
    )
    millions = question.judgments_per_day / 1e6
    outputs.put(
        "usd_per_million",
        (gpu_usd + core_usd) / millions,
        "$",
        "(gpu_usd_per_day + core_usd_per_day) / judgments_per_day * 1e6: the fleet stands all day",
    )
    gpu_s = outputs["gpu_s_per_rollout"].value * question.gpus_per_worker
    outputs.put(
        "usd_per_million_at_full_use",
        gpu_s * value["rollouts"] * value["usd_per_gpu_hour"] / 3600 * 1e6,
        "$",
        "gpu_s_per_rollout * rollouts * usd_per_gpu_hour / 3600 * 1e6: GPUs that are never idle, as in a batch",
    )
