"""Compare the GPU model of `tirjudge plan` with published measurements of a real GPU.

    python benchmarks/plan_engine.py perf_points.csv --out benchmarks/results/plan_engine.json

The file is `derived/csv/perf_points.csv` of silybench-data (CC BY 4.0): vLLM 0.30 with Qwen3-8B on one H100. Each client
sends its next request when it has received a response. The coefficients of the time of a decoding step are fitted to some
of the inter-token latencies and to the time to first token of a single client. Then the throughput of every point is
calculated with the formula of `tirjudge plan` and the rounded coefficients that are part of tirjudge. The fit does not use
these throughputs.
"""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any

import numpy as np
import typer
from reporting import Out, report

from tirjudge_server.planning.figures import GPUS, MODELS
from tirjudge_server.planning.inputs import FITTED_SHARES
from tirjudge_server.planning.steps import PRECISIONS, roofline

KV_TOKENS = {"bf16": 377_024, "fp8": 430_272}
"""Tokens that fit into the KV cache, from vLLM's log of these runs."""
FITTED = ("decode", "balanced")
"""Prefixes of the names of the workloads whose inter-token latencies are fitted."""
FITTED_UP_TO = 64
"""Maximum number of clients for the fit. With more clients, the cache was full, or each step also had prefill."""

GPU, MODEL = GPUS["h100"], MODELS["8B"]

Point = dict[str, str]


def main(
    points_file: Annotated[Path, typer.Argument(exists=True, help="The published points.")], out: Out = None
) -> None:
    """Fit, compare, and print the result as JSON."""
    with points_file.open(encoding="utf-8", newline="") as lines:
        points = list(csv.DictReader(lines))
    source = "silybench-data, derived/csv/perf_points.csv, CC BY 4.0: Qwen3-8B, vLLM 0.30, one H100 80 GB"
    of = {name: [point for point in points if point["run_id"].endswith(f"_{name}")] for name in KV_TOKENS}
    report({"source": source, "precisions": {name: measure(name, points=of[name]) for name in of}}, out)


def measure(name: str, *, points: list[Point]) -> dict[str, Any]:
    """Fit and compare the points of one precision."""
    compared = [compare(point, precision=name) for point in points]
    errors = [abs(entry["error"]) for entry in compared]
    return {
        "fitted": fit(points, precision=name),
        "used": {key: getattr(PRECISIONS[name], key) for key in FITTED_SHARES},
        "num_points": len(points),
        "median_error": round(median(errors), 4),
        "mean_error": round(fmean(errors), 4),
        "largest_error": round(max(errors), 4),
        "points": compared,
    }


def fit(points: list[Point], *, precision: str) -> dict[str, float]:
    """Return the achieved shares of the data sheet's peak values, fitted by least squares of relative errors."""
    rows = []
    for point in points:
        num = int(point["concurrency"])
        if point["workload"].startswith(FITTED) and num <= FITTED_UP_TO:
            context = num * (int(point["input_len"]) + int(point["output_len"]) / 2)
            rows.append(np.array([1, num, context]) / (float(point["itl_median_ms"]) / 1000))
    base_s, per_sequence_s, per_context_token_s = np.linalg.lstsq(np.array(rows), np.ones(len(rows)), rcond=None)[0]
    whole = roofline(GPU, MODEL, precision=PRECISIONS[precision])
    used = PRECISIONS[precision]
    longest = max((p for p in points if p["concurrency"] == "1"), key=lambda p: int(p["input_len"]))
    ttft_s = float(longest["ttft_p95_ms"]) / 1000 - base_s
    prefill_s = whole.prefill_s(num_tokens=int(longest["input_len"]), start=0)
    return {
        "weight_read": round(used.weight_read * whole.base_s / base_s, 3),
        "kv_read": round(used.kv_read * whole.per_context_token_s / per_context_token_s, 3),
        "decode_share": round(used.decode_share * per_sequence_s / whole.per_sequence_s, 3),
        "prefill_mfu": round(used.prefill_mfu * prefill_s / ttft_s, 3),
    }


def compare(point: Point, *, precision: str) -> dict[str, Any]:
    """Compare one point with the plan's formula for a worker whose batch contains all clients."""
    num_input, num_output, callers = int(point["input_len"]), int(point["output_len"]), int(point["concurrency"])
    cost = roofline(GPU, MODEL, precision=PRECISIONS[precision])
    batch = min(callers, KV_TOKENS[precision] // (num_input + num_output))
    step_s = cost.decode_s(num_sequences=batch, context_tokens=batch * (num_input + num_output / 2))
    gpu_s = num_output * step_s / batch + cost.prefill_s(num_tokens=num_input, start=0)
    return {
        "workload": point["workload"],
        "callers": callers,
        "published_tokens_per_s": float(point["output_throughput"]),
        "planned_tokens_per_s": round(num_output / gpu_s),
        "error": round(num_output / gpu_s / float(point["output_throughput"]) - 1, 4),
    }


if __name__ == "__main__":
    typer.run(main)
