"""An example with the decisions of a judge, which come from our judgments or from a file of another program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tirjudge.right import Decision
from tirjudge.types import Judgment, Mode
from tirjudge_harness.examples import ExampleMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedExample:
    """An example with all decisions about it."""

    outline: ExampleMetadata
    mode: Mode
    decisions: tuple[Decision, ...]
    """Decisions in request order. If two opposite orders were shown, the order that a single-order run uses comes
    first. Empty: the example was not judged."""
    judgments: tuple[Judgment, ...] = ()
    """The judgments that the decisions come from. Empty: the decisions come from another program."""

    @property
    def has_verdict(self) -> bool:
        """Whether a decision has a verdict."""
        return any(decision.has_verdict for decision in self.decisions)

    def by_judgment(self) -> Iterator[tuple[Judgment, tuple[Decision, ...]]]:
        """Yield each judgment with its decisions: one decision per rollout, or one for the whole judgment."""
        start = 0
        for judgment in self.judgments:
            is_whole = start < len(self.decisions) and self.decisions[start].whole
            num_separate = len(
                judgment.rollouts if not judgment.decided_as_whole else judgment.raw_scores or judgment.checks
            )
            end = start + (1 if is_whole else num_separate)
            yield judgment, self.decisions[start:end]
            start = end
