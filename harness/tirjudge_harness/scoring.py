"""Score the judgment of a labeled item with `tirjudge.right.is_right`.

A judgment scores 1 if it names the labeled response and 0 if it names a different response. In pointwise mode, scores are
compared as the judge wrote them; if k responses share the highest score and the labeled one is among them, the judgment
scores 1/k. In the other modes, a tie and an abstention score 0, and the summary also counts them separately.
"""

from __future__ import annotations

from tirjudge.right import ScoringRule, is_right
from tirjudge.types import Judgment

RULE = ScoringRule(tie=0.0, no_verdict=0.0, share_ties=True)


def correctness(judgment: Judgment, *, label: int | None) -> float | None:
    """Return the score of a judgment from 0 to 1. None: the item has no label, or only one response."""
    counted = None if label is None else is_right(judgment, label, rule=RULE)
    return None if counted is None else counted[1]
