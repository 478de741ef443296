"""JudgeBench-Pro: pairs of JudgeBench, rewritten with a bias that misleads judges. The metric is 1 - the error rate."""

from __future__ import annotations

from collections.abc import Iterator

from tirjudge_harness.benchmark import Benchmark, HubSource, Row
from tirjudge_harness.columns import id_of, text, whole
from tirjudge_harness.examples import Example, example
from tirjudge_harness.metric_tree import MeanMetric

REVISION = "1450e1efaf53f3a345efe5a66d092cbcf38cd6d2"


def examples(row: Row, part: str) -> Iterator[Example]:
    """Convert a row to one pair. The label is 1 or 2, the number of the right response."""
    label = whole(row, "label")
    if label not in (1, 2):
        raise ValueError(f"label: expected 1 or 2, got {label}")
    question, responses = text(row, "question"), (text(row, "response_A"), text(row, "response_B"))
    yield example(
        id=id_of(question, *responses),
        prompt=question,
        responses=responses,
        correct=(label - 1,),
        subset=part,
        tags={"domain": text(row, "domain")},
    )


BENCHMARK = Benchmark(
    name="judgebench-pro",
    title="JudgeBench-Pro",
    citation="arXiv:2602.09383",
    sources={
        "test": HubSource(
            id="SUSTech-NLP/JudgeBench-Pro", split="test", revision=REVISION, license="Apache-2.0", num_rows=1178
        )
    },
    columns=("question", "response_A", "response_B", "label", "domain"),
    examples=examples,
    sheet=(MeanMetric(name="accuracy", holds=lambda mark: True),),
    breakdown=("domain",),
)
