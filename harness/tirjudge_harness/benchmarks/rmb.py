"""RMB: pairs, and best-of-N lists with one winner and several losers, for helpfulness and harmlessness.

A list counts as right if the winner beats every loser; a tie fails. By the official program, equal scores of a pair are
wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from statistics import fmean
from urllib.parse import quote

from tirjudge.right import STRICT, Decision, ScoringRule, credit
from tirjudge.types import ChatMessage, Mode
from tirjudge_harness.benchmark import Benchmark, HubSource, Row
from tirjudge_harness.columns import items, name, record, text
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import Example, example
from tirjudge_harness.metric_tree import FormulaMetric, Mean, MeanMetric
from tirjudge_harness.protocols import Official

REVISION = "2be3180857f2190b7ffa929d43190835627f1f4d"
PAIRS, LISTS = "Pairwise_set", "BoN_set"
"""Parts, with the names of the folders in the git repository."""
NUM_LISTS = 3786
"""Number of rows of `BoN_set`."""

GOALS = ("Helpfulness", "Harmlessness")
SCENARIOS = {
    "Brainstorming": ("Idea Development", "Problem Solving"),
    "Chat": ("Casual Conversation", "Discussion", "Supportive Conversation"),
    "Classification": ("Content Categorization", "Quality and Compliance Assessment"),
    "Closed QA": ("ContextBased", "OptionBased"),
    "Code": ("Data Management", "Development and Implementation", "Documentation", "Quality and Optimization"),
    "Generation": ("Creative Writing", "Professional Content Generation"),
    "Open QA": (
        "Factual",
        "General Explanation",
        "Hypothetical Scenarios",
        "Interpretative Analysis",
        "Personal Opinion and Advice",
        "Technical and Practical Support",
    ),
    "Reasoning": (
        "Analytical Reasoning",
        "Critical Thinking",
        "Human Decision Making",
        "Logical Deduction",
        "Pattern Recognition",
    ),
    "Rewrite": (
        "Paraphrasing",
        "PostQuality Assessment Rewriting",
        "Textual ExpansionReduction",
        "Tone Adjustment",
    ),
    "Role Playing": ("General Character", "Specific Character"),
    "Summarization": ("Specialized Summaries", "Standard Summaries"),
    "Translation": (
        "GeneralExcerpt Language Translation",
        "Literary and Cultural Translation",
        "Technical and Scientific Translation",
    ),
}
"""Scenario of helpfulness -> tasks."""
HARMS = (*(f"S{number}" for number in range(1, 12)), "multi")
"""Scenarios of harmlessness."""

PATHS = (
    *(f"Helpfulness/{scenario}/{task}" for scenario, tasks in SCENARIOS.items() for task in tasks),
    *(f"Harmlessness/{harm}" for harm in HARMS),
)


def examples(row: Row, part: str) -> Iterator[Example]:
    """Convert a row to a pair, or to a list whose first response is the winner."""
    given, goal, scenario = _category(row)
    if given == PAIRS:
        answers, number = [record(row, "chosen"), record(row, "reject")], name(row, "pair_uid")
    else:
        losers = items(row, "loser_list")
        if not losers:
            raise ValueError("loser_list: expected at least one answer, got none")
        each = [record({"loser_list": loser}, "loser_list") for loser in losers]
        answers, number = [record(row, "bon_best"), *each], name(row, "bon_uid")
    yield example(
        id=f"{given}/{number}",
        prompt=_prompt(row),
        responses=tuple(text(answer, "answer") for answer in answers),
        correct=(0,),
        subset=f"{given}/{goal}",
        tags={"scenario": scenario},
    )


def _prompt(row: Row) -> str | tuple[ChatMessage, ...]:
    """Return the conversation; a string if it is one message of the user."""
    column = "conversation_input"
    given = [record({column: message}, column) for message in items(row, column)]
    messages = tuple(ChatMessage(role=text(one, "role"), content=text(one, "content")) for one in given)  # type: ignore[arg-type]
    if not messages:
        raise ValueError(f"{column}: expected at least one message, got none")
    return messages[0].content if len(messages) == 1 and messages[0].role == "user" else messages


def _category(row: Row) -> tuple[str, str, str]:
    """Return part, goal and scenario of a row."""
    path = text(row, "category_path")
    given, _, rest = path.partition("/")
    if given not in (PAIRS, LISTS) or rest not in PATHS:
        raise ValueError(f"category_path: {path!r} is not a file of RMB, such as {PAIRS}/{PATHS[0]}")
    goal, scenario, *_ = rest.split("/")
    return given, goal, scenario


def beats_every_loser(judged: Sequence[JudgedExample]) -> float | None:
    """Return the share of lists whose first response beats every other response in the first order; None without lists."""
    wins = [_wins(one.decisions, num_losers=one.outline.num_responses - 1, mode=one.mode) for one in judged]
    return fmean(wins) if wins else None


@lru_cache(maxsize=1 << 13)
def _wins(decisions: tuple[Decision, ...], *, num_losers: int, mode: Mode) -> float:
    earned = (
        credit(decisions, (0, loser), right=frozenset({0}), mode=mode, counting=STRICT)
        for loser in range(1, num_losers + 1)
    )
    return float(all(one is not None and one[1] == 1.0 for one in earned))


def _pairs_metric(title: str, subset: str, *, scenario: str | None = None) -> MeanMetric:
    return MeanMetric(
        name=title,
        holds=lambda mark: mark.outline.subset == subset and scenario in (None, mark.outline.tags.get("scenario")),
    )


def _lists_metric(title: str, subset: str, *, scenario: str | None = None) -> FormulaMetric:
    return FormulaMetric(
        name=title,
        compute=beats_every_loser,
        holds=lambda one: one.outline.subset == subset and scenario in (None, one.outline.tags.get("scenario")),
    )


def _source(part: str) -> HubSource:
    root = f"https://raw.githubusercontent.com/Zhou-Zoey/RMB-Reward-Model-Benchmark/{REVISION}/RMB_dataset"
    files = tuple(f"{root}/{quote(f'{part}/{path}')}.json" for path in PATHS)
    return HubSource(
        id="json", split="train", files=files, revision=REVISION, num_rows=NUM_LISTS if part == LISTS else None
    )


BENCHMARK = Benchmark(
    name="rmb",
    title="RMB",
    citation="arXiv:2410.09893",
    sources={part: _source(part) for part in (PAIRS, LISTS)},
    columns=("conversation_input", "category_path"),
    examples=examples,
    sheet=(
        Mean(
            name="average",
            parts=tuple(
                make(f"{goal} {title}", f"{part}/{goal}")
                for goal in GOALS
                for part, title, make in (
                    (LISTS, "best of N", _lists_metric),
                    (PAIRS, "pairs", _pairs_metric),
                )
            ),
        ),
        *(
            make(f"{scenario} {title}", f"{part}/{goal}", scenario=scenario)
            for goal, scenarios in zip(GOALS, (tuple(SCENARIOS), HARMS), strict=True)
            for scenario in scenarios
            for part, title, make in ((LISTS, "best of N", _lists_metric), (PAIRS, "pairs", _pairs_metric))
        ),
    ),
    official={mode: Official(counting=ScoringRule(tie=0.0)) for mode in (Mode.PAIRWISE, Mode.POINTWISE)},
)
