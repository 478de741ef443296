"""Figures of a judged set. Shares and accuracies are from 0 to 1; None: nothing to measure."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from tirjudge.calibration import Confidence, calibration_of
from tirjudge.selective import GradedItem, selective_accuracy
from tirjudge.statistics import ratio, wilson_interval
from tirjudge_training.bundled.measuring.baselines import asked_credit, pattern_credit
from tirjudge_training.bundled.measuring.check_lists import compared
from tirjudge_training.bundled.measuring.items import MeasuredSet
from tirjudge_training.bundled.measuring.judging import MeasuredJudgment, ShownChecks

SURE = 0.6
"""Confidence from which a verdict counts as sure."""

MAX_WORST = 20
"""Maximum number of worst rows."""

Figures = dict[str, Any]


def figures_of(measured_set: MeasuredSet, judged: Sequence[MeasuredJudgment], *, elapsed_s: float) -> Figures:
    """Return all figures of one set.

    Args:
        measured_set: the set.
        judged: its judged items, at least one.
        elapsed_s: duration of all judgments, in seconds.
    """
    figures = _accuracies(judged) | {
        "judgments_per_s": round(len(judged) / elapsed_s, 3),
        "programs_failed": ratio(sum(one.num_failed_calls for one in judged), of=sum(one.num_calls for one in judged)),
    }
    found: Figures = {
        "name": measured_set.name,
        "title": measured_set.title,
        "kind": measured_set.kind,
        **figures,
        "targets": {
            name: {"target": target, "reached": _reaches(name, figures[name], target)}
            for name, target in measured_set.targets.items()
        },
        "groups": _groups(judged),
        "worst": _worst(judged),
    }
    if measured_set.kind != "silence":
        found["baselines"] = _baselines(measured_set, judged)
    if any(one.item.asked is not None for one in judged):
        found["checks"] = check_figures(judged)
    asked = [(one, ast.unparse(ast.parse(one.item.asked_call))) for one in judged if one.item.asked_call is not None]
    calls = [one.written == (call,) for one, call in asked]
    if calls:
        found["exact_calls"] = {"num": len(calls), "right": ratio(sum(calls), of=len(calls))}
    return found


def _accuracies(judged: Sequence[MeasuredJudgment]) -> Figures:
    graded = [GradedItem(credit=one.credit, has_verdict=one.basis is not None, basis=one.basis) for one in judged]
    selective = selective_accuracy(graded)
    checked = selective.by_basis["checked"]
    credit, num = sum(one.credit for one in judged), len(judged)
    others = [one for one in judged if not one.is_checked]
    choices = [
        Confidence(value=one.choice_probability, is_right=one.credit == 1)
        for one in judged
        if one.choice_probability is not None
    ]
    sure = [one for one in others if one.confidence is not None and one.confidence >= SURE]
    return {
        "num_items": num,
        "accuracy": credit / num,
        "interval": list(wilson_interval(credit, num_trials=num)),
        "expected_accuracy": fmean(one.expected_credit for one in judged),
        "coverage": selective.coverage,
        "share_checked": checked.share,
        "accuracy_checked": checked.accuracy,
        "interval_checked": checked.interval,
        "by_basis": {name: group.as_json() for name, group in selective.by_basis.items()},
        "ece": calibration_of(choices).expected_error,
        "share_sure": ratio(len(sure), of=len(others)),
        "share_unsure": ratio(len(others) - len(sure), of=len(others)),
    }


def _reaches(name: str, value: float | None, target: float) -> bool | None:
    """Whether a figure reaches its target. The share of checked verdicts is to be high on most sets, and low where nothing
    can be checked."""
    if value is None:
        return None
    is_limit = name == "share_checked" and target < 0.5
    return value <= target if is_limit else value >= target


def _groups(judged: Sequence[MeasuredJudgment]) -> list[Figures]:
    groups: dict[str, list[MeasuredJudgment]] = defaultdict(list)
    for one in judged:
        groups[one.item.group].append(one)
    names = ("num_items", "accuracy", "share_checked", "accuracy_checked", "share_sure")
    return [
        {"name": name} | {key: value for key, value in _accuracies(groups[name]).items() if key in names}
        for name in sorted(groups)
    ]


def _worst(judged: Sequence[MeasuredJudgment]) -> list[Figures]:
    """Return the wrong verdicts, checked ones first, the most confident first."""
    wrong = [one for one in judged if one.credit < 0.5 and one.basis is not None]
    wrong.sort(key=lambda one: (not one.is_checked, -(one.confidence or 0.0), one.item.id))
    return [
        {"id": one.item.id, "group": one.item.group, "basis": one.basis, "confidence": one.confidence}
        for one in wrong[:MAX_WORST]
    ]


def _baselines(measured_set: MeasuredSet, judged: Sequence[MeasuredJudgment]) -> Figures:
    items = [one.item for one in judged]
    baselines: Figures = {"patterns": fmean(map(pattern_credit, items))}
    asked = [credit for item in items if (credit := asked_credit(item)) is not None]
    if asked:
        baselines["asked_checks"] = fmean(asked)
    if measured_set.kind == "follows":
        return {"always_yes": fmean(bool(item.right) for item in items)} | baselines
    return {"chance": fmean(len(item.right) / len(item.responses) for item in items)} | baselines


# Checks -------------------------------------------------------------------------------------------------------------------


def check_figures(judged: Sequence[MeasuredJudgment]) -> Figures:
    """Return how often the checks of programs are those that the prompts ask for, and how often their values are."""
    known = [one for one in judged if one.item.asked is not None]
    lists = [compared(one.item.asked or (), one.written or (), prompt=one.item.prompt) for one in known]
    copied: Mapping[str, list[bool]] = {kind: [] for kind in ("number", "number word", "text", "implied")}
    for one in lists:
        for value in one.copied:
            copied[value.kind].append(value.is_right)
    missing = Counter(_function(text) for one in lists for text in one.missing)
    spurious = Counter(_function(text) for one in lists for text in one.spurious)
    return {
        "exact": ratio(sum(one.is_exact for one in lists), of=len(lists)),
        "with_missing": ratio(sum(bool(one.missing) for one in lists), of=len(lists)),
        "with_spurious": ratio(sum(bool(one.spurious) for one in lists), of=len(lists)),
        "with_wrong_form": ratio(sum(bool(one.wrong_form) for one in lists), of=len(lists)),
        "with_wrong_values": ratio(sum(bool(one.wrong_values) for one in lists), of=len(lists)),
        "values": {
            kind: {"num": len(found), "right": ratio(sum(found), of=len(found))} for kind, found in copied.items()
        },
        "missing": dict(missing.most_common()),
        "spurious": dict(spurious.most_common()),
    }


def _function(expression: str) -> str:
    return expression.partition("(")[0].rpartition(" ")[2] if not expression.startswith("all(") else expression


def sameness(shown: Sequence[ShownChecks]) -> Figures:
    """Return how often the checks are the same for all ways to show the responses."""
    same, orders = sum(one.are_equal for one in shown), sum(one.orders_are_equal for one in shown)
    return {
        "num_items": len(shown),
        "same": ratio(same, of=len(shown)),
        "interval": list(wilson_interval(same, num_trials=len(shown))) if shown else None,
        "same_in_both_orders": ratio(orders, of=len(shown)),
        "target": 0.98,
        "differing": [one.item.id for one in shown if not one.are_equal][:MAX_WORST],
    }
