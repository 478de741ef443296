"""Tasks as rows of a benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from tirjudge_evidence.tasks.generating import KINDS, draw_tasks

REVISION = "2"
"""Changes when a row changes."""

SEED = 2024
"""Seed of the rows."""

PER_KIND = 40
"""Number of tasks of each kind."""


def evidence_rows(*, held_out: bool) -> list[dict[str, Any]]:
    """Return the rows. Columns: those of `EvidenceTask`, with `question` as `prompt`, both answers in `responses`, and
    `lookup` as `program`.

    Args:
        held_out: whether to use the ontologies that training never sees.
    """
    return list(_rows(held_out=held_out))


def _rows(*, held_out: bool) -> Iterator[dict[str, Any]]:
    for kind in KINDS:
        for task in islice(draw_tasks(seed=f"{SEED}-{kind}", held_out=held_out, kinds=(kind,)), PER_KIND):
            yield {
                "id": f"{'held-out' if held_out else 'training'}-{task.id}",
                "ontology": task.ontology,
                "kind": task.kind,
                "hops": task.hops,
                "status": task.status,
                "conflict": task.conflict,
                "has_instruction": task.has_instruction,
                "prompt": task.question,
                "responses": list(task.responses),
                "label": task.label,
                "stores": list(task.stores),
                "program": task.program(is_pointwise=False),
            }
