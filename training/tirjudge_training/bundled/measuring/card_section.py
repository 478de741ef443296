"""The section of the model card on real rows, made of the figures that `tirjudge train measure` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from tirjudge_training.bundled.markdown import percent, table_row
from tirjudge_training.bundled.measuring.items import FULL_SCORE

KINDS_OF = "ifeval-edits"
"""Set whose kinds of instruction have a table of their own."""

MAX_WORST_SHOWN = 5
"""Number of worst rows that the card names for each set."""

_SETS = (
    "set", "items", "accuracy", "95 % interval", "checked", "accuracy if checked", "ECE", "sure", "chance", "patterns",
    "asked checks",
)  # fmt: skip
"""Heads of the first table. Those of other checkpoints follow."""

_SILENCE = """\
Nothing can be checked on the following sets, so the judge should not be sure.

| set | items | checked | sure | accuracy |
|---|---|---|---|---|
"""
_CHECKS = """
How often the checks of the program are exactly those that the prompt asks for, and how often a check of the right form
has the number or text of the prompt:

| set | all checks | numbers | numbers in words | texts |
|---|---|---|---|---|
"""
_KINDS = """
Kinds of instruction, on the responses of IFEval beside edits:

| kind | items | checked | accuracy if checked |
|---|---|---|---|
"""
_WORST = """
Wrong verdicts, checked ones first, then by confidence:

"""


def measured_section(figures: Mapping[str, Any]) -> str:
    """Return the section."""
    template = resources.files("tirjudge_training.bundled.measuring").joinpath("card_section.md")
    sets: Sequence[Mapping[str, Any]] = figures["sets"]
    silent = [one for one in sets if one["kind"] == "silence"]
    beside: Sequence[Mapping[str, Any]] = figures.get("beside", ())
    return template.read_text(encoding="utf-8").format(
        full_score=FULL_SCORE,
        limit="" if figures["limit"] is None else f", at most {figures['limit']} items per set",
        sets=_sets([one for one in sets if one["kind"] != "silence"], beside),
        beside="".join(map(_beside, beside)),
        silence=_SILENCE + "".join(map(_silent_row, silent)) if silent else "",
        checks=_table(_CHECKS, [_checks_row(one) for one in sets if "checks" in one and one["kind"] == "best"]),
        kinds=_table(_KINDS, [_kind_row(kind) for one in sets if one["name"] == KINDS_OF for kind in one["groups"]]),
        sameness="".join(map(_exact_calls, sets)) + "".join(map(_same, sets)),
        worst=_table(_WORST, [_worst(one) for one in sets if one["worst"] and one["kind"] != "silence"]),
        contamination=_contamination(figures.get("contamination")),
    )


def _table(head: str, rows: Sequence[str]) -> str:
    return head + "".join(rows) if rows else ""


def _sets(sets: Sequence[Mapping[str, Any]], beside: Sequence[Mapping[str, Any]]) -> str:
    heads = [*_SETS, *(other["name"] for other in beside)]
    rule = "|" + "---|" * len(heads) + "\n"
    return table_row(*heads) + rule + "".join(_set_row(one, beside) for one in sets)


def _beside(other: Mapping[str, Any]) -> str:
    items = "all items" if other["limit"] is None else f"at most {other['limit']} items per set"
    return f'\n"{other["name"].capitalize()}" is the accuracy of another checkpoint, on {items}.'


def _set_row(one: Mapping[str, Any], beside: Sequence[Mapping[str, Any]]) -> str:
    low, high = one["interval"]
    baselines = one["baselines"]
    return table_row(
        one["title"],
        str(one["num_items"]),
        percent(one["accuracy"]),
        f"{percent(low)} to {percent(high)}",
        percent(one["share_checked"]),
        percent(one["accuracy_checked"]),
        "-" if one["ece"] is None else f"{one['ece']:.3f}",
        percent(one["share_sure"]),
        percent(baselines.get("chance", baselines.get("always_yes"))),
        percent(baselines["patterns"]),
        percent(baselines.get("asked_checks")),
        *(percent(other["accuracies"].get(one["name"])) for other in beside),
    )


def _silent_row(one: Mapping[str, Any]) -> str:
    return table_row(
        one["title"],
        str(one["num_items"]),
        percent(one["share_checked"]),
        percent(one["share_sure"]),
        percent(one["accuracy"]),
    )


def _checks_row(one: Mapping[str, Any]) -> str:
    found = one["checks"]
    values = [found["values"][kind]["right"] for kind in ("number", "number word", "text")]
    return table_row(one["title"], percent(found["exact"]), *map(percent, values))


def _kind_row(group: Mapping[str, Any]) -> str:
    return table_row(
        f"`{group['name']}`",
        str(group["num_items"]),
        percent(group["share_checked"]),
        percent(group["accuracy_checked"]),
    )


def _exact_calls(one: Mapping[str, Any]) -> str:
    if "exact_calls" not in one:
        return ""
    found = one["exact_calls"]
    return (
        f"\nThe check is exactly the one that the prompt asks for in {percent(found['right'])} of {found['num']} items"
        f" ({one['title']}).\n"
    )


def _same(one: Mapping[str, Any]) -> str:
    if "sameness" not in one:
        return ""
    found = one["sameness"]
    return (
        f"\nThe checks are the same in both orders and beside each response alone for {percent(found['same'])} of"
        f" {found['num_items']} pairs ({one['title']}).\n"
    )


def _worst(one: Mapping[str, Any]) -> str:
    rows = [f"`{row['id']}` ({row['group']}, {row['basis']})" for row in one["worst"][:MAX_WORST_SHOWN]]
    return f"- {one['title']}: {', '.join(rows)}\n"


def _contamination(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    num_prompts, num_texts = sum(found["benchmarks"].values()), sum(found["texts"].values())
    return (
        f"\nOf {num_texts:,} training texts, {sum(found['eight_words'].values())} share eight words in a row with one of"
        f" {num_prompts:,} prompts of {len(found['benchmarks'])} benchmarks, and {sum(found['equal_clauses'].values())}"
        f" shorter ones equal a clause of one, numbers and quotations aside.\n"
    )
