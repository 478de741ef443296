"""Circuit breakers: requests fail immediately while the engine or the sandbox is known to be broken."""

from __future__ import annotations

from tirjudge.errors import EngineUnavailable, SandboxUnavailable, TirjudgeError

NUM_FAILURES = 3
"""Number of consecutive failures that open a circuit."""


class Circuit:
    """The circuit breaker of one component. Consecutive failures or one failed trial open it; one success closes it.

    Args:
        name: name of the component, for error messages.
        error: the exception that `check` raises while the circuit is open.
    """

    def __init__(self, name: str, *, error: type[EngineUnavailable | SandboxUnavailable]) -> None:
        self.name = name
        self._error = error
        self._num_failures = 0
        self._cause: TirjudgeError | None = None

    @property
    def is_open(self) -> bool:
        """Whether the component is known to be broken, so that `check` raises."""
        return self._num_failures >= NUM_FAILURES

    def failed(self, cause: TirjudgeError, *, is_certain: bool = False) -> None:
        """Record a failure.

        Args:
            cause: the failure.
            is_certain: whether a trial failed, which opens the circuit without further failures.
        """
        self._cause = cause
        self._num_failures = max(self._num_failures + 1, NUM_FAILURES if is_certain else 0)

    def succeeded(self) -> None:
        """Record a success, which closes the circuit."""
        self._num_failures, self._cause = 0, None

    def check(self) -> None:
        """Check that the component may be used.

        Raises:
            EngineUnavailable, SandboxUnavailable: the circuit is open.
        """
        if self.is_open:
            raise self._error(f"the {self.name} does not work; the server tries it again and again: {self._cause}")
