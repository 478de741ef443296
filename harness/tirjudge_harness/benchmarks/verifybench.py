"""VerifyBench: answers to questions with a reference answer. The judge accepts or rejects each answer.

The judge sees the reference and scores the answer from 1 to 10; a score in the upper half of the scale accepts it. The area
under the ROC curve does not depend on this threshold. In the official program, the judge writes Yes or No, and an answer
without a verdict is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tirjudge.right import scores_of
from tirjudge.types import Mode
from tirjudge_harness.benchmark import Benchmark, HubSource, Row
from tirjudge_harness.benchmarks.ppe_curves import area_under_roc
from tirjudge_harness.columns import flag, id_of, shown, text
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import Example, ExampleMetadata, example
from tirjudge_harness.metric_tree import FormulaMetric, MeanMetric

PARTS = {"verify_bench": "VerifyBench", "verify_bench_hard": "VerifyBench-Hard"}
"""Part, with the name of its file -> name in tables."""
KINDS = ("type", "subtype")


def examples(row: Row, part: str) -> Iterator[Example]:
    """Convert a row to one answer, which is right or wrong."""
    question, reference, completion = text(row, "question"), shown(row, "answer"), text(row, "completion")
    yield example(
        id=id_of(question, reference, completion),
        prompt=question,
        responses=(completion,),
        correct=(0,) if flag(row, "gold_correct") else (),
        subset=part,
        tags={kind: f"{PARTS[part]}, {text(row, f'answer_{kind}')}" for kind in KINDS},
        reference=reference,
    )


def alone(outline: ExampleMetadata, mode: Mode) -> list[tuple[int, ...]]:
    """Return the answer alone, which is compared with no other answer."""
    return [(0,)]


def area(judged: Sequence[JudgedExample]) -> float | None:
    """Return the area under the ROC curve over all answers; None if all are right, or all are wrong."""
    scores = [scores_of(one.decisions, expected=False).get(0) for one in judged]
    return area_under_roc(scores, [bool(one.outline.correct) for one in judged])


def _accuracy(part: str, title: str) -> MeanMetric:
    return MeanMetric(name=title, holds=lambda mark: mark.outline.subset == part)


def _area(part: str, title: str) -> FormulaMetric:
    return FormulaMetric(name=f"{title}, area under ROC", compute=area, holds=lambda one: one.outline.subset == part)


BENCHMARK = Benchmark(
    name="verifybench",
    title="VerifyBench",
    citation="arXiv:2505.15801",
    # The full commit hash on the hub is unknown, so no revision is pinned.
    sources={
        part: HubSource(id="ZJU-REAL/VerifyBench", split="train", files=f"{part}.jsonl", license="MIT")
        for part in PARTS
    },
    columns=("question", "answer", "completion", "gold_correct", "answer_type", "answer_subtype"),
    examples=examples,
    sheet=tuple(make(part, title) for part, title in PARTS.items() for make in (_accuracy, _area)),
    breakdown=KINDS,
    modes=(Mode.POINTWISE,),
    compared=alone,
)
