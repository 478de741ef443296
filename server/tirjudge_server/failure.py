"""What a client is told when there is no score: one row a dialect, one cell for each reason. Every cell has a test.

A score that is missing is never a low score, and what we failed to judge is never passed off as what the judge said. Where a
protocol has words for that, they are used. Where it has none, a number that the operator chose stands in, marked in a field
that the client ignores; it is logged and counted, and the answer carries the header `x-judge-failed`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
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
    """How an absence is put."""

    MARKED = "marked"
    """In a field of the protocol that is made for it."""
    FALLBACK = "fallback"
    """A number that the operator chose, and a flag in a field beside it that the client may log."""
    BARE_FALLBACK = "bare_fallback"
    """A number that the operator chose; the protocol has room for nothing else."""
    LEFT_OUT = "left_out"
    """The others are answered, and this one is not among them."""
    ERROR = "error"
    """If there is nothing else to answer, an HTTP error that says when to ask again; beside answers, as an abstention."""


def _row(judge: FailureStyle, *, ours: FailureStyle) -> Mapping[MissingScore, FailureStyle]:
    """Where an HTTP error does no harm, it also answers a request that costs too much: a 413, which says how to split it."""
    return {
        absence: ours if absence.is_ours or absence is MissingScore.TOO_COSTLY else judge for absence in MissingScore
    }


FAILURES: Mapping[str, Mapping[MissingScore, FailureStyle]] = {
    "reward": _row(FailureStyle.MARKED, ours=FailureStyle.ERROR),
    "rerank": _row(FailureStyle.MARKED, ours=FailureStyle.ERROR),
    "batch": _row(FailureStyle.MARKED, ours=FailureStyle.ERROR),
    # An HTTP error is tried five times and then becomes `reward=None`, which ends the run with a ValueError.
    "openrlhf": _row(FailureStyle.FALLBACK, ours=FailureStyle.FALLBACK),
    # An HTTP error is tried ten times over two and a half minutes, and then ends the run.
    "slime": _row(FailureStyle.BARE_FALLBACK, ours=FailureStyle.BARE_FALLBACK),
    "slime?reward_key": _row(FailureStyle.FALLBACK, ours=FailureStyle.FALLBACK),
    # Any answer without `scores` is a KeyError.
    "llamafactory": _row(FailureStyle.FALLBACK, ours=FailureStyle.FALLBACK),
    # Rows with the tag go to a file of failures, are left out of every mean, and can be verified again.
    "nemo_gym": _row(FailureStyle.MARKED, ours=FailureStyle.MARKED),
    # Its own server gives the neutral score where a comparison cannot be parsed, and 503 where the judge is down for any.
    "nemo_gym/compare": _row(FailureStyle.FALLBACK, ours=FailureStyle.ERROR),
    "eval_protocol": _row(FailureStyle.MARKED, ours=FailureStyle.MARKED),
    # Its client drops answers of a type it does not know, and retries an HTTP error.
    "systemone": _row(FailureStyle.MARKED, ours=FailureStyle.ERROR),
    # verl tries an HTTP error sixteen times, and then ends the run.
    "vllm_scoring": _row(FailureStyle.FALLBACK, ours=FailureStyle.FALLBACK),
    "rerank_shapes": _row(FailureStyle.LEFT_OUT, ours=FailureStyle.ERROR),
    "rewardanything": _row(FailureStyle.LEFT_OUT, ours=FailureStyle.ERROR),
}
"""Dialect -> why there is no score -> how the client is told."""


def is_patient(dialect: str) -> bool:
    """Whether it is better to wait for the engine than to answer at once: the client would not ask again by itself."""
    return FAILURES[dialect][MissingScore.UNAVAILABLE] is not FailureStyle.ERROR


def absence_in(verdict: Verdict) -> MissingScore | None:
    """Why a verdict decides nothing; None if it does."""
    if verdict.status != "abstained":
        return None
    if verdict.reason in (StopReason.MALFORMED, StopReason.NO_VERDICT):
        return MissingScore.PARSE_FAILED
    return MissingScore.DEADLINE if verdict.reason == StopReason.DEADLINE else MissingScore.ABSTAINED


def absence_from(error: Exception) -> MissingScore:
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
    """Counts and logs the scores that are missing, by dialect and reason.

    Attributes:
        counts: so far; the fallbacks among them are numbers that no judge gave.
    """

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, MissingScore]] = Counter()

    def add(self, dialect: str, absence: MissingScore, *, reason: str, num: int = 1) -> None:
        """So many more, for one reason."""
        self.counts[dialect, absence] += num
        said = FAILURES[dialect][absence]
        logger.warning("%s: %d without a score (%s), told as %s: %s", dialect, num, absence, said, reason)
