"""JudgeBench: pairs of a right and a wrong answer of one model to a hard question, with verified labels.

The official rule judges each pair in both orders and takes the majority of the verdicts: one right verdict and one tie count
as right. Equal scores of a reward model count as wrong. A decision that was not offered, such as `A>A`, counts as no verdict.
"""

from __future__ import annotations

from collections.abc import Iterator

from tirjudge.right import ScoringRule
from tirjudge.types import Mode
from tirjudge_harness.benchmark import Benchmark, HubSource, Row
from tirjudge_harness.columns import name, text
from tirjudge_harness.examples import Example, example
from tirjudge_harness.metric_tree import MeanMetric, cells_by
from tirjudge_harness.protocols import Official, OfficialSampling

CATEGORIES = {
    "mmlu-pro": "knowledge",
    "livebench-reasoning": "reasoning",
    "livebench-math": "math",
    "livecodebench": "coding",
}
"""Prefix of the source of a pair -> subset."""

LABELS = {"A>B": 0, "B>A": 1}

REVISION = "57dd5e0b9817d07f05ec8f45a91b2ce1e310e308"


def examples(row: Row, part: str) -> Iterator[Example]:
    """Convert a row to one pair."""
    label, source = text(row, "label"), text(row, "source")
    if label not in LABELS:
        raise ValueError(f"label: expected {' or '.join(LABELS)}, got {label!r}")
    subset = next((subset for prefix, subset in CATEGORIES.items() if source.startswith(prefix)), None)
    if subset is None:
        raise ValueError(f"source: {source!r} does not start with one of {', '.join(CATEGORIES)}")
    yield example(
        id=name(row, "pair_id"),
        prompt=text(row, "question"),
        responses=(text(row, "response_A"), text(row, "response_B")),
        correct=(LABELS[label],),
        subset=subset,
        tags={"source": source, "split": part},
    )


BENCHMARK = Benchmark(
    name="judgebench",
    title="JudgeBench",
    citation="arXiv:2410.12784",
    sources={
        split: HubSource(id="ScalerLab/JudgeBench", split=split, revision=REVISION, license="MIT", num_rows=num_rows)
        for split, num_rows in (("gpt", 350), ("claude", 270))
    },
    parts=("gpt",),
    columns=("pair_id", "source", "question", "response_A", "response_B", "label"),
    examples=examples,
    sheet=(MeanMetric(name="overall", holds=lambda mark: True), *cells_by("subset", tuple(CATEGORIES.values()))),
    official={
        Mode.PAIRWISE: Official(
            orders="both",
            counting=ScoringRule(orders="net"),
            sampling=OfficialSampling(temperature=0.0, max_tokens=4096),
            ignores_junk=True,
        ),
        Mode.POINTWISE: Official(counting=ScoringRule(tie=0.0), ignores_junk=True),
    },
)
