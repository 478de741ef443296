"""Exceptions of this project.

An exception from this file means that a judgment could not be made. It is retried or reported with its cause, and never
becomes a score. The failure of a judged program is not an exception but data (`ExecResult`). A user's mistake is a
`ValueError`.
"""

from __future__ import annotations

from typing import Self


class TirjudgeError(Exception):
    """Base of all errors of this project."""

    logged: str | None = None
    """Text for logs. None: log the message, which then contains no user data."""

    def logged_as(self, text: str) -> Self:
        """Set the text for logs and return the error. Use it when the message contains user data."""
        self.logged = text
        return self


def logged(error: BaseException) -> str:
    """Return the text of an error that is safe to log: free of user data, or the class name alone for a foreign
    error."""
    return (error.logged or str(error)) if isinstance(error, TirjudgeError) else type(error).__name__


class EngineUnavailable(TirjudgeError):
    """The engine cannot be reached, or failed during generation."""


class EngineNotListening(EngineUnavailable):
    """The server of the engine refused every connection: no process listens at its URL."""


class EngineBusy(EngineUnavailable):
    """The server of the engine limits the rate of requests, and stayed busy.

    Attributes:
        retry_after_s: seconds until a retry, as requested by that server.
    """

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ContentFiltered(TirjudgeError):
    """A content filter in front of the model rejected the conversation. The model gave no verdict."""


class TurnRefused(EngineUnavailable):
    """The engine works but rejects the request. Another engine of the same kind would reject it too."""


class SandboxUnavailable(TirjudgeError):
    """The sandbox cannot run programs, or lost a program through no fault of that program."""


class SandboxBusy(SandboxUnavailable):
    """The queue of the sandbox is full. The program was not run.

    Attributes:
        retry_after_s: estimated time until the queue has room, in seconds.
    """

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ToolUnavailable(TirjudgeError):
    """Functions for programs cannot be opened: a dependency is not installed, or a server of theirs does not start."""


class DeadlineExceeded(TirjudgeError):
    """The deadline of a judgment passed before the model had written anything that a verdict could be based on."""


class RecordsUnavailable(TirjudgeError):
    """The records cannot be read or written."""


class RequestNotShown(TirjudgeError, ValueError):
    """The prompt format or the chat template cannot show a request: it has no prompt for its mode, no place for one of its
    texts, or not the roles of its conversation."""


class PromptTooLong(TirjudgeError, ValueError):
    """The rendered prompt does not fit the model's context."""


class EvidenceRefused(TirjudgeError, ValueError):
    """A store of evidence that must come with the request is missing or has another kind, or one that came is unusable."""


class CheckpointError(TirjudgeError, ValueError):
    """A checkpoint cannot be loaded or written, or was trained for a different prompt format."""


class TemplateFailed(CheckpointError):
    """A chat template refuses a conversation, or is broken."""
