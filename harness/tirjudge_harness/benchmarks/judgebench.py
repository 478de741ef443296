"""JudgeBench: pairs of answers of one model to hard questions, one of them right, with labels that were checked.

Its own rule shows each pair in both orders and takes the verdict that more orders gave: one right and one tie is right.
A reward model that gives both the same score is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from tirjudge.right import ScoringRule
from tirjudge.types import Mode
from tirjudge_harness.benchmark import Benchmark, HubSource, Row
from tirjudge_harness.columns import name, text
from tirjudge_harness.examples import Example, example
from tirjudge_harness.metric_tree import MeanMetric, cells_by
from tirjudge_harness.protocols import Official

CATEGORIES = {
    "mmlu-pro": "knowledge",
    "livebench-reasoning": "reasoning",
    "livebench-math": "math",
    "livecodebench": "coding",
}
"""By what the source of a pair begins with."""

LABELS = {"A>B": 0, "B>A": 1}

REVISION = "57dd5e0b9817d07f05ec8f45a91b2ce1e310e308"


def examples(row: Row, part: str) -> Iterator[Example]:
    label, source = text(row, "label"), text(row, "source")
    if label not in LABELS:
        raise ValueError(f"label: {label!r} given, {' or '.join(LABELS)} wanted")
    subset = next((subset for prefix, subset in CATEGORIES.items() if source.startswith(prefix)), None)
    if subset is None:
        raise ValueError(f"source: {source!r} given, which begins with none of {', '.join(CATEGORIES)}")
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
        split: HubSource(id="ScalerLab/JudgeBench", split=split, revision=REVISION) for split in ("gpt", "claude")
    },
    parts=("gpt",),
    columns=("pair_id", "source", "question", "response_A", "response_B", "label"),
    examples=examples,
    sheet=(MeanMetric(name="overall", holds=lambda mark: True), *cells_by("subset", tuple(CATEGORIES.values()))),
    official={
        Mode.PAIRWISE: Official(orders="both", counting=ScoringRule(orders="net")),
        Mode.POINTWISE: Official(counting=ScoringRule(tie=0.0)),
    },
)
