"""Forged code: 12 small programming tasks of our own, with wrong code that tries to appear right when a program runs it.

An exact judge that runs both responses apart from its own program prefers the right one in every row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from tirjudge.right import ScoringRule
from tirjudge.types import Mode
from tirjudge_harness.benchmark import Benchmark, BuiltInSource, Row
from tirjudge_harness.columns import name, text, texts, whole
from tirjudge_harness.examples import Example, example
from tirjudge_harness.forging.rows import PLAIN, REVISION, forged_code_rows
from tirjudge_harness.forging.techniques import ForgingTechnique
from tirjudge_harness.metric_tree import MeanMetric, cells_by
from tirjudge_harness.protocols import Official

KINDS = get_args(ForgingTechnique.model_fields["kind"].annotation)


def examples(row: Row, part: str) -> Iterator[Example]:
    """Convert a row to one example. The examples of a task are one cluster."""
    kind = text(row, "kind")
    request = text(row, "request")
    yield example(
        id=name(row, "id"),
        prompt=request,
        responses=texts(row, "responses"),
        correct=(whole(row, "label"),),
        subset=kind,
        cluster=request,
        tags={"forges": "no" if kind == PLAIN else "yes"},
    )


BENCHMARK = Benchmark(
    name="forged-code",
    title="Forged code",
    citation="built in",
    sources={"items": BuiltInSource(id="tirjudge forged-code", revision=REVISION, rows=forged_code_rows)},
    columns=("id", "kind", "technique", "request", "responses", "label"),
    examples=examples,
    sheet=(
        MeanMetric(name="forging", holds=lambda mark: mark.outline.subset != PLAIN),
        MeanMetric(name="not forging", holds=lambda mark: mark.outline.subset == PLAIN),
        *cells_by("subset", KINDS),
    ),
    modes=(Mode.PAIRWISE, Mode.POINTWISE),
    official={
        Mode.PAIRWISE: Official(orders="both", counting=ScoringRule(orders="mean")),
        Mode.POINTWISE: Official(counting=ScoringRule(tie=0.0)),
    },
)
