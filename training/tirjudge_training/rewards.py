"""What a rollout earns: the rewards of TIR-Judge, of ARTIST, and of T3RL. Pure functions of rollouts.

Rc (right), Rf (form) and Rt (programs) are TIR-Judge's, sections 4.1 and 4.2. Right is what the benchmarks call right
(`tirjudge.right.credit`), counted strictly: a tie and a missing verdict earn nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from tirjudge.formats.tirjudge_1 import labels
from tirjudge.right import STRICT, Decision, credit, decision_of
from tirjudge.types import Mode, Rollout, StopReason
from tirjudge_training.items import TrainingItem

FLOOR = 0.1
"""What a right verdict earns of 1 when its form or its programs are not as they should be."""

Rollouts = Mapping[tuple[int, ...], Sequence[Rollout]]
"""What was shown -> its group of rollouts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutReward:
    """What one rollout earned, and for what."""

    total: float
    """R, what the trainer maximises."""
    correct: float
    """Rc, 0 to 1; only pointwise rollouts with cross credit get what lies between."""
    format: bool
    """Rf."""
    tool: bool
    """Rt."""


class RewardRule(BaseModel):
    """Which reward; the defaults are TIR-Judge's, and each switch is one of its ablations."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["tir", "artist"] = "tir"
    """`tir`: R = Rc (0.1 + 0.9 1[Rt and Rf]). `artist`: R = Rc + 1[Rf] + share of programs that ended well."""
    pair_credit: Literal["index", "cross"] = "index"
    """Pointwise: `index` sets rollout k of one response against rollout k of the other; `cross` against all of them."""
    format: bool = True
    """Whether Rf counts in `tir`."""
    tool: bool = True
    """Whether Rt counts in `tir`."""
    no_tool_rule: bool = True
    """Whether Rf of an item that no program can settle wants that none is called."""
    max_calls: int = Field(default=3, ge=0)
    """Most programs that Rt allows."""


def rewards_of(
    item: TrainingItem, rollouts: Rollouts, *, rule: RewardRule
) -> dict[tuple[int, ...], list[RolloutReward]]:
    """The rewards of all groups of one item, in the order of their rollouts.

    Raises:
        ValueError: the right response is not known, a group is missing, or (pointwise) groups differ in size.
    """
    correct = correctness(item, rollouts, pair_credit=rule.pair_credit)
    return {
        shown: [
            _reward(item, rollout, correct=right, rule=rule)
            for rollout, right in zip(group, correct[shown], strict=True)
        ]
        for shown, group in rollouts.items()
    }


def _reward(item: TrainingItem, rollout: Rollout, *, correct: float, rule: RewardRule) -> RolloutReward:
    well_formed = format_ok(item, rollout, no_tool_rule=rule.no_tool_rule)
    tools_ok = tool_ok(rollout, max_calls=rule.max_calls)
    if rule.kind == "artist":
        total = artist_total(correct=correct, format=well_formed, success_share=success_share(rollout))
    else:
        total = tir_total(correct=correct, format=well_formed or not rule.format, tool=tools_ok or not rule.tool)
    return RolloutReward(total=total, correct=correct, format=well_formed, tool=tools_ok)


# The parts --------------------------------------------------------------------------------------------------------------


def tir_total(*, correct: float, format: bool, tool: bool) -> float:
    """R = Rc (0.1 + 0.9 1[Rt = 1 and Rf = 1]) (TIR-Judge, Eq. 4). A conjunct that is switched off is given as True."""
    return correct if format and tool else correct * FLOOR


def artist_total(*, correct: float, format: bool, success_share: float) -> float:
    """R = R_answer + R_format + R_tool (ARTIST, 3.3), each 0 to 1; R_tool is the share of calls that succeeded.

    It is additive: good form and a program that runs are worth something without a right verdict.
    """
    return correct + float(format) + success_share


def format_ok(item: TrainingItem, rollout: Rollout, *, no_tool_rule: bool = True) -> bool:
    """Rf: the model closed a well-formed verdict of its own; where no program can settle the item, and called none."""
    own = rollout.stop_reason is StopReason.VERDICT and rollout.label is not None and not rollout.forced
    return own and (item.verifiable or not no_tool_rule or rollout.num_calls == 0)


def tool_ok(rollout: Rollout, *, max_calls: int = 3) -> bool:
    """Rt: at most `max_calls` programs were asked for, and each ended well; so it holds for a rollout without any."""
    asked_too_often = rollout.stop_reason is StopReason.TOOL_BUDGET or rollout.num_calls > max_calls
    return not asked_too_often and rollout.num_failed_calls == 0


def success_share(rollout: Rollout) -> float:
    """R_tool = successful calls / calls, 0 where there is no call; a call beyond the budget counts as one that failed."""
    num_calls = rollout.num_calls + (rollout.stop_reason is StopReason.TOOL_BUDGET)
    return (rollout.num_calls - rollout.num_failed_calls) / num_calls if num_calls else 0.0


def correctness(
    item: TrainingItem, rollouts: Rollouts, *, pair_credit: Literal["index", "cross"] = "index"
) -> dict[tuple[int, ...], list[float]]:
    """Rc of each rollout.

    Pairwise, listwise: 1[the named response is the right one]. Pointwise: 1[s_pos > s_neg] (TIR-Judge, 4.1), for both
    rollouts of a pair; with cross credit the mean of it over all rollouts of the other response.

    Raises:
        ValueError: the right response is not known, a group is missing, or (pointwise) groups differ in size.
    """
    if item.best is None:
        raise ValueError(f'item "{item.id}": best is null, so nothing can be called right; it takes pseudo-labels')
    if set(rollouts) != set(item.shown()):
        raise ValueError(f'item "{item.id}": groups of {list(rollouts)} given, it is shown as {list(item.shown())}')
    if item.mode is Mode.POINTWISE:
        right, wrong = (item.best,), (1 - item.best,)
        table = _wins(rollouts[right], rollouts[wrong], positive=item.best)
        if pair_credit == "index":
            if len(rollouts[right]) != len(rollouts[wrong]):
                raise ValueError(f'item "{item.id}": its two groups have to be of one size to be paired by index')
            paired = [table[k][k] for k in range(len(table))]
            return {right: paired, wrong: list(paired)}
        return {right: [fmean(row) for row in table], wrong: [fmean(column) for column in zip(*table, strict=True)]}
    return {
        shown: [_credit([_decision(r, shown=shown, mode=item.mode)], shown, best=item.best, mode=item.mode) for r in group]
        for shown, group in rollouts.items()
    }  # fmt: skip


def _wins(positives: Sequence[Rollout], negatives: Sequence[Rollout], *, positive: int) -> list[list[float]]:
    """[positives][negatives]: 1 where the one's score is strictly above the other's."""
    above = [_decision(rollout, shown=(positive,), mode=Mode.POINTWISE) for rollout in positives]
    below = [_decision(rollout, shown=(1 - positive,), mode=Mode.POINTWISE) for rollout in negatives]
    return [[_credit([a, b], (0, 1), best=positive, mode=Mode.POINTWISE) for b in below] for a in above]


def _decision(rollout: Rollout, *, shown: tuple[int, ...], mode: Mode) -> Decision:
    return decision_of(rollout, shown=shown, mode=mode, labels=labels(mode, len(shown)))


def _credit(decisions: Sequence[Decision], responses: Sequence[int], *, best: int, mode: Mode) -> float:
    counted = credit(decisions, responses, right=frozenset({best}), mode=mode, counting=STRICT)
    assert counted is not None  # all that is compared was judged
    return counted[1]


# Without labels (T3RL) --------------------------------------------------------------------------------------------------

T3RL_RULE = RewardRule(format=False, tool=False)
"""r_i = 1[a_i = y~]: no part for form or programs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PseudoLabel:
    """What a group of rollouts says is right."""

    label: int | None
    """y~, an index into the responses; None: no rollout gave an answer."""
    verified_mass: float
    """Share of the votes' weight that verified answers hold, 0 to 1."""
    tied: bool
    """Whether another answer got as much weight; `label` is then the lowest index."""
    num_answers: int
    num_verified: int

    def is_trusted(self, *, min_verified_mass: float) -> bool:
        """Whether it may stand for a label: decided, and with enough behind it that was executed."""
        return self.label is not None and not self.tied and self.verified_mass >= min_verified_mass


