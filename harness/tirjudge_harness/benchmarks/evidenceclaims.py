"""Evidence claims: questions that tables, knowledge graphs and documents decide, generated from an ontology.

Each request carries its stores, so the judge needs the functions of the tool `evidence`. The part `held-out` has ontologies
that training never sees; the part `training` has those that training draws. The part `without` has the questions of
`held-out` without stores and functions: there, an accuracy above one half shows that the answers give themselves away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pydantic import TypeAdapter

from tirjudge.right import ScoringRule
from tirjudge.types import AttachedStore, Mode
from tirjudge_evidence.tasks.generating import FUNCTIONS, KINDS
from tirjudge_evidence.tasks.rows import REVISION, evidence_rows
from tirjudge_harness.benchmark import Benchmark, BuiltInSource, Row
from tirjudge_harness.columns import items, name, text, texts, whole
from tirjudge_harness.examples import Example, example
from tirjudge_harness.metric_tree import MeanMetric, cells_by
from tirjudge_harness.protocols import Official

WITHOUT = "without"
"""Part whose requests have no evidence."""

_STORES = TypeAdapter(tuple[AttachedStore, ...])
_STATUSES = ("contradicted", "violates_rule", "not_in_evidence")
_HOPS = ("1 hop", "2 hops")
_INSTRUCTIONS = ("no instruction", "hidden instruction")
_CONFLICTS = ("authority", "latest", "validity")


def examples(row: Row, part: str) -> Iterator[Example]:
    """Convert a row to one example."""
    is_without = part == WITHOUT
    id = name(row, "id")
    found = example(
        id=f"{id}-{WITHOUT}" if is_without else id,
        prompt=text(row, "prompt"),
        responses=texts(row, "responses"),
        correct=(whole(row, "label"),),
        subset=text(row, "kind"),
        tags={
            "hops": "1 hop" if whole(row, "hops") == 1 else "2 hops",
            "status": text(row, "status"),
            "conflict": text(row, "conflict"),
            "instruction": _INSTRUCTIONS[bool(row["has_instruction"])],
            "ontology": text(row, "ontology"),
        },
    )
    if is_without:
        yield replace(found, functions=())
    else:
        yield replace(found, evidence=_STORES.validate_python(items(row, "stores")), functions=FUNCTIONS)


def _source(*, held_out: bool) -> BuiltInSource:
    return BuiltInSource(
        id="tirjudge evidence-claims", revision=REVISION, rows=lambda: evidence_rows(held_out=held_out)
    )


BENCHMARK = Benchmark(
    name="evidence-claims",
    title="Evidence claims",
    citation="built in",
    sources={
        "held-out": _source(held_out=True),
        "training": _source(held_out=False),
        WITHOUT: _source(held_out=True),
    },
    parts=("held-out",),
    columns=("id", "kind", "hops", "status", "conflict", "has_instruction", "ontology", "prompt", "responses", "label"),
    examples=examples,
    sheet=(
        MeanMetric(name="all", holds=lambda mark: True),
        *cells_by("subset", KINDS),
        *cells_by("hops", _HOPS),
        *cells_by("status", _STATUSES),
        *cells_by("conflict", _CONFLICTS),
        *cells_by("instruction", _INSTRUCTIONS),
    ),
    modes=(Mode.PAIRWISE, Mode.POINTWISE),
    official={
        Mode.PAIRWISE: Official(counting=ScoringRule(orders="mean")),
        Mode.POINTWISE: Official(counting=ScoringRule(tie=0.0)),
    },
)
