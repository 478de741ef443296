"""Convert verdicts to credit: a score from 0 to 1 per comparison. Benchmarks and rewards share this definition of
right, wrong, tie and no verdict.

A missing verdict is neither a tie nor a low score: its result is `none`, and `ScoringRule` defines its credit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from tirjudge.basis import combined_basis
from tirjudge.types import GOOD_SCORE, TIE, Basis, Judgment, Mode, Rollout
from tirjudge.verdict import SCORE_DIGITS, TIED, joined_choice, shown_probabilities

CountedOrders = Literal["first", "mean", "net", "all", "joined"]
Result = Literal["right", "wrong", "tie", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision of a judge about responses of an example that were shown in one order."""

    shown: tuple[int, ...]
    """Indexes into the example's responses, in the order shown. One index for a scored response."""
    best: int | None = None
    """Index of the response chosen as best. None: no response was chosen."""
    tied: bool = False
    """Whether the judge called the responses equally good."""
    score: float | None = None
    """Score that the judge wrote for a response shown alone. None: no verdict, or a comparison."""
    expected_score: float | None = None
    """Sum of score x P(score) over the judge's score tokens. None: not known."""
    probabilities: tuple[float, ...] | None = None
    """P(it is the best) of each response, in the order of `shown`. None: not known."""
    points: tuple[float, ...] | None = None
    """Points of each response, in the order of `shown`. None: the format does not join orders by points."""
    forced: bool = False
    """Whether the verdict was forced."""
    basis: Basis | None = None
    """What the verdict rests on. None: no verdict, or not known."""
    whole: bool = False
    """Whether this is the combined decision of a whole judgment (all votes, orders and groups), not one rollout."""
    scalar: bool = False
    """Whether a scalar reward model decided: it gave `score`, or compared its scores."""

    @property
    def has_verdict(self) -> bool:
        """Whether the judge decided anything: a response, a tie or a score."""
        return self.best is not None or self.tied or self.score is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringRule:
    """Rule that converts the decisions on one comparison to its credit, a score from 0 to 1."""

    orders: CountedOrders = "first"
    """`first`: the first order alone. `mean`: the mean over the orders. `net`: 1 if more orders are right than wrong,
    else 0. `all`: 1 if every order is right, else 0. `joined`: 1 if the response with the most points over all orders is
    right, else 0; as `all` if the format does not join orders by points. Several votes on one order are one decision, their
    majority."""
    tie: float = 0.5
    """Credit of a tie: responses called equally good, or equal highest scores."""
    scalar_tie: float | None = None
    """Credit of a tie of a scalar reward model. None: `tie`."""
    no_verdict: float = 0.0
    """Credit when the judge decided nothing."""
    share_ties: bool = False
    """Whether k responses that share the highest score get a credit of 1/k each, instead of `tie`."""
    expected: bool = False
    """Whether to compare expected scores. False: compare the scores as the judge wrote them."""
    unscored_loses: bool = False
    """Whether a response without a score ranks below all scored responses. False: a missing score means no verdict."""
    accept_from: float = GOOD_SCORE
    """Lowest score that accepts a response that is scored alone and compared with no other response."""


def credit(
    decisions: Sequence[Decision], responses: Sequence[int], *, right: frozenset[int], mode: Mode, counting: ScoringRule
) -> tuple[Result, float] | None:
    """Return the result and the credit, 0 to 1, of one comparison; None if it was not judged.

    Args:
        decisions: all decisions on the example, made in one mode.
        responses: indexes of the responses to compare. One response: it is accepted or rejected by its score.
        right: indexes of the right responses among them.
        mode: pointwise: a right response must have the highest score. Other modes: a right response must be chosen.
        counting: how orders, ties and missing verdicts count.
    """
    if counting.scalar_tie is not None and any(decision.scalar for decision in decisions):
        counting = replace(counting, tie=counting.scalar_tie)
    of = _of_scores if mode.scores_each else _of_choices
    return of(decisions, responses, right=right, counting=counting)


