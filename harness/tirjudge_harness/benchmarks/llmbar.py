"""LLMBar: an instruction and two outputs, one of which follows the instruction. In the adversarial sets, the wrong output
looks better.

The official rule is the mean over both orders; a tie or a missing verdict counts as wrong. Equal ratings and a missing rating
count as 0.5. The agreement is the share of pairs whose two orders have the same result: a missing verdict equals a missing
verdict. RewardBench contains the same pairs in the subsets that start with `llmbar`, so a table with both benchmarks counts
them twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from tirjudge.right import ScoringRule, choices_by_order
from tirjudge.types import Mode
from tirjudge_harness.benchmark import Benchmark, HubSource, Row
from tirjudge_harness.columns import id_of, text, whole
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import Example, example
from tirjudge_harness.metric_tree import FormulaMetric, Mean, cells_by
from tirjudge_harness.protocols import Official, OfficialSampling

REVISION = "900616bff90b6c6c8e1681f7d079250637c55992"
FILES = {
    "natural": "Natural",
    "neighbor": "Adversarial/Neighbor",
    "gptinst": "Adversarial/GPTInst",
    "gptout": "Adversarial/GPTOut",
    "manual": "Adversarial/Manual",
}
"""Set -> folder in the git repository. The hub only has a loading script, which `datasets` does not support."""
NUM_ROWS = dict(zip(FILES.values(), (100, 134, 92, 47, 46), strict=True))


def examples(row: Row, part: str) -> Iterator[Example]:
    """Convert a row to one pair."""
    label = whole(row, "label")
    if label not in (1, 2):
        raise ValueError(f"label: expected 1 or 2, got {label}")
    instruction, outputs = text(row, "input"), (text(row, "output_1"), text(row, "output_2"))
    yield example(
        id=id_of(instruction, *outputs), prompt=instruction, responses=outputs, correct=(label - 1,), subset=part
    )


def _source(folder: str) -> HubSource:
    url = f"https://raw.githubusercontent.com/princeton-nlp/LLMBar/{REVISION}/Dataset/LLMBar/{folder}/dataset.json"
    return HubSource(id="json", split="train", files=url, revision=REVISION, license="MIT", num_rows=NUM_ROWS[folder])


def agreement_of_orders(judged: Sequence[JudgedExample]) -> float | None:
    """Return the share of pairs whose two orders have the same result. A missing verdict equals a missing verdict, and a tie
    equals a tie. None: no pair was judged in two orders."""
    choices = [choices_by_order(one.decisions, range(one.outline.num_responses)) for one in judged]
    twice = [each for each in choices if len(each) == 2]
    return fmean(first == second for first, second in twice) if twice else None


def _agreement_in(part: str) -> FormulaMetric:
    return FormulaMetric(
        name=f"agreement, {part}", compute=agreement_of_orders, holds=lambda one: one.outline.subset == part
    )


NATURAL, *ADVERSARIAL = cells_by("subset", tuple(FILES))

BENCHMARK = Benchmark(
    name="llmbar",
    title="LLMBar",
    citation="arXiv:2310.07641",
    sources={part: _source(folder) for part, folder in FILES.items()},
    columns=("input", "output_1", "output_2", "label"),
    examples=examples,
    sheet=(
        Mean(name="average", parts=(NATURAL, *ADVERSARIAL)),
        Mean(name="adversarial", parts=tuple(ADVERSARIAL)),
        Mean(name="agreement", parts=tuple(map(_agreement_in, FILES))),
    ),
    official={
        Mode.PAIRWISE: Official(
            orders="both",
            counting=ScoringRule(orders="mean", tie=0.0),
            sampling=OfficialSampling(temperature=0.0),
        ),
        Mode.POINTWISE: Official(
            counting=ScoringRule(tie=0.5, no_verdict=0.5), sampling=OfficialSampling(temperature=0.0)
        ),
    },
)
