"""What a model can be used for: a few explicit rules over the figures of the doctor.

A model is broken if its labels hold too little probability, if it writes too few verdicts, or if a stop string does not
work. Otherwise its accuracy decides, with 95 % intervals. A few items that show no accuracy above chance show nothing about a
model if it could be far above chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tirjudge_harness.doctor.facts import StopString
from tirjudge_harness.doctor.findings import ModelFinding
from tirjudge_harness.doctor.passes import PassName, SelfcheckPass, chance_of
from tirjudge_harness.statistics.paired import EVERYTHING, common_of, differences_of

MIN_LABEL_MASS = 0.9
"""Minimum mean label mass. Below it, the model is broken."""

MAX_FORMAT_ERRORS = 0.1
"""Maximum share of rollouts without a well-formed verdict. Above it, the model is broken."""

MIN_TOOL_RATE = 0.1
"""Minimum share of rollouts that run a program. Below it, the model does not use tools."""


NUM_ITEMS = 60
"""Number of items of `selfcheck`. A conclusion from fewer items says so."""

FAR_ABOVE = 0.15
"""Distance from chance of an accuracy that all items would show to be above chance."""


class ModelUse(StrEnum):
    """What a model can be used for."""

    TOOLS = "tools"
    """A tool-using judge: it beats chance, and it is worse without the outputs of its programs."""
    UNPROVEN_TOOLS = "unproven_tools"
    """A judge: it beats chance with tools, but the items do not show that it uses the outputs of its programs."""
    NO_TOOLS = "no_tools"
    """A judge without tools."""
    NONE = "none"
    """Not a judge."""
    UNKNOWN = "unknown"
    """The judged items are too few to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelMass:
    """Total probability of the offered labels at the verdict, over all verdicts with probabilities."""

    mean: float
    minimum: float
    verdicts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """What the doctor says about a model."""

    use: ModelUse
    sentence: str
    """One sentence: what the model can be used for, and why."""
    broken: list[str]
    """Each broken part of the model, as a phrase. Empty: nothing is broken."""


def label_mass_of(passes: Sequence[SelfcheckPass]) -> LabelMass | None:
    """Return the label mass over the verdicts of several passes; None if the engine returns no probabilities."""
    rollouts = [rollout for each in passes for rollout in each.rollouts]
    masses = [
        rollout.verdict.label_mass
        for rollout in rollouts
        if rollout.verdict is not None and rollout.verdict.label_mass is not None
    ]
    if not masses:
        return None
    return LabelMass(mean=sum(masses) / len(masses), minimum=min(masses), verdicts=len(masses))


def conclude(
    passes: dict[PassName, SelfcheckPass],
    *,
    mass: LabelMass | None,
    stops: Sequence[StopString],
    findings: Sequence[ModelFinding] = (),
) -> Conclusion:
    """Return what the model can be used for. The rules are documented in docs/doctor.md.

    Args:
        passes: all three passes; of a judge without tools, the pass without tools, or none if no item can be shown.
        mass: label mass of the verdicts with and without tools.
        stops: the stop strings of the format.
        findings: findings about the format of another judge, or about a scalar reward model.
    """
    everywhere = [f"{finding.name}: {finding.detail}" for finding in findings if finding.is_ok is False]
    everywhere += [
        f"{stop.text!r} never ended a turn, although it was written or due" for stop in stops if stop.is_broken
    ]
    if mass is not None and mass.mean < MIN_LABEL_MASS:
        everywhere.append(
            f"the labels hold {mass.mean:.0%} of the probability at the verdict, less than {MIN_LABEL_MASS:.0%}"
        )
    of_format = {
        name: f"{each.figures.format_errors.value:.0%} of the verdicts {name.shown} are malformed or missing"
        for name, each in passes.items()
        if name is not PassName.OUTPUTS_REMOVED and (each.figures.format_errors.value or 0.0) > MAX_FORMAT_ERRORS
    }
    broken = [*everywhere, *of_format.values()]
    if not passes and not broken:
        return _said(ModelUse.NONE, "Not examined: the format can show none of the items.", [])
    if PassName.WITH_TOOLS not in passes:
        return _without_tools(passes.get(PassName.WITHOUT_TOOLS), broken)
    with_tools, without = passes[PassName.WITH_TOOLS], passes[PassName.WITHOUT_TOOLS]
    if not with_tools.marks or not without.marks:
        return _said(ModelUse.NONE, "Not usable: no item could be judged.", broken or ["no item could be judged"])
    if everywhere or PassName.WITHOUT_TOOLS in of_format:
        return _said(ModelUse.NONE, f"Not usable: {'; '.join(broken)}.", broken)
    if of_format and _beats_chance(without):
        return _said(ModelUse.NO_TOOLS, f"Usable only without tools: {'; '.join(broken)}.", broken)
    if of_format:
        return _said(ModelUse.NONE, f"Not usable: {'; '.join(broken)}.", broken)
    use, sentence = _by_accuracy(passes)
    return _said(use, sentence + _num_judged(with_tools), broken)


