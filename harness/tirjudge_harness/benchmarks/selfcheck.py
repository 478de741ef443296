"""Selfcheck: 60 short items that are part of this package, to see in minutes what a model can be used for.

`tirjudge doctor` judges these items with tools, without tools, and with the outputs of programs removed.
"""

from __future__ import annotations

from collections.abc import Iterator

from tirjudge.types import MODEL_MODES, Mode
from tirjudge_harness.benchmark import Benchmark, BuiltInSource, Row
from tirjudge_harness.columns import name, text, texts, whole
from tirjudge_harness.examples import Example, example
from tirjudge_harness.metric_tree import MeanMetric, cells_by
from tirjudge_harness.selfcheck_rows import KINDS, READ, SEED, selfcheck_rows


def examples(row: Row, part: str) -> Iterator[Example]:
    """Convert a row to one example, which is judged in the mode of the row."""
    mode = Mode(text(row, "mode"))
    yield example(
        id=name(row, "id"),
        prompt=text(row, "request"),
        responses=texts(row, "responses"),
        correct=(whole(row, "label"),),
        subset=text(row, "kind"),
        tags={"mode": mode.value},
        mode=mode,
    )


BENCHMARK = Benchmark(
    name="selfcheck",
    title="Selfcheck",
    citation="built in",
    sources={"items": BuiltInSource(id="tirjudge selfcheck", revision=f"seed-{SEED}", rows=selfcheck_rows)},
    columns=("id", "mode", "kind", "request", "responses", "label"),
    examples=examples,
    sheet=(
        MeanMetric(name="all items", holds=lambda mark: True),
        MeanMetric(name="to compute", holds=lambda mark: mark.outline.subset not in READ),
        MeanMetric(name="to read", holds=lambda mark: mark.outline.subset in READ),
        *cells_by("mode", MODEL_MODES),
        *cells_by("subset", tuple(KINDS)),
    ),
    modes=(),
)
