"""Rewards of TIR-Judge, ARTIST and T3RL, as pure functions of rollouts.

Rc (correctness), Rf (format) and Rt (tool use) are defined in sections 4.1 and 4.2 of TIR-Judge. Correctness has the
same definition as in benchmarks (`tirjudge.right.credit`), with strict counting: a tie and a missing verdict get 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from tirjudge.formats.blocks import labels
from tirjudge.right import STRICT, Decision, credit, decision_of
from tirjudge.types import Mode, Rollout, StopReason
from tirjudge_training.items import TrainingItem

FLOOR = 0.1
"""Reward of a correct verdict whose format or tool use is wrong."""

Rollouts = Mapping[tuple[int, ...], Sequence[Rollout]]
"""Indices of the responses in the order shown -> group of rollouts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutReward:
    """The reward of one rollout, and its parts."""

    total: float
    """R, the total reward, which the trainer maximizes."""
    correct: float
    """Rc, correctness, 0 to 1. Values between 0 and 1 occur only for pointwise rollouts with cross credit."""
    format: bool
    """Rf, whether the format is correct."""
    tool: bool
    """Rt, whether tool use is correct."""


class RewardRule(BaseModel):
    """The reward rule. The defaults are TIR-Judge's. Each switch is one of its ablations."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["tir", "artist"] = "tir"
    """`tir`: R = Rc (0.1 + 0.9 1[Rt and Rf]). `artist`: R = Rc + 1[Rf] + share of successful programs."""
    pair_credit: Literal["index", "cross"] = "index"
    """Only for pointwise items. `index`: compare rollout k of one response with rollout k of the other response. `cross`:
    compare each rollout of one response with all rollouts of the other response."""
    format: bool = True
    """Whether Rf counts in `tir`."""
    tool: bool = True
    """Whether Rt counts in `tir`."""
    no_tool_rule: bool = True
    """Whether Rf requires that no program is called, for items that are not verifiable."""
    max_calls: int = Field(default=3, ge=0)
    """Maximum number of programs that Rt allows."""


def rewards_of(
    item: TrainingItem, rollouts: Rollouts, *, rule: RewardRule
) -> dict[tuple[int, ...], list[RolloutReward]]:
    """Return the rewards of all groups of one item. The rewards of a group are in the order of its rollouts.

    Raises:
        ValueError: the item has no label, a group is missing, or (pointwise) the groups differ in size.
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
    """R = Rc (0.1 + 0.9 1[Rt = 1 and Rf = 1]) (TIR-Judge, Eq. 4). Pass True for a part that is switched off."""
    return correct if format and tool else correct * FLOOR


def artist_total(*, correct: float, format: bool, success_share: float) -> float:
    """R = R_answer + R_format + R_tool (ARTIST, 3.3), each 0 to 1; R_tool is the share of successful calls.

    The sum is additive: a correct format and successful programs are rewarded even if the verdict is wrong.
    """
    return correct + float(format) + success_share


def format_ok(item: TrainingItem, rollout: Rollout, *, no_tool_rule: bool = True) -> bool:
    """Rf: whether the model gave a well-formed verdict that was not forced.

    If the item is not verifiable and `no_tool_rule` holds, Rf also requires that the model called no program.
    """
    own = rollout.stop_reason is StopReason.VERDICT and rollout.label is not None and not rollout.forced
    return own and (item.verifiable or not no_tool_rule or rollout.num_calls == 0)


def tool_ok(rollout: Rollout, *, max_calls: int = 3) -> bool:
    """Rt: whether the model requested at most `max_calls` programs, and all succeeded. True without programs."""
    over_budget = rollout.stop_reason is StopReason.TOOL_BUDGET or rollout.num_calls > max_calls
    return not over_budget and rollout.num_failed_calls == 0


def success_share(rollout: Rollout) -> float:
    """R_tool = successful calls / calls, or 0 without calls. A call beyond the budget counts as failed."""
    num_calls = rollout.num_calls + (rollout.stop_reason is StopReason.TOOL_BUDGET)
    return (rollout.num_calls - rollout.num_failed_calls) / num_calls if num_calls else 0.0


def correctness(
    item: TrainingItem, rollouts: Rollouts, *, pair_credit: Literal["index", "cross"] = "index"
) -> dict[tuple[int, ...], list[float]]:
    """Return Rc of each rollout.

    Pairwise and listwise: 1[the named response is the label]. Pointwise: 1[s_pos > s_neg] (TIR-Judge, 4.1) for both
    rollouts of a pair; with cross credit, the mean over all rollouts of the other response.

    Raises:
        ValueError: the item has no label, a group is missing, or (pointwise) the groups differ in size.
    """
    if item.best is None:
        raise ValueError(f'item "{item.id}": has no label (best is null); use pseudo-labels')
    if set(rollouts) != set(item.shown()):
        raise ValueError(
            f'item "{item.id}": groups for prompts {list(rollouts)} given, its prompts are {list(item.shown())}'
        )
    if item.mode is Mode.POINTWISE:
        right, wrong = (item.best,), (1 - item.best,)
        table = _wins(rollouts[right], rollouts[wrong], positive=item.best)
        if pair_credit == "index":
            if len(rollouts[right]) != len(rollouts[wrong]):
                raise ValueError(f'item "{item.id}": its two groups must have the same size for pair_credit index')
            paired = [table[k][k] for k in range(len(table))]
            return {right: paired, wrong: list(paired)}
        return {right: [fmean(row) for row in table], wrong: [fmean(column) for column in zip(*table, strict=True)]}
    return {
        shown: [_credit([_decision(r, shown=shown, mode=item.mode)], shown, best=item.best, mode=item.mode) for r in group]
        for shown, group in rollouts.items()
    }  # fmt: skip