def results_by_order(decisions: Sequence[Decision], responses: Sequence[int], *, right: frozenset[int]) -> list[Result]:
    """Return the result of each order in which the responses were shown: the majority of its votes.

    Votes without a verdict are ignored; if an order has no other votes, its result is `none`. An even split is a tie.
    """
    return [_result(choice, right=right) for choice in choices_by_order(decisions, responses)]


def choices_by_order(decisions: Sequence[Decision], responses: Sequence[int]) -> list[int | None]:
    """Return the majority choice of each order, in the order of judging: an index, `TIED`, or None for no verdict."""
    return [_majority(votes) for votes in decided_by_order(decisions, responses).values()]


def differ(choices: Sequence[int | None]) -> bool:
    """Whether the orders lead to different responses. A tie is not a response."""
    return len({choice for choice in choices if choice not in (None, TIED)}) > 1


def is_flipped(judgment: Judgment) -> bool:
    """Whether two orders of the same responses lead to different responses."""
    if judgment.mode.scores_each:
        return False
    return differ(choices_by_order(decisions_of(judgment, asked=judgment.judged), judgment.judged))


def over_orders(results: Sequence[Result], *, counting: ScoringRule) -> tuple[Result, float]:
    """Combine the results of all orders of a comparison, in the order of judging, into its result and its credit."""
    credits = {"right": 1.0, "wrong": 0.0, "tie": counting.tie, "none": counting.no_verdict}
    if counting.orders == "first":
        return results[0], credits[results[0]]
    if counting.orders == "net":
        lead = results.count("right") - results.count("wrong")
        if lead:
            return ("right", 1.0) if lead > 0 else ("wrong", 0.0)
        return ("none" if "none" in results else "tie"), 0.0
    agreed = _agreed(results)
    if counting.orders in ("all", "joined"):
        return agreed, float(agreed == "right")
    return agreed, fmean(credits[result] for result in results)


def decided_by_order(decisions: Sequence[Decision], responses: Sequence[int]) -> dict[tuple[int, ...], list[Decision]]:
    """Group the decisions on exactly these responses by the order in which they were shown, in the order of judging."""
    wanted = frozenset(responses)
    found: dict[tuple[int, ...], list[Decision]] = {}
    for decision in decisions:
        if len(decision.shown) == len(wanted) and wanted.issuperset(decision.shown):
            found.setdefault(decision.shown, []).append(decision)
    return found


def choice_of(decision: Decision) -> int | None:
    """Return the index of the chosen response, `TIED`, or None for no verdict."""
    return TIED if decision.tied else decision.best


def _majority(votes: Sequence[Decision]) -> int | None:
    if len(votes) == 1:  # most runs have one vote
        return choice_of(votes[0])
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
    """Return the common result of all orders: `none` if any order has no verdict, `tie` if the orders disagree."""
    if "none" in results:
        return "none"
    return results[0] if len(set(results)) == 1 else "tie"


def basis_of_counted(decisions: Sequence[Decision], responses: Sequence[int], *, counting: ScoringRule) -> Basis | None:
    """Return the basis of the decisions that count in a comparison, together; None if it is not known.

    Args:
        decisions: all decisions on the example, made in one mode.
        responses: indexes of the compared responses.
        counting: whether the first order or all orders count.
    """
    by_order = list(decided_by_order(decisions, responses).values())
    if by_order:
        counted = by_order[0] if counting.orders == "first" else [one for cast in by_order for one in cast]
    else:
        counted = [one for one in decisions if len(one.shown) == 1 and one.shown[0] in responses]
    return combined_basis(decision.basis for decision in counted if decision.has_verdict)


def _of_choices(
    decisions: Sequence[Decision], responses: Sequence[int], *, right: frozenset[int], counting: ScoringRule
) -> tuple[Result, float] | None:
    results = results_by_order(decisions, responses, right=right)
    if counting.orders == "joined" and (choice := _joined(decisions, responses)) is not None:
        result = _result(choice, right=right)
        return result, float(result == "right")
    return over_orders(results, counting=counting) if results else None


