"""What was said becomes credit: the one definition of right, tied and undecided, for benchmarks and for rewards.

Parse failure is no tie, and neither is a low score: what decided nothing is `none`, and `ScoringRule` says what that costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from tirjudge.types import Judgment, Mode, Rollout
from tirjudge.verdict import SCORE_DIGITS

CountedOrders = Literal["first", "mean", "net", "all"]
Result = Literal["right", "wrong", "tie", "none"]

TIED = -1
"""What a vote chose that said they are equally good; no index of a response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One look at some responses of an example, shown in one order."""

    shown: tuple[int, ...]
    """Indexes into the example's responses, in the order shown; one of them alone if it was scored."""
    best: int | None = None
    """The response that was named; None: none was."""
    tied: bool = False
    """Whether they were said to be equally good."""
    score: float | None = None
    """Of a response shown alone, as the judge wrote it; None: no verdict, or a comparison."""
    expected_score: float | None = None
    """The mean over the judge's score tokens; None where it cannot be had."""
    probabilities: tuple[float, ...] | None = None
    """P(it is the best) of each shown, in that order; None where it cannot be had."""
    forced: bool = False
    whole: bool = False
    """Whether it speaks for all votes and orders of a judgment made in groups, not for one look."""

    @property
    def has_verdict(self) -> bool:
        return self.best is not None or self.tied or self.score is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringRule:
    """How the decisions on one comparison become its credit, 0 to 1."""

    orders: CountedOrders = "first"
    """`first`: the first order alone. `mean`: the mean over the orders. `net`: 1 if more orders are right than wrong, else
    0. `all`: 1 if every order is right, else 0. Several votes on one order are one decision, their majority."""
    tie: float = 0.5
    """Credit of two responses said to be equal, or given equal scores."""
    no_verdict: float = 0.0
    """Credit where the judge decided nothing."""
    share_ties: bool = False
    """Of k responses that share the highest score each gets 1/k, instead of `tie`."""
    expected: bool = False
    """Whether scores are means over the score tokens, not the number that was written."""
    unscored_loses: bool = False
    """Whether a response without a score stands below all that have one; if not, one of them leaves no verdict."""


def credit(
    decisions: Sequence[Decision], responses: Sequence[int], *, right: frozenset[int], mode: Mode, counting: ScoringRule
) -> tuple[Result, float] | None:
    """The result and the credit, 0 to 1, of one comparison; None if it was not judged.

    Args:
        decisions: all that was decided on the example, in one mode.
        responses: indexes of the responses that are set against each other.
        right: those of them that are right.
        mode: pointwise: the highest score has to be a right response's; else a right one has to be named.
        counting: how orders, ties and missing verdicts count.
    """
    of = _of_scores if mode is Mode.POINTWISE else _of_choices
    return of(decisions, responses, right=right, counting=counting)


def results_by_order(decisions: Sequence[Decision], responses: Sequence[int], *, right: frozenset[int]) -> list[Result]:
    """What came of some responses in each order in which they were shown: the majority of the votes cast on it.

    Votes without a verdict do not count, unless no other was cast; an even split is a tie.
    """
    return [_result(choice, right=right) for choice in choices_by_order(decisions, responses)]


def choices_by_order(decisions: Sequence[Decision], responses: Sequence[int]) -> list[int | None]:
    """What was named of some responses in each order, the first one first: an index, `TIED`, or None for no verdict."""
    return [_majority(votes) for votes in decided_by_order(decisions, responses).values()]


def over_orders(results: Sequence[Result], *, counting: ScoringRule) -> tuple[Result, float]:
    """The result and the credit of a comparison, from its result in each order, the first one first."""
    credits = {"right": 1.0, "wrong": 0.0, "tie": counting.tie, "none": counting.no_verdict}
    if counting.orders == "first":
        return results[0], credits[results[0]]
    if counting.orders == "net":
        lead = results.count("right") - results.count("wrong")
        if lead:
            return ("right", 1.0) if lead > 0 else ("wrong", 0.0)
        return ("none" if "none" in results else "tie"), 0.0
    agreed = _agreed(results)
    if counting.orders == "all":
        return agreed, float(agreed == "right")
    return agreed, fmean(credits[result] for result in results)


def decided_by_order(decisions: Sequence[Decision], responses: Sequence[int]) -> dict[tuple[int, ...], list[Decision]]:
    """The decisions on exactly these responses, by the order in which they were shown; the first judged comes first."""
    wanted = frozenset(responses)
    found: dict[tuple[int, ...], list[Decision]] = {}
    for decision in decisions:
        if len(decision.shown) == len(wanted) and wanted.issuperset(decision.shown):
            found.setdefault(decision.shown, []).append(decision)
    return found


def choice_of(decision: Decision) -> int | None:
    return TIED if decision.tied else decision.best


def _majority(votes: Sequence[Decision]) -> int | None:
    counted = Counter(choice for vote in votes if (choice := choice_of(vote)) is not None).most_common(2)
    if not counted:
        return None
    (choice, most), *others = counted
    return TIED if any(count == most for _, count in others) else choice