def _wins(positives: Sequence[Rollout], negatives: Sequence[Rollout], *, positive: int) -> list[list[float]]:
    """Return a table [positives][negatives]: 1 if the positive rollout has a strictly higher score, otherwise 0."""
    above = [_decision(rollout, shown=(positive,), mode=Mode.POINTWISE) for rollout in positives]
    below = [_decision(rollout, shown=(1 - positive,), mode=Mode.POINTWISE) for rollout in negatives]
    return [[_credit([a, b], (0, 1), best=positive, mode=Mode.POINTWISE) for b in below] for a in above]


def _decision(rollout: Rollout, *, shown: tuple[int, ...], mode: Mode) -> Decision:
    return decision_of(rollout, shown=shown, mode=mode, labels=labels(mode, len(shown)))


def _credit(decisions: Sequence[Decision], responses: Sequence[int], *, best: int, mode: Mode) -> float:
    counted = credit(decisions, responses, right=frozenset({best}), mode=mode, counting=STRICT)
    assert counted is not None  # the decisions cover all compared responses
    return counted[1]


# Without labels (T3RL) --------------------------------------------------------------------------------------------------

T3RL_RULE = RewardRule(format=False, tool=False)
"""r_i = 1[a_i = y~]: format and tool use do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PseudoLabel:
    """The label that a group of rollouts voted for."""

    label: int | None
    """y~, index of a response. None: no rollout gave an answer."""
    verified_mass: float
    """Share of the total vote weight from verified answers, 0 to 1."""
    tied: bool
    """Whether another answer has the same weight. `label` is then the lowest index."""
    num_answers: int
    """Number of rollouts with an answer."""
    num_verified: int
    """Number of verified answers."""

    def is_trusted(self, *, min_verified_mass: float) -> bool:
        """Whether to use the vote as a label: it has an answer, no tie, and enough verified weight."""
        return self.label is not None and not self.tied and self.verified_mass >= min_verified_mass


def verified_vote(answers: Sequence[int | None], verified: Sequence[bool], *, weight: float) -> PseudoLabel:
    """y~ = argmax_y sum_i (w if v_i else 1) 1[a_i = y] (T3RL). With `weight` 1, a plain majority vote.

    Args:
        answers: Index of the response that each rollout chose. None: no choice, and no vote.
        verified: Whether executed evidence supports the answer.
        weight: w, weight of a verified answer.

    Raises:
        ValueError: `weight` is not positive, or the two lists differ in length.
    """
    if weight <= 0:
        raise ValueError(f"weight: {weight} given, must be positive; 1 gives a plain majority vote")
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
    """r_i = 1[a_i = y~] (T3RL): the rewards with the voted label. The label of the item is ignored.

    Raises:
        ValueError: the vote has no label.
    """
    if vote.label is None:
        raise ValueError(f'item "{item.id}": no rollout gave an answer, so the vote has no label')
    return rewards_of(replace(item, best=vote.label), rollouts, rule=rule)


def answers_of(item: TrainingItem, rollouts: Rollouts) -> list[int | None]:
    """Return a_i: the response that each rollout chose. Pointwise: the response with the higher score in pair i."""
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
    """Return v_i: whether executed evidence supports each answer. Pointwise: both scores of pair i."""
    each = [[evidence_agrees(r, mode=item.mode, num_shown=len(shown)) for r in rollouts[shown]] for shown in rollouts]
    return [all(parts) for parts in zip(*each, strict=True)]


def consistent_with(answers: Sequence[int | None], swapped: Sequence[int | None]) -> list[bool]:
    """Return whether each answer is also the majority answer with the responses in the opposite order."""
    other = verified_vote(swapped, [False] * len(swapped), weight=1.0)
    return [answer is not None and not other.tied and answer == other.label for answer in answers]


def evidence_agrees(rollout: Rollout, *, mode: Mode, num_shown: int) -> bool:
    """Whether the output of the last successful program supports the verdict.

    The output is compared with the verdict if it ranks responses. These lines count as rankings: `best LABEL ...`;
    `LABEL x/y` and `LABEL x ...` (a share, or a sum of numbers; the highest labels win); `score N` for a single
    response. An output that names all labels as best supports no verdict. If the output has no ranking, a successful
    program is enough.
    """
    outputs = [turn.result.stdout for turn in rollout.turns if turn.result is not None and turn.result.outcome.is_ok]
    if not outputs or rollout.label is None or rollout.forced:
        return False
    if mode is Mode.POINTWISE:
        scores = _SCORE_LINE.findall(outputs[-1])
        return not scores or float(scores[-1]) == float(rollout.label)
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
    """Return the labels that the output of a program ranks first; None if it has no ranking."""
    named = _BEST_LINE.findall(output)
    if named and (found := frozenset(named[-1].split()) & frozenset(offered)):
        return found
    values = {label: _value(numbers) for label, numbers in _LABEL_LINE.findall(output) if label in offered}
    if len(values) < 2:
        return None
    return frozenset(label for label, value in values.items() if value == max(values.values()))


def _value(numbers: str) -> float:
    """Return the value of a line of numbers: the share for `1/2`, the sum for `1 0 1`."""
    total = 0.0
    for number in numbers.split():
        part, _, whole = number.partition("/")
        total += float(part) / (float(whole or 1) or 1.0)
    return total