def _without_tools(only: SelfcheckPass | None, broken: list[str]) -> Conclusion:
    """Return what a judge without tools can be used for. `only`: its pass; None: it was not made."""
    if only is not None and not only.marks:
        broken = broken or ["no item could be judged"]
    if broken or only is None:
        return _said(ModelUse.NONE, f"Not usable: {'; '.join(broken)}.", broken)
    accuracy, chance = _percent(only), f"{chance_of(only.marks):.0%}"
    if _is_open(only):
        sentence = f"Too few items to tell: {accuracy} right; {_open_between(chance)}."
        return _said(ModelUse.UNKNOWN, sentence + _num_judged(only), [])
    if not _beats_chance(only):
        sentence = f"Not usable for requests like these: {accuracy} right, which is not above chance ({chance})."
        return _said(ModelUse.NONE, sentence + _num_judged(only), [])
    sentence = f"Usable as a judge without tools: {accuracy} right, which is above chance ({chance})."
    return _said(ModelUse.NO_TOOLS, sentence + _num_judged(only), [])


def _num_judged(one: SelfcheckPass) -> str:
    num = one.num_items
    return f" Only {num} of {NUM_ITEMS} items were judged." if num < NUM_ITEMS else ""


def _by_accuracy(passes: dict[PassName, SelfcheckPass]) -> tuple[ModelUse, str]:
    """Return what a model without broken parts can be used for."""
    with_tools, without, removed = (passes[name] for name in PassName)
    accuracy, plain, blind = (_percent(each) for each in (with_tools, without, removed))
    if not _beats_chance(with_tools) and not _beats_chance(without):
        chance = f"{chance_of(with_tools.marks):.0%}"
        if _is_open(with_tools) or _is_open(without):
            return ModelUse.UNKNOWN, (
                f"Too few items to tell: {accuracy} right with tools and {plain} without; {_open_between(chance)}."
            )
        return ModelUse.NONE, (
            f"Not usable for requests like these: {accuracy} right with tools and {plain} without, "
            f"which is not above chance ({chance})."
        )
    rate = with_tools.figures.tool_rate.value or 0.0
    if rate < MIN_TOOL_RATE and _beats_chance(without):
        return ModelUse.NO_TOOLS, (
            f"Usable only without tools: it is {plain} right without them, and runs a program in {rate:.0%} of its "
            "judgments."
        )
    if not _beats_chance(with_tools) or _is_worse(with_tools, than=without):
        return ModelUse.NO_TOOLS, f"Usable only without tools: {plain} right without them, {accuracy} with them."
    if _is_worse(removed, than=with_tools):
        return ModelUse.TOOLS, (
            f"Usable as a tool-using judge: {accuracy} right with tools, {blind} if the outputs of its programs are "
            f"removed, {plain} without tools."
        )
    return ModelUse.UNPROVEN_TOOLS, (
        f"Usable as a judge: {accuracy} right with tools; these items do not show that it uses the outputs of its "
        f"programs ({blind} right if they are removed)."
    )


def _said(use: ModelUse, sentence: str, broken: list[str]) -> Conclusion:
    return Conclusion(use=use, sentence=sentence, broken=broken)


def _beats_chance(one: SelfcheckPass) -> bool:
    """Whether the 95 % interval of the accuracy is above chance."""
    interval, chance = one.figures.accuracy.interval, chance_of(one.marks)
    return interval is not None and chance is not None and interval[0] > chance


def _is_open(one: SelfcheckPass) -> bool:
    """Whether a pass over some of the items leaves open whether the accuracy is at chance or far above it."""
    interval, chance = one.figures.accuracy.interval, chance_of(one.marks)
    if one.num_items >= NUM_ITEMS or chance is None:
        return False
    return interval is None or interval[0] <= chance <= interval[1] - FAR_ABOVE


def _open_between(chance: str) -> str:
    return f"a 95 % interval includes chance ({chance}) and accuracies far above it"


def _is_worse(second: SelfcheckPass, *, than: SelfcheckPass) -> bool:
    """Whether the accuracy on the common items is lower: the 95 % interval of the difference is below 0."""
    if not {mark.outline.id for mark in than.marks} & {mark.outline.id for mark in second.marks}:
        return False
    (difference,) = differences_of([EVERYTHING], common_of(than.marks, second.marks))
    return difference.interval is not None and difference.interval[1] < 0


def _percent(one: SelfcheckPass) -> str:
    return "-" if one.figures.accuracy.value is None else f"{one.figures.accuracy.value:.0%}"
