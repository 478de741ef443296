"""Whether a judgment is right. One rule, said in the help of the command and in every report.

A judgment scores 1 if it names the labelled response and 0 if it names another. Pointwise, k responses that share the
highest score get 1/k each. A tie in the other modes and an abstention score 0; both are counted by themselves as well.
"""

from __future__ import annotations

from tirjudge.types import Judgment, Mode


def correctness(judgment: Judgment, *, label: int | None) -> float | None:
    """1, 0, or a share of a tie; None where there is nothing to be right about: no label, or one response alone."""
    verdict = judgment.verdict
    if label is None or (judgment.mode is Mode.POINTWISE and verdict.scores is not None and len(verdict.scores) == 1):
        return None
    if verdict.status == "decided":
        return float(verdict.best == label)
    if verdict.status == "tie" and judgment.mode is Mode.POINTWISE:
        scores = [score for score in verdict.scores or [] if score is not None]
        tied = [index for index, score in enumerate(scores) if score == max(scores)]
        return 1 / len(tied) if label in tied else 0.0
    return 0.0
