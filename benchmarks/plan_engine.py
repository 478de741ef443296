"""How well the calculator's picture of a GPU fits measurements of a real one that others published.

    python benchmarks/plan_engine.py perf_points.csv --out benchmarks/results/plan_engine.json

The file is `derived/csv/perf_points.csv` of silybench-data (CC BY 4.0): vLLM 0.30 with Qwen3-8B on one H100, callers who
ask again when they are answered. The coefficients of a step are fitted to some of its inter-token latencies and to the
time to the first token of a single caller. Then every point is simulated with the rounded coefficients that the package
has, and its throughput compared: none of these throughputs was fitted to.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any

import numpy as np
import typer

from tirjudge_server.planning.batching import EngineLimits
from tirjudge_server.planning.figures import GPUS, MODELS
from tirjudge_server.planning.simulation import Fleet, Load, simulate
from tirjudge_server.planning.steps import PRECISIONS, roofline
from tirjudge_server.planning.workload import TurnShape

KV_TOKENS = {"bf16": 377_024, "fp8": 430_272}
"""As vLLM told at its start, there."""

FITTED = ("decode", "balanced")
"""Beginnings of the names of the workloads whose inter-token latencies are fitted to."""
FITTED_UP_TO = 64
"""Callers; with more the cache was full, or prompts were computed all the time."""

Point = dict[str, str]


def main(
    points_file: Annotated[Path, typer.Argument(exists=True, help="The published points.")],
    out: Annotated[Path | None, typer.Option(help="File for the result; default: printed only.")] = None,
) -> None:
    """Fit, compare, and print the result as JSON."""
    with points_file.open(encoding="utf-8", newline="") as lines:
        points = list(csv.DictReader(lines))
    result = {
        "command": " ".join(["python", *sys.argv]),
        "commit": subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip() or None,
        "source": "silybench-data, derived/csv/perf_points.csv, CC BY 4.0: Qwen3-8B, vLLM 0.30, one H100 80 GB",
        "num_points": len(points),
        "precisions": {
            name: measure(name, points=[p for p in points if precision_of(p) == name]) for name in KV_TOKENS
        },
    }
    text = json.dumps(result, indent=2)
    print(text)
    if out is not None:
        out.write_text(text + "\n")


def precision_of(point: Point) -> str:
    return point["run_id"].rpartition("_")[2]


def measure(name: str, *, points: list[Point]) -> dict[str, Any]:
    compared = [compare(point, precision=name) for point in points]
    errors = [abs(entry["error"]) for entry in compared]
    return {
        "fitted": fit(points, precision=name),
        "used": {
            key: getattr(PRECISIONS[name], key) for key in ("weight_read", "kv_read", "decode_share", "prefill_mfu")
        },
        "num_points": len(points),
        "median_error": round(median(errors), 4),
        "mean_error": round(fmean(errors), 4),
        "largest_error": round(max(errors), 4),
        "points": compared,
    }


def fit(points: list[Point], *, precision: str) -> dict[str, float]:
    """Shares of the data sheet, by least squares of relative errors."""
    gpu, model = GPUS["h100"], MODELS["8B"]
    rows, seconds = [], []
    for point in points:
        if point["workload"].startswith(FITTED) and int(point["concurrency"]) <= FITTED_UP_TO:
            num = int(point["concurrency"])
            context = num * (int(point["input_len"]) + int(point["output_len"]) / 2)
            itl_s = float(point["itl_median_ms"]) / 1000
            rows.append([1 / itl_s, num / itl_s, context / itl_s])
            seconds.append(1.0)
    base_s, per_sequence_s, per_context_token_s = np.linalg.lstsq(np.array(rows), np.array(seconds), rcond=None)[0]
    weight_bytes = PRECISIONS[precision].weight_bytes
    read_bytes = weight_bytes * model.num_body_parameters + 2 * model.num_head_parameters
    flops = 2 * (model.num_body_parameters + model.num_head_parameters)
    longest = max((p for p in points if p["concurrency"] == "1"), key=lambda p: int(p["input_len"]))
    num = int(longest["input_len"])
    prefill_flops = 2 * model.num_body_parameters * num + model.attention_flops_per_pair * num * num / 2
    ttft_s = float(longest["ttft_p95_ms"]) / 1000 - base_s
    return {
        "weight_read": round(read_bytes / gpu.bandwidth / base_s, 3),
        "kv_read": round(model.kv_bytes_per_token / gpu.bandwidth / per_context_token_s, 3),
        "decode_share": round(per_sequence_s * gpu.flops / flops, 3),
        "prefill_mfu": round(prefill_flops / gpu.flops / ttft_s, 3),
    }


def compare(point: Point, *, precision: str) -> dict[str, Any]:
    """One point, simulated."""
    num_input, num_output = int(point["input_len"]), int(point["output_len"])
    fleet = Fleet(
        cost=roofline(GPUS["h100"], MODELS["8B"], precision=PRECISIONS[precision]),
        limits=EngineLimits(max_sequences=1024, kv_tokens=KV_TOKENS[precision], prefill_tokens=8192),
        num_engines=1,
        places=sys.maxsize,
    )
    shape = (TurnShape(new_tokens=num_input, output_tokens=num_output),)
    load = Load(callers=int(point["concurrency"]), num_judgments=int(point["num_prompts"]), draw=lambda random: shape)
    tokens_per_s = simulate(fleet, load).per_s * num_output
    return {
        "workload": point["workload"],
        "callers": int(point["concurrency"]),
        "simulated_tokens_per_s": round(tokens_per_s),
        "error": round(tokens_per_s / float(point["output_throughput"]) - 1, 4),
    }


if __name__ == "__main__":
    typer.run(main)
