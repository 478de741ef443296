"""A plan on the screen, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from tirjudge_server.planning.figures import PlanFigure
from tirjudge_server.planning.plan import CapacityPlan
from tirjudge_server.planning.simulation import Load, simulate
from tirjudge_server.planning.summary import SimulationResult

SETTLING_S = 3.0
"""Times the mean seconds of a judgment: the time a simulation takes to come from an empty fleet to its usual state."""

SIMULATED = {
    "per_s": "rollouts a second",
    "p50_s": "seconds of a rollout, half of them below",
    "p95_s": "seconds of a rollout, 95 % of them below",
    "mean_queue_s": "seconds in the server's queue, mean",
    "engine_use": "share of the time in which a worker computes",
    "mean_batch": "rollouts in the batch of a worker",
    "cached_share": "share of all turns' prompt tokens found in the cache",
    "sandbox_use": "share of the time in which a sandbox slot is busy",
    "server_use": "share of the time in which a server's core is busy",
}


def simulated(plan: CapacityPlan, *, seconds: float, seed: int) -> SimulationResult:
    """The planned fleet at its peak, after it has settled."""
    settling_s = max(60.0, SETTLING_S * plan["latency_at_peak_s"])
    load = Load(per_s=plan["peak_rollouts_per_s"], draw=plan.mix.draw, warm_up_s=settling_s, seconds=seconds)
    return simulate(plan.fleet, load, seed=seed)


def as_object(plan: CapacityPlan, result: SimulationResult | None) -> dict[str, Any]:
    """For `--json`; `simulation` is null where none was asked for."""
    question = plan.question
    return {
        "judgments_per_day": question.judgments_per_day,
        "model": question.model.name,
        "gpu": question.gpu.name,
        "gpus_per_worker": question.gpus_per_worker,
        "inputs": _objects(plan.inputs),
        "outputs": _objects(plan.outputs),
        "simulation": None if result is None else asdict(result),
    }


def _objects(figures: Mapping[str, PlanFigure]) -> dict[str, Any]:
    return {
        name: {"value": figure.value, "unit": figure.unit, "origin": figure.origin.value, "source": figure.source}
        for name, figure in figures.items()
    }


def show(plan: CapacityPlan, result: SimulationResult | None, *, explain: bool, console: Console | None = None) -> None:
    """As tables: what it rests on, what follows, and what the simulation saw."""
    console = console or Console(highlight=False)
    question = plan.question
    console.print(
        f"[bold]{question.judgments_per_day:,.0f} judgments a day, {question.model.name} on {question.gpu.name}: "
        f"{plan['gpus']:.0f} GPUs, {plan['sandbox_slots']:.0f} sandbox cores, {plan['servers']:.0f} server cores, "
        f"${plan['usd_per_million']:,.0f} a million"
    )
    console.print(_table("It rests on", plan.inputs, explain=explain))
    console.print(_table("It follows", plan.outputs, explain=explain))
    if result is not None:
        table = Table("figure", "value", title=f"Simulated, {result.num_judgments:,} rollouts at the peak")
        for name, meaning in SIMULATED.items():
            table.add_row(meaning, _text(getattr(result, name)))
        console.print(table)


def _table(title: str, figures: Mapping[str, PlanFigure], *, explain: bool) -> Table:
    table = Table("figure", "value", "unit", "origin", title=title, title_justify="left")
    table.columns[1].justify = "right"
    if explain:
        table.add_column("how")
    for name, figure in figures.items():
        row = [name, _text(figure.value), figure.unit, figure.origin.value]
        table.add_row(*row, *([figure.source] if explain else []))
    return table


def _text(value: float) -> str:
    """
    >>> [_text(v) for v in (376_668, 21.79, 0.1301)]
    ['376,668', '21.8', '0.13']
    """
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