def _joined(decisions: Sequence[Decision], responses: Sequence[int]) -> int | None:
    """Return the response with the most points over all orders, or `TIED`; None if an order has no points, or if there is
    only one order."""
    by_order = [
        [dict(zip(vote.shown, vote.points, strict=True)) for vote in votes if vote.points is not None]
        for votes in decided_by_order(decisions, responses).values()
    ]
    return joined_choice(by_order) if len(by_order) > 1 and all(by_order) else None


def _of_scores(
    decisions: Sequence[Decision], responses: Sequence[int], *, right: frozenset[int], counting: ScoringRule
) -> tuple[Result, float] | None:
    """Check whether a right response has the highest score. A single response must be accepted if it is right, and rejected
    if it is wrong."""
    wanted = frozenset(responses)
    alone = [decision for decision in decisions if len(decision.shown) == 1 and wanted.issuperset(decision.shown)]
    found = scores_of(alone, expected=counting.expected)
    if found.keys() != wanted:
        return None
    known = {index: score for index in responses if (score := found[index]) is not None}
    if not known or (len(known) < len(responses) and not counting.unscored_loses):
        return "none", counting.no_verdict
    highest = max(known.values())
    if len(responses) == 1:
        decided_right = (highest >= counting.accept_from) == bool(right)
        return ("right", 1.0) if decided_right else ("wrong", 0.0)
    top = frozenset(index for index, score in known.items() if score == highest)
    share = len(top & right) / len(top)
    if share in (0.0, 1.0):
        return ("right" if share else "wrong"), share
    return "tie", share if counting.share_ties else counting.tie


