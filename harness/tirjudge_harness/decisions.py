"""What a judge said, whoever it was: its decisions, read from our judgments or from a file made elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tirjudge.right import Decision
from tirjudge.types import Judgment, Mode
from tirjudge_harness.examples import ExampleMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedExample:
    """An example, and everything that was said about it."""

    outline: ExampleMetadata
    mode: Mode
    decisions: tuple[Decision, ...]
    """In the order in which they were asked for; where two opposite orders were shown, the single one comes first."""
    judgments: tuple[Judgment, ...] = ()
    """Where they come from; empty if they were made elsewhere."""

    def by_judgment(self) -> Iterator[tuple[Judgment, tuple[Decision, ...]]]:
        """Each judgment with what was decided in it: one decision a rollout, or one for the whole of it."""
        start = 0
        for judgment in self.judgments:
            is_whole = start < len(self.decisions) and self.decisions[start].whole
            end = start + (1 if is_whole else len(judgment.rollouts))
            yield judgment, self.decisions[start:end]
            start = end
