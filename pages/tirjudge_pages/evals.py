"""What the pages of evals show."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedShare:
    """A share of passed rows with its 95 % interval, in percent."""

    value: float
    low: float
    high: float
    num: int
    """Number of rows with a score."""

    @property
    def text(self) -> str:
        """The share for readers, such as `75.0 (30.1 to 95.4)`."""
        return f"{self.value:.1f} ({self.low:.1f} to {self.high:.1f})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedEvalLine:
    """An eval in the list."""

    url: str
    """Path of its page."""
    name: str
    """Its name, or its id."""
    owner: str | None
    """Name of the API key that created it. None: created without a key."""
    created_ms: int
    """Unix time in milliseconds."""
    num_criteria: int
    num_runs: int
    latest: PassedShare | None
    """Share of passed rows of the latest run. None: no run, or no row has a score."""
    latest_status: str | None
    """State of the latest run. None: no run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRunLine:
    """A run in the list of an eval."""

    id: str
    url: str
    """Path of its report."""
    name: str
    """Its name, or its id."""
    model: str | None
    """Model that wrote the samples. None: the samples came with the rows."""
    status: str
    error: str | None
    """Message of the error that ended the run. None: no error."""
    created_ms: int
    """Unix time in milliseconds."""
    num_rows: int | None
    """None: the rows are not copied yet."""
    num_graded: int
    num_errors: int
    """Number of graded rows without a score."""
    all_criteria: PassedShare | None
    """Rows that pass all criteria. None: no row has a score."""
    criteria: tuple[PassedShare | None, ...]
    """Rows that pass each criterion."""
