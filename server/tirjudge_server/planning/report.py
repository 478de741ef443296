"""Prints a plan as tables or converts it to JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from tirjudge_server.planning.figures import PlanFigure
from tirjudge_server.planning.plan import CapacityPlan


def as_object(plan: CapacityPlan) -> dict[str, Any]:
    """The plan as a JSON object, for `--json`."""
    question = plan.question
    return {
        "judgments_per_day": question.judgments_per_day,
        "model": question.model.name,
        "gpu": question.gpu.name,
        "gpus_per_worker": question.gpus_per_worker,
        "inputs": _objects(plan.inputs),
        "outputs": _objects(plan.outputs),
    }


def _objects(figures: Mapping[str, PlanFigure]) -> dict[str, Any]:
    return {
        name: {"value": figure.value, "unit": figure.unit, "origin": figure.origin.value, "source": figure.source}
        for name, figure in figures.items()
    }


def show(plan: CapacityPlan, *, explain: bool) -> None:
    """Print the plan as tables of inputs and results.

    Args:
        plan: the plan.
        explain: whether to show the source or formula of each figure.
    """
    console = Console(highlight=False)
    question = plan.question
    console.print(
        f"[bold]{question.judgments_per_day:,.0f} judgments per day, {question.model.name} on {question.gpu.name}: "
        f"{plan['gpus']:.0f} GPUs, {plan['sandbox_slots']:.0f} sandbox cores, {plan['servers']:.0f} server cores, "
        f"${plan['usd_per_million']:,.0f} per million judgments"
    )
    for title, figures in (("Inputs", plan.inputs), ("Results", plan.outputs)):
        table = Table("figure", "value", "unit", "origin", title=title, title_justify="left")
        table.columns[1].justify = "right"
        if explain:
            table.add_column("source")
        for name, figure in figures.items():
            how = [figure.source] if explain else []
            table.add_row(name, _text(figure.value), figure.unit, figure.origin.value, *how)
        console.print(table)


def _text(value: float) -> str:
    """
    >>> [_text(v) for v in (376_668, 21.79, 0.1301)]
    ['376,668', '21.8', '0.13']
    """
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
