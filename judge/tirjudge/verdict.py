"""Combine rollouts into a verdict: pure functions over labels and their log-probabilities.

The labels of a rollout refer to the order in which it was shown the responses. Verdicts refer to the order of the
request. A rollout without a verdict is excluded from every mean. It counts neither as a tie nor as a low score, and is
reported as the reason of an abstention. A verdict that does not meet the requirements of the request is withheld: it
becomes an abstention, and its rollouts stay in the judgment.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tirjudge.basis import basis_of, combined_basis
from tirjudge.types import (
    GOOD_SCORE,
    RULE,
    TIE,
    Basis,
    JudgeRequest,
    Mode,
    Rollout,
    RolloutVerdict,
    Unmet,
    Verdict,
    label_of,
)

TIED = -1
"""Choice of a vote that called the responses equally good, in place of the index of a response."""

POINT_DIGITS = 9
"""Decimal places of sums of points. The order of summation must not break ties."""

SCORE_DIGITS = 3
"""Decimal places of scores. The last digits of an engine vary with its batch and must not break ties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One rollout with the order in which it was shown the responses."""

    order: tuple[int, ...]
    """Indexes into the request's responses, in the order shown."""
    rollout: Rollout
    """The rollout."""
    needs_program: bool = False
    """Whether the verdict only counts if a program ran (`tools="on"`)."""

    def response_named(self, label: str) -> int:
        """Return the index of the response that was shown under `label`."""
        return next(index for place, index in enumerate(self.order) if label_of(place) == label)

    @property
    def abstains_because(self) -> str | None:
        """Reason why this vote does not count. None: it counts."""
        if self.rollout.label is None:
            return self.rollout.stop_reason.value
        if self.needs_program and self.rollout.num_programs == 0:
            return "no_program_ran"
        return None


def label_mass(rollout: Rollout) -> float | None:
    """Return the total probability of the offered labels at the verdict position, at most 1; None if not known."""
    if not rollout.label_logprobs:
        return None
    return min(1.0, math.fsum(math.exp(logprob) for logprob in rollout.label_logprobs.values()))


def expected_score(rollout: Rollout) -> float:
    """Return the sum of score x P(score) over the labels 1 to 10; the score as written if probabilities are not known.

    Raises:
        ValueError: the rollout has no verdict.
    """
    if not rollout.label_logprobs:
        return float(rollout.label or "")
    return math.fsum(float(label) * p for label, p in rollout.label_probabilities.items())


def rollout_verdict(vote: Vote, *, mode: Mode) -> RolloutVerdict | None:
    """Return the wire form of the verdict of one rollout; None if it has no verdict."""
    rollout = vote.rollout
    if rollout.label is None:
        return None
    pointwise = mode is Mode.POINTWISE
    return RolloutVerdict(
        label=rollout.label,
        written=rollout.written,
        points=None if rollout.points is None else list(rollout.points),
        best=None if pointwise or rollout.label == TIE else vote.response_named(rollout.label),
        score=expected_score(rollout) if pointwise else None,
        probabilities=rollout.label_probabilities,
        label_mass=label_mass(rollout),
        forced=rollout.forced,
        basis=basis_of(rollout, mode=mode, num_shown=len(vote.order)),
    )


def majority(choices: Sequence[int | None]) -> int | None:
    """Return the choice with strictly the most votes; None if the lead is shared or every vote abstained."""
    if len(choices) == 1:  # most judgments have one vote
        return choices[0]
    counted = Counter(choice for choice in choices if choice is not None).most_common(2)
    if not counted or (len(counted) == 2 and counted[0][1] == counted[1][1]):
        return None
    return counted[0][0]


