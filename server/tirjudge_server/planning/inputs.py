"""The inputs of a plan: one figure per option, with its default.

A figure has the name of its option. `tests/server/planning` checks measured figures against their result files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from tirjudge_server.planning.figures import FigureSource, Gpu, PlanError, PlanFigure
from tirjudge_server.planning.steps import SPLIT_EFFICIENCY, Precision

RESULTS = "benchmarks/results"

MEASURED, PUBLISHED, ASSUMED = FigureSource.MEASURED, FigureSource.PUBLISHED, FigureSource.ASSUMED

_DEFAULTS = (
    ("prompt_tokens", 755, "tokens", MEASURED, "plan_prompts.json: mean of 3,064 pairwise prompts of four benchmarks"),
    ("output_tokens", 1000, "tokens", ASSUMED, "all turns of a judge of 4B or more; the budget is 8,192"),
    ("programs", 1.0, "", MEASURED, "server_programs.json: the bundled judge; the budget is 3"),
    ("observation_tokens", 100, "tokens", ASSUMED, "output of a program with its fences; the budget is 1,024"),
    (
        "program_s",
        0.0043,
        "core-s",
        MEASURED,
        "sandbox_speed.json: a short program through the service, 64 concurrently",
    ),
    ("rollouts", 1, "", ASSUMED, "one order, one vote: the defaults of a request"),
    ("peak", 2.0, "", ASSUMED, "busiest hour over the mean"),
    (
        "use",
        0.8,
        "",
        ASSUMED,
        "maximum utilization of the workers at the peak; above it latency grows fast",
    ),
    ("max_sequences", 256, "", ASSUMED, "--max-num-seqs of vLLM"),
    ("max_model_len", 16_384, "tokens", ASSUMED, "--max-model-len of vLLM; the default profile's context"),
    ("memory_share", 0.9, "", PUBLISHED, "--gpu-memory-utilization of vLLM, its default"),
    (
        "reserve_gb",
        5.0,
        "GB",
        PUBLISHED,
        "activations and graphs: vLLM 0.30, H100, Qwen3-8B (silybench-data, CC BY 4.0)",
    ),
    (
        "server_judgment_ms",
        1.1,
        "core-ms",
        MEASURED,
        "server_overhead.json: no programs, with records, 64 concurrently",
    ),
    (
        "server_program_ms",
        1.3,
        "core-ms",
        MEASURED,
        "server_overhead.json: additional time of a program and its turn, 64 concurrently",
    ),
    ("server_call_ms", 2.0, "core-ms", ASSUMED, f"one request to a worker; {RESULTS}/server_overhead.json has 3.0"),
    ("sandbox_wait", 0.01, "", ASSUMED, "share of programs that may wait for a slot"),
    ("usd_per_core_hour", 0.04, "$", ASSUMED, "a virtual core of a large cloud with its memory"),
    ("split_efficiency", SPLIT_EFFICIENCY, "", ASSUMED, "speed of each GPU when several share a model"),
)
"""Name, value, unit, origin, source. The source of a measured figure starts with its result file."""


def _figure(name: str, value: float, unit: str, origin: FigureSource, source: str) -> PlanFigure:
    source = f"{RESULTS}/{source}" if origin is MEASURED else source
    return PlanFigure(name=name, value=value, unit=unit, origin=origin, source=source)


DEFAULTS: Mapping[str, PlanFigure] = {row[0]: _figure(*row) for row in _DEFAULTS}

FITTED_SHARES = ("weight_read", "kv_read", "decode_share", "prefill_mfu")
"""Figures that depend on the precision."""

_MAY_BE_ZERO = frozenset(
    {"programs", "observation_tokens", "program_s", "server_judgment_ms", "server_program_ms", "server_call_ms"}
    | {"usd_per_gpu_hour", "usd_per_core_hour", "reserve_gb", "decode_share"}
)
_SHARES = frozenset(
    {"use", "memory_share", "sandbox_wait", "split_efficiency", "weight_read", "kv_read", "prefill_mfu"}
)


def inputs(given: Mapping[str, float | None], *, gpu: Gpu, precision: Precision) -> dict[str, PlanFigure]:
    """Return all inputs by name: the given values, and defaults for the others.

    Args:
        given: name -> value from the user; None: use the default.
        gpu: the GPU, for the default price.
        precision: the precision of the weights, for the defaults of `FITTED_SHARES`.

    Raises:
        PlanError: a number is out of range.
    """
    price = "median of on-demand list prices, September 2026 (silybench-data, CC BY 4.0)"
    fitted = f"{RESULTS}/plan_engine.json: fitted to published measurements of vLLM 0.30, Qwen3-8B on an H100"
    found = {
        **DEFAULTS,
        "usd_per_gpu_hour": _figure("usd_per_gpu_hour", gpu.usd_per_hour, "$", PUBLISHED, price),
        **{name: _figure(name, getattr(precision, name), "", PUBLISHED, fitted) for name in FITTED_SHARES},
    }
    for name, value in given.items():
        if value is not None:
            option = f"--{name.replace('_', '-')}"
            found[name] = replace(found[name], value=value, origin=FigureSource.GIVEN, source=option)
            _check(name, value, option=option)
    return found


def _check(name: str, value: float, *, option: str) -> None:
    if not math.isfinite(value):
        raise PlanError(f"{option}: expected a finite number, got {value:g}")
    if value < 0 or (value == 0 and name not in _MAY_BE_ZERO):
        raise PlanError(f"{option}: expected a number above 0, got {value:g}")
    if name in _SHARES and value > 1:
        raise PlanError(f"{option}: expected a share of at most 1, got {value:g}")
    if name == "max_sequences" and value < 1:
        raise PlanError(f"{option}: expected at least 1, got {value:g}")
