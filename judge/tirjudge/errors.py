"""What can go wrong on our side. What a judged program does wrong is data (`ExecResult`), never one of these.

A user's mistake is a `ValueError`. An exception from this file means that a judgment could not be made; it is retried or
reported with its cause, and never turned into a score.
"""


class TirjudgeError(Exception):
    """Base of all errors of this project."""


class EngineUnavailable(TirjudgeError):
    """The engine cannot be reached, or failed while it generated."""


class SandboxUnavailable(TirjudgeError):
    """The sandbox cannot run programs, or lost one for a reason that is not the program's."""


class PromptTooLong(TirjudgeError, ValueError):
    """The rendered prompt does not fit the model's context."""


class CheckpointError(TirjudgeError, ValueError):
    """A checkpoint that this engine cannot load, or that was trained for other prompts or another loop."""
