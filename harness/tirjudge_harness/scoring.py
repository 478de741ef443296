"""Whether a judgment of a labelled file is right. One rule, said in the help of the command and in every report.

A judgment scores 1 if it names the labelled response and 0 if it names another. Pointwise, k responses that share the
highest score get 1/k each. A tie in the other modes and an abstention score 0; both are counted by themselves as well.
"""

from __future__ import annotations

from tirjudge.right import Decision, ScoringRule
from tirjudge.types import Judgment, Mode
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.evaluation import marks_of
from tirjudge_harness.examples import ExampleMetadata

COUNTING = ScoringRule(tie=0.0, no_verdict=0.0, share_ties=True, expected=True)
"""Of the verdict over all votes and orders, which is one decision."""


def correctness(judgment: Judgment, *, label: int | None) -> float | None:
    """1, 0, or a share of a tie; None where there is nothing to be right about: no label, or one response alone."""
    if label is None:
        return None
    responses = _responses(judgment, label=label)
    outline = ExampleMetadata(
        id=judgment.id, subset="", num_responses=len(responses), correct=(label,), cluster=judgment.id
    )
    verdict = judgment.verdict
    decisions = (Decision(shown=responses, best=verdict.best, tied=verdict.status == "tie", whole=True),)
    if judgment.mode is Mode.POINTWISE:
        scores = verdict.scores or [None] * len(responses)
        scored = zip(responses, scores, strict=True)
        decisions = tuple(Decision(shown=(index,), score=score, expected_score=score) for index, score in scored)
    judged = JudgedExample(outline=outline, mode=judgment.mode, decisions=decisions)
    marks = marks_of(judged, compared=[responses], counting=COUNTING)
    return marks[0].credit if marks else None


def _responses(judgment: Judgment, *, label: int) -> tuple[int, ...]:
    """The indexes that the judgment and its label speak of; one that met nobody was never shown."""
    verdict = judgment.verdict
    if verdict.scores is not None:
        return tuple(range(len(verdict.scores)))
    shown = {index for rollout in judgment.rollouts for index in rollout.order}
    named = {label} if verdict.best is None else {label, verdict.best}
    return tuple(sorted(shown | named))
