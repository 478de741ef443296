"""A toy benchmark: the longer of two answers is right."""

from collections.abc import Iterator

from tirjudge.types import Mode
from tirjudge_harness.benchmark import Benchmark, HubSource, Row
from tirjudge_harness.columns import name, text
from tirjudge_harness.examples import Example, example
from tirjudge_harness.metric_tree import MeanMetric


def examples(row: Row, part: str) -> Iterator[Example]:
    responses = (text(row, "first"), text(row, "second"))
    longer = max((0, 1), key=lambda index: len(responses[index].split()))
    yield example(
        id=name(row, "number"), prompt=text(row, "question"), responses=responses, correct=(longer,), subset="all"
    )


BENCHMARK = Benchmark(
    name="toy-lengths",
    title="Toy lengths",
    citation="example.org/toy",
    sources={"test": HubSource(id="example/toy", split="test", revision="0123abc")},
    columns=("number", "question", "first", "second"),
    examples=examples,
    sheet=(MeanMetric(name="all", holds=lambda mark: True),),
    modes=(Mode.PAIRWISE,),
)