def votes_still_needed(choices: Sequence[int | None], *, num_votes: int) -> int:
    """Return the minimum number of further votes that can decide; 0 once the remaining votes cannot change the outcome.

    Args:
        choices: choices so far. None is a vote that abstained.
        num_votes: maximum number of votes in total.
    """
    num_left = num_votes - len(choices)
    counted = [count for _, count in Counter(c for c in choices if c is not None).most_common(2)]
    first, second = [*counted, 0, 0][:2]
    if num_left <= 0 or first > second + num_left:
        return 0
    # If all of these votes went to the leader, the runner-up could no longer catch up.
    return min(num_left, (num_left + second - first) // 2 + 1)


def preference_verdict(votes: Sequence[Vote], *, num_responses: int) -> Verdict:
    """Return the verdict of a pairwise or listwise comparison: the majority of each order, if all orders agree. If the format
    joins opposite orders by points: the response with the most points.

    Args:
        votes: all votes of all orders. All orders show the same responses.
        num_responses: number of responses in the request. Responses that were not shown get probability 0.
    """
    counted = [vote for vote in votes if vote.abstains_because is None]
    by_order: dict[tuple[int, ...], list[Vote]] = {vote.order: [] for vote in votes}
    for vote in counted:
        by_order[vote.order].append(vote)
    if any(not cast for cast in by_order.values()):
        return abstention(votes)
    decisions = {majority([chosen(vote) for vote in cast]) for cast in by_order.values()}
    best = next(iter(decisions)) if len(decisions) == 1 else None
    called_tie = best == TIED
    points = [
        [dict(zip(vote.order, vote.rollout.points or (), strict=False)) for vote in cast] for cast in by_order.values()
    ]
    if len(points) > 1 and all(all(cast) for cast in points):
        best = joined_choice(points)
    best = None if best == TIED else best
    mass = _mean_mass(counted)
    probabilities = confidence = None
    if mass is not None:
        probabilities = [fmean(_probability(vote, index) for vote in counted) for index in range(num_responses)]
        of_tie = fmean(vote.rollout.label_probabilities.get(TIE, 0.0) for vote in counted)
        top = of_tie if called_tie else max(probabilities) if best is None else probabilities[best]
        confidence = top * mass
    reason = None
    if best is None:
        reason = "judged_equal" if called_tie else "votes_split" if None in decisions else "orders_disagree"
    return Verdict(
        status="tie" if best is None else "decided",
        best=best,
        label=None if best is None else label_of(best),
        scores=None,
        probabilities=probabilities,
        confidence=confidence,
        label_mass=mass,
        forced=any(vote.rollout.forced for vote in counted),
        reason=reason,
        basis=_basis(counted, mode=Mode.LISTWISE),  # pairwise has the same rule
    )


def joined_choice(by_order: Sequence[Sequence[Mapping[int, float]]]) -> int:
    """Return the response with the most points over all orders, or `TIED` if several have them.

    Args:
        by_order: for each order, the points of each of its votes: index of a response -> points. The votes of an order are
            averaged, so that all orders count equally.

    >>> joined_choice([[{0: 3.0, 1: 0.0}], [{0: 0.0, 1: 1.0}]]), joined_choice([[{0: 8, 1: 6}], [{0: 6, 1: 8}]])
    (0, -1)
    """
    totals = {
        index: round(math.fsum(fmean(points[index] for points in cast) for cast in by_order), POINT_DIGITS)
        for index in by_order[0][0]
    }
    top = [index for index, total in totals.items() if total == max(totals.values())]
    return top[0] if len(top) == 1 else TIED


def chosen(vote: Vote) -> int | None:
    """Return the response that a pairwise or listwise vote chose, or `TIED`; None if the vote does not count."""
    if vote.abstains_because is not None:
        return None
    return TIED if vote.rollout.label == TIE else vote.response_named(vote.rollout.label or "")


def _basis(counted: Sequence[Vote], *, mode: Mode) -> Basis | None:
    return combined_basis(basis_of(vote.rollout, mode=mode, num_shown=len(vote.order)) for vote in counted)


def _mean_mass(counted: Sequence[Vote]) -> float | None:
    """Return the mean of `label_mass`; None unless it is known for every vote."""
    masses = [label_mass(vote.rollout) for vote in counted]
    known = [mass for mass in masses if mass is not None]
    return fmean(known) if len(known) == len(masses) else None


def _probability(vote: Vote, index: int) -> float:
    if index not in vote.order:
        return 0.0
    of_shown = shown_probabilities(vote.rollout.label_probabilities, num_shown=len(vote.order))
    return of_shown[vote.order.index(index)]


def shown_probabilities(of_labels: Mapping[str, float], *, num_shown: int) -> list[float]:
    """Return P(it is the best) of each shown response, in the order shown; empty if not known. The responses share the
    probability of a tie.

    Args:
        of_labels: label -> probability, the letters in the order shown.
        num_shown: number of responses that were shown.
    """
    share = of_labels.get(TIE, 0.0) / num_shown
    return [probability + share for label, probability in of_labels.items() if label != TIE]


def pointwise_verdict(votes: Sequence[Vote], *, num_responses: int) -> Verdict:
    """Return the pointwise verdict: the mean expected score of each response. The highest of several scores is the
    best.

    Args:
        votes: votes that were shown one response each.
        num_responses: number of responses in the request.
    """
    counted = [vote for vote in votes if vote.abstains_because is None]
    by_response: list[list[Rollout]] = [[] for _ in range(num_responses)]
    for vote in counted:
        by_response[vote.order[0]].append(vote.rollout)
    scores = [round(fmean(map(expected_score, r)), SCORE_DIGITS) if r else None for r in by_response]
    known = [score for score in scores if score is not None]
    if len(known) < num_responses:
        return abstention(votes).model_copy(update={"scores": scores if known else None})
    best = highest(known)
    if num_responses == 1:
        label: str | None = Counter(r.label for r in by_response[0]).most_common(1)[0][0]
    else:
        label = None if best is None else label_of(best)
    mass = _mean_mass(counted)
    probabilities = confidence = None
    if mass is not None:
        probabilities = [fmean(map(_good_mass, rollouts)) for rollouts in by_response]
        confidence = _top_probability(by_response, label=label) * mass
    tie = num_responses > 1 and best is None
    return Verdict(
        status="tie" if tie else "decided",
        best=best if num_responses > 1 else None,
        label=label,
        scores=scores,
        probabilities=probabilities,
        confidence=confidence,
        label_mass=mass,
        forced=any(vote.rollout.forced for vote in counted),
        reason="equal_scores" if tie else None,
        basis=_basis(counted, mode=Mode.POINTWISE),
    )


def raw_verdict(scores: Sequence[float], *, mode: Mode) -> Verdict:
    """Return the verdict of a scalar reward model. The highest score is the best; equal scores are a tie.

    Scores are compared raw. In comparing modes, the probabilities are those of the Bradley-Terry model with the scores as
    log-strengths: of two responses, sigmoid(difference); of several, softmax. They are not calibrated unless the model was
    trained with this loss.

    Args:
        scores: raw score of each response.
        mode: mode of the request.
    """
    num_responses = len(scores)
    best = highest(scores)
    tie = num_responses > 1 and best is None
    probabilities = None if mode.scores_each else _softmax(scores)
    return Verdict(
        status="tie" if tie else "decided",
        best=best if num_responses > 1 else None,
        label=label_of(best) if num_responses > 1 and best is not None else None,
        scores=list(scores) if mode.scores_each else None,
        probabilities=probabilities,
        confidence=None if probabilities is None else max(probabilities),
        label_mass=None,
        forced=False,
        reason="equal_scores" if tie else None,
    )


def _softmax(scores: Sequence[float]) -> list[float]:
    top = max(scores)
    weights = [math.exp(score - top) for score in scores]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def highest(scores: Sequence[float]) -> int | None:
    """Return the index of the strictly highest score; None if several share it."""
    top = max(scores)
    indexes = [index for index, score in enumerate(scores) if score == top]
    return indexes[0] if len(indexes) == 1 else None


def _top_probability(by_response: Sequence[Sequence[Rollout]], *, label: str | None) -> float:
    """Return the probability of the score `label` for a single response; for several responses, the mean over rollouts
    of the probability of the most probable score."""
    if len(by_response) == 1:
        return fmean(rollout.label_probabilities.get(label or "", 0.0) for rollout in by_response[0])
    return fmean(max(rollout.label_probabilities.values()) for rollouts in by_response for rollout in rollouts)


def _good_mass(rollout: Rollout) -> float:
    return math.fsum(p for label, p in rollout.label_probabilities.items() if float(label) >= GOOD_SCORE)


def bye(index: int, *, num_responses: int) -> Verdict:
    """Return the verdict for a group of one response, which wins without a comparison."""
    return Verdict(
        status="decided",
        best=index,
        label=label_of(index),
        scores=None,
        probabilities=[float(i == index) for i in range(num_responses)],
        confidence=1.0,
        label_mass=None,
        forced=False,
    )


def abstention(votes: Sequence[Vote]) -> Verdict:
    """Return an abstention with the reason of the first vote that does not count."""
    return _abstained(next(reason for vote in votes if (reason := vote.abstains_because) is not None))


def held_to(request: JudgeRequest, verdict: Verdict) -> Verdict:
    """Return the verdict, or an abstention if it does not meet `require` and `min_confidence` of the request.

    A pointwise verdict over several responses is withheld as a whole. A tie has a basis and a confidence, too. The
    confidence of the model does not count where a gate decided.
    """
    if verdict.status == "abstained":
        return verdict
    if request.require == "checked" and verdict.basis != "checked":
        return _abstained(Unmet.NOT_CHECKED.value)
    if request.min_confidence is None or verdict.reason == RULE:
        return verdict
    if verdict.confidence is None:
        return _abstained(Unmet.CONFIDENCE_UNKNOWN.value)
    return verdict if verdict.confidence >= request.min_confidence else _abstained(Unmet.LOW_CONFIDENCE.value)


def _abstained(reason: str) -> Verdict:
    return Verdict(
        status="abstained",
        best=None,
        label=None,
        scores=None,
        probabilities=None,
        confidence=None,
        label_mass=None,
        forced=False,
        reason=reason,
    )
