"""Conditions on the judgments of a list. They use columns of one index only, so that a filter never reads the contents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, or_

from tirjudge_server.records.schema import records

STATUSES = ("decided", "tie", "abstained")
"""Values of a verdict's status. Any other value of `RecordFilter.verdict` is a label."""

UNLABELED = "none"
"""Value of `RecordFilter.human`: judgments without a label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFilter:
    """Conditions on judgments. A judgment must meet all of them. None: no condition."""

    id: str | None = None
    """Beginning of the id."""
    model: str | None = None
    """Part of the name of the model."""
    mode: str | None = None
    caller: str | None = None
    """Name of the key."""
    verdict: str | None = None
    """One of `STATUSES`, or a label: the letter of the best response, or the score of the only response."""
    forced: bool | None = None
    flipped: bool | None = None
    basis: str | None = None
    tool_error: bool | None = None
    human: str | None = None
    """`agree`, `other`, `tie` or `UNLABELED`."""
    since_ms: int | None = None
    """Earliest Unix time in milliseconds."""
    until_ms: int | None = None
    """Unix time in milliseconds before which the judgments were stored."""

    def conditions(self, *, caller: str | None) -> Iterator[ColumnElement[Any]]:
        """Yield the conditions for a query.

        Args:
            caller: Only judgments of this caller. None: of all callers.
        """
        columns = records.c
        yield columns.kind == "judgment"
        equal = {"mode": self.mode, "caller": self.caller, "basis": self.basis}
        for name, value in equal.items():
            if value is not None:
                yield columns[name] == value
        if caller is not None:
            yield columns.caller == caller
        for name in ("forced", "flipped", "tool_error"):
            wanted = getattr(self, name)
            if wanted is not None:
                yield columns[name].is_(True) if wanted else or_(columns[name].is_(False), columns[name].is_(None))
        if self.verdict is not None:
            yield (columns.status if self.verdict in STATUSES else columns.label) == self.verdict
        if self.human is not None:
            yield columns.human.is_(None) if self.human == UNLABELED else columns.human == self.human
        if self.id is not None:
            yield columns.id.startswith(self.id, autoescape=True)
        if self.model is not None:
            yield columns.model.contains(self.model, autoescape=True)
        if self.since_ms is not None:
            yield columns.created_ms >= self.since_ms
        if self.until_ms is not None:
            yield columns.created_ms < self.until_ms
