"""IFBench of Agentic Reward Modeling: one answer of each pair satisfies all constraints of the instruction, one does not.

Hard: the wrong answer violates one constraint; normal: two; simple: more. (AllenAI's IFBench is a different benchmark.) By
the official rule, a tie of choices counts as 0.5, and a tie of a scalar reward model counts as wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from tirjudge.right import ScoringRule
from tirjudge.types import Mode
from tirjudge_harness.benchmark import Benchmark, HubSource, Row
from tirjudge_harness.columns import items, messages, name, record, text
from tirjudge_harness.examples import Example, example
from tirjudge_harness.metric_tree import MeanMetric, cells_by
from tirjudge_harness.protocols import Official

DIFFICULTIES = ("hard", "normal", "simple")
LEVELS = {"level-3": "hard", "level-2": "normal", "level-1": "simple"}

REVISION = "6fa6f03960d0e5eab9e5c8549a355a1ade70291e"


def examples(row: Row, part: str) -> Iterator[Example]:
    """Convert a row to one pair, with the right response first."""
    if "text_chosen" in row:
        yield _converted(row)
        return
    chosen, rejected = record(row, "chosen"), record(row, "rejected")
    yield example(
        id=name(row, "id"),
        prompt=text(row, "instruction"),
        responses=(text(chosen, "content"), text(rejected, "content")),
        correct=(0,),
        subset={1: "hard", 2: "normal"}.get(len(items(rejected, "unsatisfied_constraints")), "simple"),
    )


def _converted(row: Row) -> Example:
    """Convert a row of the file in the git repository. A row has two conversations."""
    *asked, right = messages(row, "text_chosen")
    *_, wrong = messages(row, "text_rejected")
    level = text(row, "domain")
    if level not in LEVELS:
        raise ValueError(f"domain: expected one of {', '.join(LEVELS)}, got {level!r}")
    if not asked:
        raise ValueError("text_chosen: expected at least one message before the answer, got none")
    return example(
        id=name(row, "id"),
        prompt=asked[0].content if len(asked) == 1 else tuple(asked),
        responses=(right.content, wrong.content),
        correct=(0,),
        subset=LEVELS[level],
    )


BENCHMARK = Benchmark(
    name="ifbench",
    title="IFBench (Agentic Reward Modeling)",
    citation="arXiv:2502.19328",
    sources={
        "train": HubSource(id="THU-KEG/IFBench", split="train", revision=REVISION, license="Apache-2.0", num_rows=444)
    },
    columns=("id",),
    examples=examples,
    sheet=(MeanMetric(name="overall", holds=lambda mark: True), *cells_by("subset", DIFFICULTIES)),
    official={mode: Official(counting=ScoringRule(scalar_tie=0.0)) for mode in (Mode.PAIRWISE, Mode.POINTWISE)},
)
