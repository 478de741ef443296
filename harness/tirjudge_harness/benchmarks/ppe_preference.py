"""PPE Human Preference: pairs of answers of two models, and the vote of the person who asked in Chatbot Arena.

Accuracy and kappa count the pairs with a preferred answer. Votes for a tie have no right answer; these pairs count in the
rankings of models only. `tirjudge bench rank` has PPE's metrics over models: separability, confidence agreement, row-wise
Pearson, Brier score and rank correlations. PPE's own program could not be read, so its handling of ties is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tirjudge.types import Mode
from tirjudge.verdict import TIED
from tirjudge_harness.benchmark import Benchmark, HubSource, Row
from tirjudge_harness.benchmarks.human_votes import choice_of_judge, the_pair, voted
from tirjudge_harness.columns import conversation, flag, name, text
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import Example
from tirjudge_harness.metric_tree import FormulaMetric, FormulaOfMeans, MeanMetric, cells_by

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
    """Convert a row to one pair."""
    winner = text(row, "winner")
    flags = {metric: flag(row, column) for metric, column in FLAGS.items()}
    language = text(row, "language")
    if winner not in WINNERS and not winner.startswith(TIE):
        raise ValueError(f"winner: expected {', '.join(WINNERS)} or {TIE}, got {winner!r}")
    models = (text(row, "model_a"), text(row, "model_b")) if {"model_a", "model_b"} <= row.keys() else None
    yield voted(
        id=name(row, "question_id"),
        prompt=conversation(row, "prompt"),
        responses=(text(row, "response_1"), text(row, "response_2")),
        vote=WINNERS.get(winner, TIED),
        subset="English" if language == "English" else "other languages",
        models=models,
        tags={"language": language, **{metric: "yes" if given else "no" for metric, given in flags.items()}},
    )


def _choice_and_vote(one: JudgedExample) -> tuple[float, ...] | None:
    """Return 1 or 0 for: the choice equals the vote, the judge chose the first answer, the judge chose the second one, and
    people chose the first answer. None: the vote is a tie, or the pair was not judged."""
    if len(one.outline.correct) != 1 or not one.decisions:
        return None
    (vote,) = one.outline.correct
    choice = choice_of_judge(one)
    return float(choice == vote), float(choice == 0), float(choice == 1), float(vote == 0)


def _kappa(shares: Sequence[float]) -> float | None:
    """Return Cohen's kappa from the shares of `_choice_and_vote`. A tie or a missing verdict of the judge is a third label,
    which people do not give."""
    same, first, second, voted_first = shares
    by_chance = first * voted_first + second * (1 - voted_first)
    return (same - by_chance) / (1 - by_chance) if by_chance < 1 else None


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
    compared=the_pair,
    sheet=(
        MeanMetric(name="accuracy", holds=lambda mark: True),
        FormulaMetric(
            name="Cohen's kappa x 100", compute=FormulaOfMeans(each=_choice_and_vote, value=_kappa), bounded=False
        ),
        *map(_flagged, FLAGS),
        *cells_by("subset", ("English", "other languages")),
    ),
    breakdown=("language",),
    modes=(Mode.PAIRWISE, Mode.POINTWISE),
)
