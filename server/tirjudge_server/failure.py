"""The failure table: what a client is told when there is no score. One row a dialect, one cell for each reason.

A score that is missing is never a low score, and what we failed to judge is never passed off as what the judge said. Where a
protocol has words for that, they are used. Where it has none, a number that the operator chose stands in, marked in a field
that the client ignores; it is logged and counted, and the answer carries the header `x-judge-failed`.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from tirjudge.errors import DeadlineExceeded, PromptTooLong, SandboxBusy
from tirjudge.types import StopReason, Verdict
from tirjudge_web.errors import QueueFull

logger = logging.getLogger(__name__)

FAILED_HEADER = "x-judge-failed"
"""How many scores of an answer are missing or stood in for."""


class MissingScore(StrEnum):
    """Why there is no score."""

    ABSTAINED = "abstained"
    """The judge decided nothing, such as `no_program_ran`."""
    PARSE_FAILED = "parse_failed"
    """What the judge wrote holds no well-formed verdict."""
    UNREADABLE = "unreadable"
    """The request holds no response to judge: a rendered chat that has no reading or more than one, a reference that is not
    there."""
    TOO_LONG = "too_long"
    """The prompt does not fit the judge's context."""
    TOO_COSTLY = "too_costly"
    """It asks for more work than one request may (`tirjudge_server.cost`)."""
    DEADLINE = "deadline_exceeded"
    """Its time was up before there was anything that a verdict could rest on."""
    OVERLOADED = "overloaded"
    """The queue was full."""
    UNAVAILABLE = "unavailable"
    """The engine or the sandbox does not work, the server is shutting down, or it has a bug."""

    @property
    def is_ours(self) -> bool:
        """Whether the same request could be answered later."""
        return self in (MissingScore.DEADLINE, MissingScore.OVERLOADED, MissingScore.UNAVAILABLE)


class FailureStyle(StrEnum):
    """How a client is told that a score is missing."""

    MARKED = "marked"
    """In a field of the protocol that is made for it."""
    FALLBACK = "fallback"
    """A number that the operator chose, and a flag in a field beside it that the client may log."""
    BARE_FALLBACK = "bare_fallback"
    """A number that the operator chose; the protocol has room for nothing else."""
    LEFT_OUT = "left_out"
    """The others are answered, and this one is not among them."""
    ERROR = "error"
    """An HTTP error that says when to ask again, if there is nothing else to answer; beside answers, as an abstention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRow:
    """One row of the failure table: how a dialect tells each reason for a missing score."""

    judge: FailureStyle
    """Where the judge gave no score, or the request holds nothing that can be judged."""
    server: FailureStyle
    """Where the server failed, or the request costs too much. An HTTP error for that is a 413, which says how to split it."""

    def style(self, missing: MissingScore) -> FailureStyle:
        return self.server if missing.is_ours or missing is MissingScore.TOO_COSTLY else self.judge

    @property
    def is_patient(self) -> bool:
        """Whether a full queue or a broken engine is waited for: the client does not ask again by itself."""
        return self.server is not FailureStyle.ERROR


NATIVE_FAILURES = FailureRow(judge=FailureStyle.MARKED, server=FailureStyle.ERROR)
"""The row of every native endpoint. A dialect brings its own (`tirjudge_server.dialects`)."""


def missing_in(verdict: Verdict) -> MissingScore | None:
    """Why a verdict decides nothing; None if it does."""
    if verdict.status != "abstained":
        return None
    if verdict.reason in (StopReason.MALFORMED, StopReason.NO_VERDICT):
        return MissingScore.PARSE_FAILED
    return MissingScore.DEADLINE if verdict.reason == StopReason.DEADLINE else MissingScore.ABSTAINED


def missing_from(error: Exception) -> MissingScore:
    """Why there is no judgment, by what was raised instead."""
    match error:
        case PromptTooLong():
            return MissingScore.TOO_LONG
        case QueueFull() | SandboxBusy():
            return MissingScore.OVERLOADED
        case DeadlineExceeded():
            return MissingScore.DEADLINE
        case _:
            return MissingScore.UNAVAILABLE


class Fallbacks:
    """Counts and logs the scores that are missing, by row of the failure table and reason.

    Attributes:
        counts: so far; the fallbacks among them are numbers that no judge gave.
    """

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, MissingScore]] = Counter()

    def add(self, label: str, missing: MissingScore, *, style: FailureStyle, reason: str, num: int = 1) -> None:
        """`num` more in the row with this label, for one reason."""
        self.counts[label, missing] += num
        logger.warning("%s: %d without a score (%s), told as %s: %s", label, num, missing, style, reason)