def verified_vote(answers: Sequence[int | None], verified: Sequence[bool], *, weight: float) -> PseudoLabel:
    """y~ = argmax_y sum_i (w if v_i else 1) 1[a_i = y] (T3RL). `weight` 1 is the plain majority.

    Args:
        answers: index of the response that each rollout chose; None: it chose none, and has no vote.
        verified: whether executed evidence agrees with it.
        weight: w, of a verified answer.

    Raises:
        ValueError: `weight` is not above 0, or the two lists differ in length.
    """
    if weight <= 0:
        raise ValueError(f"weight: {weight} given, it is above 0; 1 is the plain majority")
    votes = [(answer, v) for answer, v in zip(answers, verified, strict=True) if answer is not None]
    if not votes:
        return PseudoLabel(label=None, verified_mass=0.0, tied=False, num_answers=0, num_verified=0)
    mass: dict[int, float] = {}
    for answer, is_verified in votes:
        mass[answer] = mass.get(answer, 0.0) + (weight if is_verified else 1.0)
    top = sorted(answer for answer, value in mass.items() if value == max(mass.values()))
    num_verified = sum(is_verified for _, is_verified in votes)
    return PseudoLabel(
        label=top[0],
        verified_mass=num_verified * weight / sum(mass.values()),
        tied=len(top) > 1,
        num_answers=len(votes),
        num_verified=num_verified,
    )


