"""What a judge said, whoever it was: its decisions, read from our judgments or from a file made elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tirjudge.right import Decision
from tirjudge.types import Judgment, Mode, Outcome, RolloutRecord
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


def decisions_of(judgment: Judgment, *, asked: Sequence[int], needs_program: bool = False) -> list[Decision]:
    """The decisions in one of our judgments.

    Args:
        judgment: on the responses `asked`.
        asked: indexes into the example's responses, as they were sent.
        needs_program: whether a verdict only counts if a program ran, as the judgment was asked for (`tools="on"`).
    """
    if judgment.mode is Mode.LISTWISE and any(len(r.order) < len(asked) for r in judgment.rollouts):
        return [_of_groups(judgment, asked=asked)]
    decisions = []
    for rollout in judgment.rollouts:
        shown = tuple(asked[index] for index in rollout.order)
        verdict = rollout.verdict
        if verdict is None or (needs_program and not _ran_program(rollout)):
            decisions.append(Decision(shown=shown))
        elif judgment.mode is Mode.POINTWISE:
            decisions.append(
                Decision(
                    shown=shown,
                    score=float(verdict.label),
                    expected_score=verdict.score if verdict.probabilities else None,
                    forced=verdict.forced,
                )
            )
        else:
            decisions.append(
                Decision(
                    shown=shown,
                    best=None if verdict.best is None else asked[verdict.best],
                    probabilities=tuple(verdict.probabilities.values()) or None,
                    forced=verdict.forced,
                )
            )
    return decisions


def _ran_program(rollout: RolloutRecord) -> bool:
    return any(turn.outcome not in (None, Outcome.REFUSED) for turn in rollout.turns)


def _of_groups(judgment: Judgment, *, asked: Sequence[int]) -> Decision:
    """More responses than one prompt shows are judged in groups: only the whole of it speaks of all."""
    verdict = judgment.verdict
    return Decision(
        shown=tuple(asked),
        best=None if verdict.best is None else asked[verdict.best],
        tied=verdict.status == "tie",
        probabilities=None if verdict.probabilities is None else tuple(verdict.probabilities),
        forced=verdict.forced,
        whole=True,
    )
