"""Fixtures that load rows from files and build decisions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tirjudge.right import Decision
from tirjudge.types import Mode
from tirjudge_harness.benchmark import Benchmark
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.evaluation import evaluate
from tirjudge_harness.examples import Example
from tirjudge_harness.protocols import OFFICIAL, Protocol
from tirjudge_harness.sources import BadRow, load_examples

Load = Callable[..., list[Example]]
Figures = Callable[..., dict[str, float | None]]


@pytest.fixture
def bad() -> list[BadRow]:
    """The invalid rows that were reported."""
    return []


@pytest.fixture
def load(tmp_path: Path, bad: list[BadRow]) -> Load:
    """Returns a function that writes rows to a file with the name of a part, and loads them."""

    def load(benchmark: Benchmark, rows: Sequence[Mapping[str, Any]], *, part: str | None = None) -> list[Example]:
        path = tmp_path / f"{part or 'rows'}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return load_examples(benchmark, data=path, parts=[part] if part else [], on_bad=bad.append)

    return load


@pytest.fixture
def figures() -> Figures:
    """Returns a function that evaluates a benchmark, and returns the metric values by name."""

    def figures(
        benchmark: Benchmark, judged: Sequence[JudgedExample], *, protocol: Protocol = OFFICIAL
    ) -> dict[str, float | None]:
        (mode,) = {one.mode for one in judged}
        found = evaluate(benchmark, judged, mode=mode, protocol=protocol).figures
        assert len({figure.name for figure in found}) == len(found), "each metric is listed once"
        return {figure.name: figure.value for figure in found}

    return figures


@pytest.fixture
def named() -> Callable[..., JudgedExample]:
    """Returns a function that adds one decision per order: an index, `tie`, or None for no verdict."""

    def named(example: Example, *best: int | str | None) -> JudgedExample:
        orders = [tuple(range(example.outline.num_responses))]
        orders.append(orders[0][::-1])
        decisions = [
            Decision(shown=shown, tied=True) if choice == "tie" else Decision(shown=shown, best=choice)  # type: ignore[arg-type]
            for shown, choice in zip(orders, best, strict=False)
        ]
        mode = Mode.PAIRWISE if example.outline.num_responses == 2 else Mode.LISTWISE
        return JudgedExample(outline=example.outline, mode=mode, decisions=tuple(decisions))

    return named


@pytest.fixture
def rated() -> Callable[..., JudgedExample]:
    """Returns a function that adds one score per response; None: no verdict."""

    def rated(example: Example, *scores: float | None) -> JudgedExample:
        assert len(scores) == example.outline.num_responses
        decisions = tuple(Decision(shown=(index,), score=score) for index, score in enumerate(scores))
        return JudgedExample(outline=example.outline, mode=Mode.POINTWISE, decisions=decisions)

    return rated


@pytest.fixture
def compared() -> Callable[..., JudgedExample]:
    """Returns a function that adds one decision per comparison."""

    def compared(example: Example, best: Mapping[tuple[int, int], int]) -> JudgedExample:
        decisions = tuple(Decision(shown=shown, best=choice) for shown, choice in best.items())
        return JudgedExample(outline=example.outline, mode=Mode.PAIRWISE, decisions=decisions)

    return compared
