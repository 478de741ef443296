"""PPE Human Preference: pairs of answers of two models, and the vote of the person who asked in Chatbot Arena.

Accuracy counts the pairs with a preferred answer; votes for a tie have no right answer and are left out. PPE's metrics over
rankings of models are not part of this benchmark, because the program that computes them could not be compared.
"""

from __future__ import annotations

from collections.abc import Iterator

from tirjudge.types import Mode
from tirjudge_harness.benchmark import Benchmark, HubSource, Row
from tirjudge_harness.columns import conversation, flag, name, text
from tirjudge_harness.examples import Example, example
from tirjudge_harness.metric_tree import MeanMetric, cells_by

WINNERS = {"model_a": 0, "model_b": 1}
LICENSE = "prompts: CC-BY-4.0; answers: terms of the models"
TIE = "tie"
"""Start of the winner if the person voted for neither answer."""

FLAGS = {
    "hard": "hard_prompt",
    "easy": "easy_prompt",
    "instruction following": "if_prompt",
    "coding": "is_code",
    "math": "math_prompt",
}
"""Metric -> column that says whether the pair counts in it."""


def examples(row: Row, part: str) -> Iterator[Example]:
    """Convert a row to one pair. A tie gives no example."""
    winner = text(row, "winner")
    flags = {metric: flag(row, column) for metric, column in FLAGS.items()}
    language = text(row, "language")
    if winner not in WINNERS and not winner.startswith(TIE):
        raise ValueError(f"winner: expected {', '.join(WINNERS)} or {TIE}, got {winner!r}")
    if winner in WINNERS:
        yield example(
            id=name(row, "question_id"),
            prompt=conversation(row, "prompt"),
            responses=(text(row, "response_1"), text(row, "response_2")),
            correct=(WINNERS[winner],),
            subset="English" if language == "English" else "other languages",
            tags={"language": language, **{metric: "yes" if given else "no" for metric, given in flags.items()}},
        )


def _flagged(metric: str) -> MeanMetric:
    return MeanMetric(name=metric, holds=lambda mark: mark.outline.tags.get(metric) == "yes")


BENCHMARK = Benchmark(
    name="ppe-preference",
    title="PPE Human Preference",
    citation="arXiv:2410.14872",
    # The full commit hash on the hub is unknown, so no revision is pinned.
    sources={
        "test": HubSource(id="lmarena-ai/PPE-Human-Preference-V1", split="test", license=LICENSE, num_rows=16_038)
    },
    columns=("question_id", "prompt", "response_1", "response_2", "winner", "language", *FLAGS.values()),
    examples=examples,
    sheet=(
        MeanMetric(name="accuracy", holds=lambda mark: True),
        *map(_flagged, FLAGS),
        *cells_by("subset", ("English", "other languages")),
    ),
    breakdown=("language",),
    modes=(Mode.PAIRWISE, Mode.POINTWISE),
)
