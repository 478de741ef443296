"""What can go wrong on our side. What a judged program does wrong is data (`ExecResult`), never one of these.

A user's mistake is a `ValueError`. An exception from this file means that a judgment could not be made; it is retried or
reported with its cause, and never turned into a score.
"""

from __future__ import annotations

from typing import Self


class TirjudgeError(Exception):
    """Base of all errors of this project."""

    logged: str | None = None
    """What a log may say of it; None: its message, which is all ours."""

    def logged_as(self, text: str) -> Self:
        """The error itself. Its message quotes what somebody sent, or what an engine said of that; a log says this."""
        self.logged = text
        return self


def logged(error: BaseException) -> str:
    """What a log may say of an error: our own words, or its kind alone."""
    return (error.logged or str(error)) if isinstance(error, TirjudgeError) else type(error).__name__


class EngineUnavailable(TirjudgeError):
    """The engine cannot be reached, or failed while it generated."""


class EngineNotListening(EngineUnavailable):
    """The server of the engine refused every connection: no process listens at its URL."""


class TurnRefused(EngineUnavailable):
    """The engine works and refuses what it was asked for; another one of its kind would too."""


class SandboxUnavailable(TirjudgeError):
    """The sandbox cannot run programs, or lost one for a reason that is not the program's."""


class SandboxBusy(SandboxUnavailable):
    """As many programs wait as may; nothing was run.

    Attributes:
        retry_after_s: when there will likely be room.
    """

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class DeadlineExceeded(TirjudgeError):
    """The time for a judgment was up before the model had written anything that a verdict could rest on."""


class RecordsUnavailable(TirjudgeError):
    """The records cannot be read or written."""


class PromptTooLong(TirjudgeError, ValueError):
    """The rendered prompt does not fit the model's context."""


class CheckpointError(TirjudgeError, ValueError):
    """A checkpoint that this engine cannot load, that was trained for other prompts or another loop, or that cannot be
    written."""
