"""Judgments without the texts of their turns, for the statistics of large runs: they need a third of the memory."""

from __future__ import annotations

from tirjudge.types import Judgment, Outcome, TurnRecord

ERROR_CHARS = 40
"""Characters of an error that stay: its type."""


class TextlessTurns:
    """Removes the texts of turns. Turns that are then equal become one object."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], TurnRecord] = {}

    def without_texts(self, judgment: Judgment) -> Judgment:
        """Return a judgment that was just read, without the texts of its turns. The judgment itself is changed."""
        for rollout in judgment.rollouts:
            rollout.turns[:] = map(self._textless, rollout.turns)
        return judgment

    def _textless(self, turn: TurnRecord) -> TurnRecord:
        error = (turn.output or "").lstrip()[:ERROR_CHARS] if turn.outcome is Outcome.ERROR else ""
        key = (turn.outcome, turn.tool, turn.is_thought, turn.code is None, turn.output is None, error)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = TurnRecord(
                text="",
                code=None if turn.code is None else "",
                output=None if turn.output is None else error,
                outcome=turn.outcome,
                tool=turn.tool,
                is_thought=turn.is_thought,
            )
        return found
