"""Circuit breakers: requests fail at once while the engine or the sandbox is known not to work."""

from __future__ import annotations

from tirjudge.errors import EngineUnavailable, SandboxUnavailable, TirjudgeError

NUM_FAILURES = 3
"""Failures in a row that open the circuit."""


class Circuit:
    """Of one thing that judgments need. Opens after failures in a row, or one failed trial; closes by a success.

    Args:
        name: of the thing.
        error: raised while the circuit is open.
    """

    def __init__(self, name: str, *, error: type[EngineUnavailable | SandboxUnavailable]) -> None:
        self.name = name
        self._error = error
        self._num_failures = 0
        self._cause: TirjudgeError | None = None

    @property
    def is_open(self) -> bool:
        return self._num_failures >= NUM_FAILURES

    def failed(self, cause: TirjudgeError, *, is_certain: bool = False) -> None:
        """It did not work once more; `is_certain`: a trial says so."""
        self._cause = cause
        self._num_failures = max(self._num_failures + 1, NUM_FAILURES if is_certain else 0)

    def succeeded(self) -> None:
        self._num_failures, self._cause = 0, None

    def check(self) -> None:
        """Whether it makes sense to try.

        Raises:
            EngineUnavailable, SandboxUnavailable: it does not.
        """
        if self.is_open:
            raise self._error(f"the {self.name} does not work, and is tried again every second: {self._cause}")