def scores_of(decisions: Sequence[Decision], *, expected: bool) -> dict[int, float | None]:
    """Return the score of each response that was shown alone: the mean over its votes, or None without a verdict.

    Expected scores are rounded to `SCORE_DIGITS`, because their last digits vary with the batch of the engine. All other
    scores are compared as they are.

    Args:
        decisions: decisions on one example.
        expected: whether to use expected scores. False: the scores as the judge wrote them.

    Raises:
        ValueError: expected scores are requested but not known.
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
            raise ValueError("expected scores: not known for this judge; use the scores as written")
    means = {index: fmean(cast) if cast else None for index, cast in votes.items()}
    if not expected:
        return means
    return {index: None if mean is None else round(mean, SCORE_DIGITS) for index, mean in means.items()}


# One judgment -----------------------------------------------------------------------------------------------------------


def decisions_of(judgment: Judgment, *, asked: Sequence[int], needs_program: bool = False) -> list[Decision]:
    """Return the decisions of one judgment. If its verdict is withheld, none of them has a verdict.

    Args:
        judgment: judgment of the responses in `asked`.
        asked: indexes into the example's responses, in the order of the request.
        needs_program: whether a verdict only counts if a program ran (`tools="on"`).
    """
    if judgment.mode is Mode.LISTWISE and any(len(r.order) < len(asked) for r in judgment.rollouts):
        return [_of_groups(judgment, asked=asked)]
    if judgment.decided_as_whole:
        return _of_whole(judgment, asked=asked)
    decisions = []
    for rollout in judgment.rollouts:
        shown = tuple(asked[index] for index in rollout.order)
        verdict = rollout.verdict
        if verdict is None or judgment.verdict.is_withheld or not rollout.counts(needs_program=needs_program):
            decisions.append(Decision(shown=shown))
        elif judgment.mode.scores_each:
            decisions.append(
                Decision(
                    shown=shown,
                    score=float(verdict.label),
                    expected_score=verdict.score if verdict.probabilities else None,
                    forced=verdict.forced,
                    basis=verdict.basis,
                )
            )
        else:
            decisions.append(
                Decision(
                    shown=shown,
                    best=None if verdict.best is None else asked[verdict.best],
                    tied=verdict.label == TIE,
                    probabilities=tuple(shown_probabilities(verdict.probabilities, num_shown=len(shown))) or None,
                    points=None if verdict.points is None else tuple(verdict.points),
                    forced=verdict.forced,
                    basis=verdict.basis,
                )
            )
    return decisions


def _of_whole(judgment: Judgment, *, asked: Sequence[int]) -> list[Decision]:
    """Return the decisions of a judgment that checks made or changed, or that a scalar reward model made."""
    verdict, scalar = judgment.verdict, judgment.raw_scores is not None
    if not judgment.mode.scores_each:
        return [replace(_of_groups(judgment, asked=asked), scalar=scalar)]
    scores = verdict.scores or [None] * len(asked)
    return [
        Decision(
            shown=(index,),
            score=score,
            expected_score=None if scalar else score,
            basis=verdict.basis,
            scalar=scalar,
        )
        for index, score in zip(asked, scores, strict=True)
    ]


def _of_groups(judgment: Judgment, *, asked: Sequence[int]) -> Decision:
    """Return the combined decision of a judgment made in groups. None of its rollouts was shown all responses."""
    verdict = judgment.verdict
    return Decision(
        shown=tuple(asked),
        best=None if verdict.best is None else asked[verdict.best],
        tied=verdict.status == "tie",
        probabilities=None if verdict.probabilities is None else tuple(verdict.probabilities),
        forced=verdict.forced,
        basis=verdict.basis,
        whole=True,
    )


def decision_of(rollout: Rollout, *, shown: tuple[int, ...], mode: Mode, labels: Sequence[str]) -> Decision:
    """Return the decision of one training rollout. A forced verdict counts as no verdict, because it is not the
    model's.

    Args:
        rollout: the rollout.
        shown: indexes into the example's responses, in the order shown.
        mode: mode of the request.
        labels: labels of the shown responses, in the same order.
    """
    label = None if rollout.forced else rollout.label
    if label is None:
        return Decision(shown=shown, forced=rollout.forced)
    if mode is Mode.POINTWISE:
        return Decision(shown=shown, score=float(label))
    return Decision(shown=shown, tied=True) if label == TIE else Decision(shown=shown, best=shown[labels.index(label)])


STRICT = ScoringRule(tie=0.0)
"""Credit 1 for choosing the right response, or scoring it strictly above the others; 0 otherwise (TIR-Judge, 4.1)."""


def is_right(judgment: Judgment, target: int, *, rule: ScoringRule = STRICT) -> tuple[Result, float] | None:
    """Return the result and the credit of one judgment. Validation, the release gate, the model card and `tirjudge
    judge` use this definition.

    Scores are compared as the judge wrote them, as rewards and benchmarks do, unless the rule asks for expected scores.

    Args:
        judgment: a judgment with all its votes and orders.
        target: index of the right response.
        rule: credit of ties and missing verdicts.

    Returns:
        None if only one response was judged, because there is nothing to compare it with.
    """
    verdict = judgment.verdict
    if judgment.mode.scores_each:
        num_judged = 1 + max((rollout.order[0] for rollout in judgment.rollouts), default=0)
        known = verdict.scores or [None] * num_judged
        asked: Sequence[int] = range(len(known))
        decisions = [
            decision if known[decision.shown[0]] is not None else replace(decision, score=None)
            for decision in decisions_of(judgment, asked=asked)
        ]
    else:
        # Responses without any comparison (byes) were not shown. Without rollouts, all responses were compared.
        named = {target} if verdict.best is None else {target, verdict.best}
        shown = [rollout.order for rollout in judgment.rollouts] or [range(len(judgment.raw_scores or judgment.checks))]
        asked = sorted(named.union(*shown))
        tied = verdict.status == "tie"
        decisions = [Decision(shown=tuple(asked), best=verdict.best, tied=tied, whole=True)]
    if len(asked) < 2:
        return None
    return credit(decisions, tuple(asked), right=frozenset({target}), mode=judgment.mode, counting=rule)
