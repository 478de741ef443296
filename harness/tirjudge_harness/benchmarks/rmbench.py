"""RM-Bench: three right and three wrong answers per prompt. Styles: concise, detailed, detailed with Markdown.

Each right answer is compared with each wrong answer. Hard: the wrong answer has the richer style; normal: both have the same
style; easy: the right answer has the richer style. By the official rule, equal scores count as wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tirjudge.right import ScoringRule
from tirjudge.types import Mode
from tirjudge_harness.benchmark import Benchmark, HubSource, Row
from tirjudge_harness.columns import conversation, name, text, texts
from tirjudge_harness.examples import Example, example
from tirjudge_harness.metric_tree import ComparisonScore, Mean, MeanMetric
from tirjudge_harness.protocols import Official

DOMAINS = ("chat", "math", "code", "safety")
NUM_STYLES = 3
DIFFICULTIES: dict[str, Callable[[int, int], bool]] = {
    "hard": lambda right, wrong: right < wrong,
    "normal": lambda right, wrong: right == wrong,
    "easy": lambda right, wrong: right > wrong,
}
"""Whether a difficulty applies, given the styles of the right and the wrong answer. 0 is the plainest style."""


def examples(row: Row, part: str) -> Iterator[Example]:
    """Convert a row to one example with three right and three wrong responses."""
    domain = text(row, "domain") if "domain" in row else text(row, "split").removesuffix("_filtered")
    yield example(
        id=f"{domain}/{name(row, 'id')}",
        prompt=conversation(row, "prompt"),
        responses=(*texts(row, "chosen", num=NUM_STYLES), *texts(row, "rejected", num=NUM_STYLES)),
        correct=tuple(range(NUM_STYLES)),
        subset=domain.partition("-")[0],
        tags={"domain": domain},
    )


def _cell(domain: str, difficulty: str) -> MeanMetric:
    applies = DIFFICULTIES[difficulty]

    def holds(mark: ComparisonScore) -> bool:
        return mark.outline.subset == domain and applies(min(mark.compared), max(mark.compared) - NUM_STYLES)

    return MeanMetric(name=f"{domain} {difficulty}", holds=holds)


CELLS = {(domain, difficulty): _cell(domain, difficulty) for domain in DOMAINS for difficulty in DIFFICULTIES}

BENCHMARK = Benchmark(
    name="rmbench",
    title="RM-Bench",
    citation="arXiv:2410.16184",
    # The commit on the hub is unknown. The git repository THU-KEG/RM-Bench at 73c52d7b contains the same file,
    # data/total_dataset.json, and one file per domain, data/*_filtered.json, without a column for the domain.
    sources={
        "total_dataset": HubSource(
            id="THU-KEG/RM-Bench", split="train", files="total_dataset.json", license="ODC-BY", num_rows=1327
        )
    },
    columns=("id", "prompt", "chosen", "rejected"),
    examples=examples,
    sheet=(
        Mean(
            name="overall",
            parts=tuple(
                Mean(name=d, parts=tuple(CELLS[d, difficulty] for difficulty in DIFFICULTIES)) for d in DOMAINS
            ),
        ),
        *(Mean(name=difficulty, parts=tuple(CELLS[d, difficulty] for d in DOMAINS)) for difficulty in DIFFICULTIES),
    ),
    official={mode: Official(counting=ScoringRule(tie=0.0)) for mode in (Mode.PAIRWISE, Mode.POINTWISE)},
)