def pseudo_rewards(
    item: TrainingItem, rollouts: Rollouts, *, vote: PseudoLabel, rule: RewardRule = T3RL_RULE
) -> dict[tuple[int, ...], list[RolloutReward]]:
    """r_i = 1[a_i = y~] (T3RL): the rewards if the voted label were right; what the item says is not looked at.

    Raises:
        ValueError: there is no voted label.
    """
    if vote.label is None:
        raise ValueError(f'item "{item.id}": no rollout gave an answer, so there is no pseudo-label')
    return rewards_of(replace(item, best=vote.label), rollouts, rule=rule)


def answers_of(item: TrainingItem, rollouts: Rollouts) -> list[int | None]:
    """a_i: the response that each rollout chose. Pointwise: the one that pair i of rollouts scored higher."""
    if item.mode is Mode.POINTWISE:
        pairs = zip(*(rollouts[shown] for shown in item.shown()), strict=True)
        return [_higher([_decision(r, shown=(i,), mode=item.mode).score for i, r in enumerate(pair)]) for pair in pairs]
    (shown,) = rollouts
    return [_decision(rollout, shown=shown, mode=item.mode).best for rollout in rollouts[shown]]


def _higher(scores: Sequence[float | None]) -> int | None:
    first, second = scores
    if first is None or second is None or first == second:
        return None
    return 0 if first > second else 1


def verified_of(item: TrainingItem, rollouts: Rollouts) -> list[bool]:
    """v_i: whether what was executed agrees with each answer. Pointwise: with both scores of pair i."""
    each = [[evidence_agrees(r, mode=item.mode, num_shown=len(shown)) for r in rollouts[shown]] for shown in rollouts]
    return [all(parts) for parts in zip(*each, strict=True)]


def consistent_with(answers: Sequence[int | None], swapped: Sequence[int | None]) -> list[bool]:
    """A second verifier: whether each answer is also the majority's when the responses are shown in the opposite order."""
    other = verified_vote(swapped, [False] * len(swapped), weight=1.0)
    return [answer is not None and not other.tied and answer == other.label for answer in answers]


def evidence_agrees(rollout: Rollout, *, mode: Mode, num_shown: int) -> bool:
    """Whether the output of the last program that ended well says what the verdict says.

    Output that ranks is held against the verdict: lines `best LABEL ...`; or `LABEL x/y`, `LABEL x ...` (a share, or
    the sum of the numbers), of which the highest are meant; `score N` for one response. Naming all labels agrees with
    nothing. Where the output ranks nothing it is enough that a program ran.
    """
    outputs = [turn.result.stdout for turn in rollout.turns if turn.result is not None and turn.result.outcome.is_ok]
    if not outputs or rollout.label is None or rollout.forced:
        return False
    if mode is Mode.POINTWISE:
        said = _SCORE_LINE.findall(outputs[-1])
        return not said or float(said[-1]) == float(rollout.label)
    offered = labels(mode, num_shown)
    named = ranked_highest(outputs[-1], offered=offered)
    return named is None or (rollout.label in named and len(named) < len(offered))


_SCORE_LINE = re.compile(r"^\s*score\s*[:=]?\s*(\d+(?:\.\d+)?)\s*$", re.MULTILINE | re.IGNORECASE)
_BEST_LINE = re.compile(r"^\s*best\s*[:=]?((?:\s+[A-Z]+)+)\s*$", re.MULTILINE)
_NUMBER = r"-?\d+(?:\.\d+)?"
_LABEL_LINE = re.compile(
    rf"^\s*([A-Z]+)\s*[:=]?\s+({_NUMBER}(?:/{_NUMBER})?(?:\s+{_NUMBER}(?:/{_NUMBER})?)*)\s*$", re.MULTILINE
)


def ranked_highest(output: str, *, offered: Sequence[str]) -> frozenset[str] | None:
    """The labels that some output puts first; None if it ranks nothing."""
    named = _BEST_LINE.findall(output)
    if named and (found := frozenset(named[-1].split()) & frozenset(offered)):
        return found
    values = {label: _value(numbers) for label, numbers in _LABEL_LINE.findall(output) if label in offered}
    if len(values) < 2:
        return None
    return frozenset(label for label, value in values.items() if value == max(values.values()))


def _value(numbers: str) -> float:
    """Of `1/2` the share, of `1 0 1` the sum."""
    total = 0.0
    for number in numbers.split():
        part, _, whole = number.partition("/")
        total += float(part) / (float(whole or 1) or 1.0)
    return total