def _result(choice: int | None, *, right: frozenset[int]) -> Result:
    if choice is None:
        return "none"
    if choice == TIED:
        return "tie"
    return "right" if choice in right else "wrong"


def _agreed(results: Sequence[Result]) -> Result:
    """What all orders say; where one says nothing there is no verdict, and orders that disagree leave a tie."""
    if "none" in results:
        return "none"
    return results[0] if len(set(results)) == 1 else "tie"


def _of_choices(
    decisions: Sequence[Decision], responses: Sequence[int], *, right: frozenset[int], counting: ScoringRule
) -> tuple[Result, float] | None:
    results = results_by_order(decisions, responses, right=right)
    return over_orders(results, counting=counting) if results else None


def _of_scores(
    decisions: Sequence[Decision], responses: Sequence[int], *, right: frozenset[int], counting: ScoringRule
) -> tuple[Result, float] | None:
    """Whether the highest score is a right response's."""
    wanted = frozenset(responses)
    alone = [decision for decision in decisions if len(decision.shown) == 1 and wanted.issuperset(decision.shown)]
    found = scores_of(alone, expected=counting.expected)
    if found.keys() != wanted:
        return None
    known = {index: score for index in responses if (score := found[index]) is not None}
    if not known or (len(known) < len(responses) and not counting.unscored_loses):
        return "none", counting.no_verdict
    highest = max(known.values())
    top = frozenset(index for index, score in known.items() if score == highest)
    share = len(top & right) / len(top)
    if share in (0.0, 1.0):
        return ("right" if share else "wrong"), share
    return "tie", share if counting.share_ties else counting.tie


def scores_of(decisions: Sequence[Decision], *, expected: bool) -> dict[int, float | None]:
    """The score of each response that was shown alone, the mean over its votes; None: no verdict on it.

    Args:
        decisions: of one example.
        expected: whether the mean over the judge's score tokens is wanted, not the number that it wrote.

    Raises:
        ValueError: that mean is wanted, and is not known.
    """
    votes: dict[int, list[float]] = {}
    for decision in decisions:
        if len(decision.shown) != 1:
            continue
        cast = votes.setdefault(decision.shown[0], [])
        score = decision.expected_score if expected else decision.score
        if score is not None and decision.score is not None:
            cast.append(score)
        elif decision.score is not None:
            raise ValueError("expected scores: not known; only the scores as written are, count those")
    return {index: round(fmean(cast), SCORE_DIGITS) if cast else None for index, cast in votes.items()}


# One judgment -----------------------------------------------------------------------------------------------------------


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
        if verdict is None or not rollout.counts(needs_program=needs_program):
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


def decision_of(rollout: Rollout, *, shown: tuple[int, ...], mode: Mode, labels: Sequence[str]) -> Decision:
    """What one rollout that was made for training says of the responses that it was shown, under these labels. A forced
    verdict is not the model's, and says nothing."""
    label = None if rollout.forced else rollout.label
    if label is None:
        return Decision(shown=shown, forced=rollout.forced)
    if mode is Mode.POINTWISE:
        return Decision(shown=shown, score=float(label))
    return Decision(shown=shown, best=shown[labels.index(label)])


STRICT = ScoringRule(tie=0.0)
"""Naming the right response, or scoring it strictly above the others, earns 1, and anything else 0 (TIR-Judge, 4.1)."""


def is_right(judgment: Judgment, target: int, *, rule: ScoringRule = STRICT) -> tuple[Result, float] | None:
    """The result and the credit of one judgment: the definition for validation, the gate, the card and `tirjudge judge`.

    Scores are compared as the judge wrote them, as rewards and benchmarks do, unless the rule says otherwise.

    Args:
        judgment: over all votes and orders that were asked for.
        target: index of the right response.
        rule: what ties and missing verdicts earn.

    Returns:
        None where there is nothing to be right about: one response alone.
    """
    verdict = judgment.verdict
    if judgment.mode is Mode.POINTWISE:
        num_judged = 1 + max((rollout.order[0] for rollout in judgment.rollouts), default=0)
        known = verdict.scores or [None] * num_judged
        asked: Sequence[int] = range(len(known))
        decisions = [
            decision if known[decision.shown[0]] is not None else replace(decision, score=None)
            for decision in decisions_of(judgment, asked=asked)
        ]
    else:
        # A response that was never compared, as one with a bye, was not shown.
        named = {target} if verdict.best is None else {target, verdict.best}
        asked = sorted(named.union(*(rollout.order for rollout in judgment.rollouts)))
        tied = verdict.status == "tie"
        decisions = [Decision(shown=tuple(asked), best=verdict.best, tied=tied, whole=True)]
    if len(asked) < 2:
        return None
    return credit(decisions, tuple(asked), right=frozenset({target}), mode=judgment.mode, counting=rule)
