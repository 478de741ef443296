"""Cells and rows of the tables of the model card."""

from __future__ import annotations


def table_row(*cells: str) -> str:
    """Return one row of a Markdown table."""
    return f"| {' | '.join(cells)} |\n"


def percent(share: float | None, *, digits: int = 1) -> str:
    """Return a share as a percentage; a dash for None."""
    return "-" if share is None else f"{100 * share:.{digits}f} %"
