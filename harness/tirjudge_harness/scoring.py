"""Whether a judgment of a labelled file is right, by `tirjudge.right.is_right`. The help of the command and every report say
the rule.

A judgment scores 1 if it names the labelled response and 0 if it names another. Pointwise, k responses that share the
highest written score get 1/k each. A tie in the other modes and an abstention score 0; both are counted by themselves as
well.
"""

from __future__ import annotations

from tirjudge.right import ScoringRule, is_right
from tirjudge.types import Judgment

RULE = ScoringRule(tie=0.0, no_verdict=0.0, share_ties=True)


def correctness(judgment: Judgment, *, label: int | None) -> float | None:
    """1, 0, or a share of a tie; None where there is nothing to be right about: no label, or one response alone."""
    counted = None if label is None else is_right(judgment, label, rule=RULE)
    return None if counted is None else counted[1]
