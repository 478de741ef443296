"""The failure table: how each dialect reports a missing score, by reason. One row per dialect, one cell per reason.

A missing score is never reported as a low score, and a server failure is never reported as an opinion of the judge. Where a
protocol can express a missing score, its own field is used. Where it cannot, the response has a fallback number that the
operator chose, and a flag in a field that the client ignores. Each missing score is logged and counted, and the response has
the header `x-judge-failed`.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from tirjudge.errors import DeadlineExceeded, EvidenceRefused, PromptTooLong, RequestNotShown, SandboxBusy
from tirjudge.types import StopReason, Verdict
from tirjudge_web.errors import QueueFull

logger = logging.getLogger(__name__)

FAILED_HEADER = "x-judge-failed"
"""Response header: number of scores that are missing or replaced by a fallback."""


class MissingScore(StrEnum):
    """Why a score is missing."""

    ABSTAINED = "abstained"
    """The judge abstained, for a reason such as `no_program_ran`."""
    PARSE_FAILED = "parse_failed"
    """The judge's text has no well-formed verdict."""
    UNREADABLE = "unreadable"
    """The request has no response to judge: a rendered chat that cannot be parsed or is ambiguous, a missing
    reference, or missing evidence."""
    TOO_LONG = "too_long"
    """The prompt does not fit the judge's context."""
    TOO_COSTLY = "too_costly"
    """The cost of the request exceeds the limits (`tirjudge_server.cost`)."""
    DEADLINE = "deadline_exceeded"
    """The deadline passed before the model had written anything to base a verdict on."""
    OVERLOADED = "overloaded"
    """The queue was full."""
    UNAVAILABLE = "unavailable"
    """The engine or the sandbox is broken, the server is shutting down, or the server has a bug."""

    @property
    def is_ours(self) -> bool:
        """Whether the cause is a server failure, so that a retry may succeed."""
        return self in (MissingScore.DEADLINE, MissingScore.OVERLOADED, MissingScore.UNAVAILABLE)


class FailureStyle(StrEnum):
    """How a missing score is reported to the client."""

    MARKED = "marked"
    """The protocol has a field for missing scores."""
    FALLBACK = "fallback"
    """The response has the operator's fallback number, with a flag in a separate field that the client may log."""
    BARE_FALLBACK = "bare_fallback"
    """The response has the operator's fallback number alone; the protocol has no field for a flag."""
    LEFT_OUT = "left_out"
    """The response has the other scores and omits this one."""
    ERROR = "error"
    """The response is an HTTP error with `retry-after` if every score failed. If the response has other results, the score
    is reported as an abstention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRow:
    """One row of the failure table: how a dialect reports missing scores."""

    judge: FailureStyle
    """Style if the judge returned no score or the request has nothing to judge."""
    server: FailureStyle
    """Style if the server failed or the request costs too much. The HTTP error for the cost is a 413, whose message says
    how to split the request."""

    def style(self, missing: MissingScore) -> FailureStyle:
        """The style for one reason."""
        return self.server if missing.is_ours or missing is MissingScore.TOO_COSTLY else self.judge

    @property
    def is_patient(self) -> bool:
        """Whether the server waits while its queue is full or its engine is down, because the client does not retry."""
        return self.server is not FailureStyle.ERROR


NATIVE_FAILURES = FailureRow(judge=FailureStyle.MARKED, server=FailureStyle.ERROR)
"""The row of every native endpoint. Each dialect defines its own row (`tirjudge_server.dialects`)."""


def missing_in(verdict: Verdict) -> MissingScore | None:
    """Why a verdict has no score; None: the verdict is not an abstention."""
    if verdict.status != "abstained":
        return None
    if verdict.reason in (StopReason.MALFORMED, StopReason.NO_VERDICT):
        return MissingScore.PARSE_FAILED
    return MissingScore.DEADLINE if verdict.reason == StopReason.DEADLINE else MissingScore.ABSTAINED


def missing_from(error: Exception) -> MissingScore:
    """Why a score is missing, from the exception that was raised instead of a judgment."""
    match error:
        case PromptTooLong():
            return MissingScore.TOO_LONG
        case EvidenceRefused() | RequestNotShown():
            return MissingScore.UNREADABLE
        case QueueFull() | SandboxBusy():
            return MissingScore.OVERLOADED
        case DeadlineExceeded():
            return MissingScore.DEADLINE
        case _:
            return MissingScore.UNAVAILABLE


class Fallbacks:
    """Counts and logs missing scores, by row of the failure table and reason.

    Attributes:
        counts: (label of the row, reason) -> number of missing scores since the start.
    """

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, MissingScore]] = Counter()

    def add(self, label: str, missing: MissingScore, *, style: FailureStyle, reason: str, num: int = 1) -> None:
        """Count and log missing scores.

        Args:
            label: label of the row, such as the name of the dialect.
            missing: why the scores are missing.
            style: how they are reported to the client.
            reason: details for the log.
            num: number of missing scores.
        """
        self.counts[label, missing] += num
        logger.warning("%s: %d scores missing (%s), reported as %s: %s", label, num, missing, style, reason)
