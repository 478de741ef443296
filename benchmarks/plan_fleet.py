"""A thousand GPUs, simulated: where the bottleneck is, what queueing costs, what affinity wins, what failures do.

    python benchmarks/plan_fleet.py --out benchmarks/results/plan_fleet.json

Qwen3-8B on H100s with the sizes of a plan's defaults. The mean load is given as a share of what the engines can do by the
calculator; every scenario changes one thing of the first.
"""

from __future__ import annotations

import json
import math
import subprocess
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from tirjudge_server.planning.figures import GPUS, MODELS
from tirjudge_server.planning.plan import CapacityPlan, CapacityQuestion, plan
from tirjudge_server.planning.routing import Routing
from tirjudge_server.planning.simulation import Fleet, Load, simulate
from tirjudge_server.planning.steps import PRECISIONS

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One thing that is otherwise."""

    name: str
    share: float = 0.8
    """Of what the engines can do."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Of the fleet."""
    given: dict[str, float] = field(default_factory=dict)
    """Of the plan's inputs."""


SCENARIOS = (
    *(Scenario(name=f"load {share:.0%}", share=share) for share in (0.5, 0.7, 0.8, 0.9, 0.95, 1.05)),
    Scenario(name="no affinity", changes={"routing": Routing.LEAST_LOADED}),
    Scenario(name="three programs a rollout", given={"programs": 3.0}),
    Scenario(name="three programs, no affinity", given={"programs": 3.0}, changes={"routing": Routing.LEAST_LOADED}),
    Scenario(name="half the server cores", changes={"servers": 0.5}),
    Scenario(name="half the sandbox cores", changes={"sandbox": 0.5}),
    Scenario(name="places for half", changes={"places": 0.5}),
    Scenario(name="an engine lives 1 h", changes={"engine_mtbf_s": HOUR_S}),
)


def main(
    num_engines: Annotated[int, typer.Option(help="Of one GPU each.")] = 1000,
    seconds: Annotated[float, typer.Option(help="Simulated and counted, of each scenario.")] = 60.0,
    warm_up_s: Annotated[float, typer.Option(help="Simulated before that.")] = 60.0,
    only: Annotated[str, typer.Option(help="Scenarios whose names begin with this.")] = "",
    out: Annotated[Path | None, typer.Option(help="File for the result; default: printed only.")] = None,
) -> None:
    """Simulate, and print the result as JSON."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip() or None
    result: dict[str, Any] = {
        "command": f"python benchmarks/plan_fleet.py --num-engines {num_engines} --seconds {seconds:g}",
        "commit": commit,
        "num_engines": num_engines,
        "scenarios": [],
    }
    for scenario in SCENARIOS:
        if scenario.name.startswith(only):
            result["scenarios"].append(run(scenario, num_engines=num_engines, seconds=seconds, warm_up_s=warm_up_s))
            if out is not None:
                out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


def run(scenario: Scenario, *, num_engines: int, seconds: float, warm_up_s: float) -> dict[str, Any]:
    made, per_s = planned(scenario, num_engines=num_engines)
    fleet = changed(replace(made.fleet, num_engines=num_engines), scenario.changes)
    began = perf_counter()
    seen = simulate(fleet, Load(per_s=per_s, draw=made.mix.draw, warm_up_s=warm_up_s, seconds=seconds))
    entry: dict[str, Any] = {
        "name": scenario.name,
        "asked_per_s": round(per_s, 1),
        "servers": fleet.num_servers,
        "places": fleet.places,
        "sandbox_slots": fleet.sandbox_slots,
        "planned_latency_s": round(made["latency_at_peak_s"], 2),
        **{name: round(value, 4) for name, value in asdict(seen).items()},
        "took_s": round(perf_counter() - began, 1),
    }
    print(entry, flush=True)
    return entry


def planned(scenario: Scenario, *, num_engines: int) -> tuple[CapacityPlan, float]:
    """The plan whose peak asks for that share of so many engines, and its rollouts a second."""

    def of(per_s: float, use: float) -> CapacityPlan:
        question = CapacityQuestion(
            judgments_per_day=per_s * 86_400,
            gpu=GPUS["h100"],
            model=MODELS["8B"],
            precision=PRECISIONS["bf16"],
        )
        return plan(question, {**scenario.given, "peak": 1.0, "use": use})

    per_s = of(1.0, 1.0)["rollouts_per_s_per_worker"] * num_engines * scenario.share
    return of(per_s, min(0.99, scenario.share)), per_s


def changed(fleet: Fleet, changes: dict[str, Any]) -> Fleet:
    """Servers, sandbox and places by a factor; anything else as it is."""
    factors = {"servers": "num_servers", "sandbox": "sandbox_slots", "places": "places"}
    values = {
        factors.get(name, name): math.ceil(getattr(fleet, factors[name]) * value) if name in factors else value
        for name, value in changes.items()
    }
    return replace(fleet, **values)


if __name__ == "__main__":
    typer.run(main)
