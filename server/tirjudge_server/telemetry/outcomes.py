"""Labels for the outcome of a judgment, for metrics and logs."""

from __future__ import annotations

import asyncio

from tirjudge.types import Judgment
from tirjudge_web.errors import QueueFull, problem_from


def status_of(outcome: Judgment | BaseException) -> str:
    """Return the outcome as a label.

    `decided`, `tie` or `abstained` for a judgment. Without one: `turned_away` if the queue was full, `cancelled` if all
    callers disconnected, otherwise `failed`.
    """
    if isinstance(outcome, Judgment):
        return outcome.verdict.status
    if isinstance(outcome, asyncio.CancelledError):
        return "cancelled"
    return "turned_away" if isinstance(outcome, QueueFull) else "failed"


def code_of(error: BaseException) -> str | None:
    """Return the `code` of the error response; None: the judgment was cancelled."""
    return problem_from(error)[1].code or "unknown" if isinstance(error, Exception) else None
