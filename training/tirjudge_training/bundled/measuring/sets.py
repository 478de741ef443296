"""The measured sets, with their targets."""

from __future__ import annotations

from collections.abc import Sequence

from tirjudge_training.bundled.measuring.items import (
    MeasuredSet,
    absolute,
    best_of_four,
    composed,
    edited,
    labelled,
    latest_forms,
    newer_forms,
    same_style,
    section,
    source,
    subset,
    whole_prompts,
)
from tirjudge_training.bundled.measuring.tool_items import (
    answered_calculations,
    answered_forms,
    answered_regexes,
    benchmark_code,
    near_misses,
    worlds,
    written_code,
    written_lookups,
    written_regexes,
)

WRITTEN = {"accuracy": 0.88, "accuracy_checked": 0.96, "share_checked": 0.75}
"""Targets of the sets of held-out writers."""
SILENT = {"share_checked": 0.03, "share_unsure": 0.95}
SETS: tuple[MeasuredSet, ...] = (
    MeasuredSet(
        name="writer",
        title="held-out writer, composed prompts: pairs with one failed check",
        kind="best",
        targets=WRITTEN,
        draw=composed,
    ),
    MeasuredSet(
        name="writer-prompts",
        title="held-out writer, whole prompts: pairs with one failed check",
        kind="best",
        targets=WRITTEN,
        draw=whole_prompts,
    ),
    MeasuredSet(
        name="newer-forms",
        title="two more held-out writers, mostly newer checks: pairs with one failed check",
        kind="best",
        targets=WRITTEN,
        draw=newer_forms,
    ),
    MeasuredSet(
        name="latest-forms",
        title="a further held-out writer, the latest checks: pairs with one failed check",
        kind="best",
        targets=WRITTEN,
        draw=latest_forms,
    ),
    MeasuredSet(
        name="free-forms",
        title="two authors who did not know the checks: instructions of their own choice, with right and wrong answers",
        kind="best",
        targets=WRITTEN,
        draw=answered_forms,
    ),
    MeasuredSet(
        name="ifeval-edits",
        title="IFEval: a response of GPT-4 beside an edit that flips one instruction",
        kind="best",
        targets={"accuracy": 0.90, "accuracy_checked": 0.96, "share_checked": 0.80},
        draw=edited,
    ),
    MeasuredSet(
        name="ifeval",
        title="IFEval: does a response of GPT-4 follow all instructions?",
        kind="follows",
        targets={"accuracy": 0.85},
        draw=absolute,
    ),
    MeasuredSet(
        name="ifbench",
        title="IFBench (THU-KEG): pairs",
        kind="best",
        targets={"accuracy": 0.66, "accuracy_checked": 0.80},
        draw=labelled("ifbench", subset),
    ),
    MeasuredSet(
        name="gsm8k",
        title="GSM8K: best of four, some of them right",
        kind="best",
        targets={"accuracy_checked": 0.80},
        draw=best_of_four,
    ),
    MeasuredSet(
        name="code",
        title="HumanEval+, MBPP+, JudgeBench and RewardBench: a right and a wrong answer with Python code",
        kind="best",
        targets={"accuracy_checked": 0.9},
        draw=benchmark_code,
    ),
    MeasuredSet(
        name="writer-code",
        title="held-out writer, requests for code with examples: a right and a wrong answer",
        kind="best",
        targets=WRITTEN,
        draw=written_code,
    ),
    MeasuredSet(
        name="writer-lookups",
        title="held-out writers, questions that a table or a graph answers: a right and a wrong answer",
        kind="best",
        targets=WRITTEN,
        draw=written_lookups,
    ),
    MeasuredSet(
        name="writer-regexes",
        title="held-out writer, requests for a regular expression: a right and a wrong answer",
        kind="best",
        targets={"accuracy_checked": 0.96},
        draw=written_regexes,
    ),
    MeasuredSet(
        name="answered-regexes",
        title="another held-out writer, requests for a regular expression with right and wrong answers of this writer",
        kind="best",
        targets={"accuracy_checked": 0.96},
        draw=answered_regexes,
    ),
    MeasuredSet(
        name="calculations",
        title="held-out writers, everyday calculations: a right and a wrong answer",
        kind="best",
        targets={"accuracy_checked": 0.96},
        draw=answered_calculations,
    ),
    MeasuredSet(
        name="worlds",
        title="generated questions about held-out tables, graphs and documents: a right and a wrong answer",
        kind="best",
        targets={"accuracy_checked": 0.96},
        draw=worlds,
    ),
    MeasuredSet(
        name="judgebench",
        title="JudgeBench without code: pairs",
        kind="silence",
        targets=SILENT,
        draw=labelled("judgebench", source, without="coding"),
    ),
    MeasuredSet(
        name="rmbench", title="RM-Bench, chat and safety: pairs", kind="silence", targets=SILENT, draw=same_style
    ),
    MeasuredSet(
        name="rewardbench",
        title="RewardBench without Python code: pairs",
        kind="silence",
        targets=SILENT,
        draw=labelled("rewardbench", section, without="hep-python"),
    ),
    MeasuredSet(
        name="near-misses",
        title="held-out writers, questions and requests that no program can check: unrelated responses",
        kind="silence",
        targets=SILENT,
        draw=near_misses,
    ),
)


def sets_named(names: Sequence[str]) -> list[MeasuredSet]:
    """Return sets by name, in their usual order; all for no names.

    Raises:
        ValueError: a name is unknown.
    """
    known = [one.name for one in SETS]
    for name in names:
        if name not in known:
            raise ValueError(f"no set is named {name!r}; the sets are {', '.join(known)}")
    return [one for one in SETS if not names or one.name in names]
