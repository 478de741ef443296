"""The outcome of a judgment in one word, for metrics and logs."""

from __future__ import annotations

import asyncio

from tirjudge.types import Judgment
from tirjudge_web.errors import QueueFull, problem_from


def status_of(outcome: Judgment | BaseException) -> str:
    """`decided`, `tie` or `abstained`; `failed`, `turned_away` from the queue, or `cancelled` since everybody hung up."""
    if isinstance(outcome, Judgment):
        return outcome.verdict.status
    if isinstance(outcome, asyncio.CancelledError):
        return "cancelled"
    return "turned_away" if isinstance(outcome, QueueFull) else "failed"


def code_of(error: BaseException) -> str | None:
    """Why there is no judgment, by the `code` that callers are told; None: it was cancelled."""
    return problem_from(error)[1].code or "unknown" if isinstance(error, Exception) else None
