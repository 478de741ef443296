"""How a judgment ended, in one word for metrics, logs and traces alike."""

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
    """Why there is no judgment, by the `code` that callers are told; None: nobody is there to be told."""
    return problem_from(error)[1].code or "unknown" if isinstance(error, Exception) else None
