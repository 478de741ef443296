"""A single finding of the doctor: whether a part of a model works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFinding:
    """What the doctor found about one part of a model."""

    name: str
    """The part, such as `pairwise prompt`."""
    is_ok: bool | None
    """Whether the part works. None: not known."""
    detail: str
    """What was found, as a phrase."""
