"""What a plan starts from: one figure for each thing that the user may say, and what holds if he does not.

The name of a figure is that of its option. `tests/server/planning` holds the measured ones against their result files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from tirjudge_server.planning.figures import FigureSource, Gpu, PlanError, PlanFigure
from tirjudge_server.planning.steps import SPLIT_EFFICIENCY, Precision

RESULTS = "benchmarks/results"


def _figure(name: str, value: float, unit: str, origin: FigureSource, source: str) -> PlanFigure:
    return PlanFigure(name=name, value=value, unit=unit, origin=origin, source=source)


DEFAULTS: Mapping[str, PlanFigure] = {
    figure.name: figure
    for figure in (
        _figure(
            "prompt_tokens",
            755,
            "tokens",
            FigureSource.MEASURED,
            f"{RESULTS}/plan_prompts.json: mean of 3,064 pairwise prompts of four benchmarks",
        ),
        _figure(
            "output_tokens",
            1000,
            "tokens",
            FigureSource.ASSUMED,
            "all turns of a judge of 4B or more; nobody has measured ours. The budget is 8,192; cost follows it closely",
        ),
        _figure(
            "programs",
            1.0,
            "",
            FigureSource.MEASURED,
            f"{RESULTS}/server_load.json: the bundled judge; the budget is 3",
        ),
        _figure(
            "observation_tokens",
            100,
            "tokens",
            FigureSource.ASSUMED,
            "what a program printed, with its fences; the budget is 1,024",
        ),
        _figure(
            "program_s",
            0.0043,
            "core-s",
            FigureSource.MEASURED,
            f"{RESULTS}/sandbox_speed.json: a short program through the sandbox service, 64 at once",
        ),
        _figure("rollouts", 1, "", FigureSource.ASSUMED, "one order, one vote: what a request gets that says nothing"),
        _figure("peak", 2.0, "", FigureSource.ASSUMED, "busiest hour over the mean"),
        _figure(
            "use",
            0.8,
            "",
            FigureSource.ASSUMED,
            "share of what workers can do that the peak may ask of them; docs/scaling.md shows what latency does above",
        ),
        _figure("max_sequences", 256, "", FigureSource.ASSUMED, "--max-num-seqs of vLLM"),
        _figure(
            "max_model_len",
            16_384,
            "tokens",
            FigureSource.ASSUMED,
            "--max-model-len of vLLM; the default profile's context",
        ),
        _figure("memory_share", 0.9, "", FigureSource.PUBLISHED, "--gpu-memory-utilization of vLLM, its default"),
        _figure(
            "reserve_gb",
            5.0,
            "GB",
            FigureSource.PUBLISHED,
            "for activations and graphs; what vLLM 0.30 left of an H100 with Qwen3-8B (silybench-data, CC BY 4.0)",
        ),
        _figure(
            "server_judgment_ms",
            1.1,
            "core-ms",
            FigureSource.MEASURED,
            f"{RESULTS}/server_overhead.json: no programs, with records, 64 at once",
        ),
        _figure(
            "server_program_ms",
            1.3,
            "core-ms",
            FigureSource.MEASURED,
            f"{RESULTS}/server_overhead.json: what a program and its turn add, with records, 64 at once",
        ),
        _figure(
            "server_call_ms",
            2.0,
            "core-ms",
            FigureSource.ASSUMED,
            f"asking a worker over HTTP once; {RESULTS}/plan_check.json has 3.0 from two idle cores",
        ),
        _figure("sandbox_wait", 0.01, "", FigureSource.ASSUMED, "share of programs that may wait for a slot"),
        _figure(
            "usd_per_core_hour", 0.04, "$", FigureSource.ASSUMED, "a virtual core of a large cloud with its memory"
        ),
        _figure(
            "split_efficiency",
            SPLIT_EFFICIENCY,
            "",
            FigureSource.ASSUMED,
            "of several GPUs that share a model, for each of them",
        ),
    )
}


def inputs(given: Mapping[str, float | None], *, gpu: Gpu, precision: Precision) -> dict[str, PlanFigure]:
    """Every input by its name: what was given, else what the GPU and the precision say, else the default.

    Raises:
        PlanError: a number that cannot be.
    """
    fitted = f"{RESULTS}/plan_engine.json: fitted to published measurements of vLLM 0.30, Qwen3-8B on an H100"
    found = {
        **DEFAULTS,
        "usd_per_gpu_hour": _figure(
            "usd_per_gpu_hour",
            gpu.usd_per_hour,
            "$",
            FigureSource.PUBLISHED,
            "median of on-demand list prices, September 2026 (silybench-data, CC BY 4.0)",
        ),
        **{
            name: _figure(name, getattr(precision, name), "", FigureSource.PUBLISHED, fitted)
            for name in ("weight_read", "kv_read", "decode_share", "prefill_mfu")
        },
    }
    for name, value in given.items():
        if value is not None:
            option = f"--{name.replace('_', '-')}"
            found[name] = replace(found[name], value=value, origin=FigureSource.GIVEN, source=option)
    _check(found)
    return found


_MAY_BE_ZERO = frozenset(
    {"programs", "observation_tokens", "program_s", "server_judgment_ms", "server_program_ms", "server_call_ms"}
    | {"usd_per_gpu_hour", "usd_per_core_hour", "reserve_gb", "decode_share"}
)
_SHARES = frozenset(
    {"use", "memory_share", "sandbox_wait", "split_efficiency", "weight_read", "kv_read", "prefill_mfu"}
)


def _check(found: Mapping[str, PlanFigure]) -> None:
    for name, figure in found.items():
        option, value = f"--{name.replace('_', '-')}", figure.value
        if not math.isfinite(value):
            raise PlanError(f"{option}: {value:g} given, a number would do")
        if value < 0 or (value == 0 and name not in _MAY_BE_ZERO):
            raise PlanError(f"{option}: {value:g} given, it has to be more than 0")
        if name in _SHARES and value > 1:
            raise PlanError(f"{option}: {value:g} given, it is a share: 1 at most")
        if name == "max_sequences" and value < 1:
            raise PlanError(f"{option}: {value:g} given, at least 1 would do")
