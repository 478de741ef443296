"""AlpacaEval human agreement: pairs of answers with the votes of four people each.

The agreement of a judge is its expected agreement with the majority of the four votes. If the votes are even, the official
program draws the majority; here the expected value is taken. The ceiling is the agreement of one person with the majority of
the other three. Pairs with fewer than four votes are left out, and of more votes the first four count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from statistics import fmean

from tirjudge.verdict import TIED
from tirjudge_harness.benchmark import Benchmark, HubSource, Row
from tirjudge_harness.benchmarks.human_votes import (
    VOTES,
    agreement_with_majority,
    choice_of_judge,
    joined,
    the_pair,
    voted,
)
from tirjudge_harness.columns import id_of, text
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import Example
from tirjudge_harness.metric_tree import FormulaMetric

NUM_VOTES = 4
PREFERENCES = {1: 0, 2: 1, 1.5: TIED, 0: TIED}
"""Preference in the data -> vote."""

REVISION = "7253f4f440699890dfa4059b7aeed3f1463c0147"
FILE = "alpaca_farm_human_crossannotations.json"


def examples(row: Row, part: str) -> Iterator[Example]:
    """Convert a vote to one example."""
    preference = row["preference"]
    if isinstance(preference, bool) or not isinstance(preference, int | float) or preference not in PREFERENCES:
        raise ValueError(f"preference: expected 1, 2, or 0 or 1.5 for a tie, got {preference!r}")
    instruction, outputs = text(row, "instruction"), (text(row, "output_1"), text(row, "output_2"))
    yield voted(
        id=id_of(instruction, *outputs),
        prompt=instruction,
        responses=outputs,
        vote=PREFERENCES[preference],
        subset=part,
    )


def human_agreement(judged: Sequence[JudgedExample]) -> float | None:
    """Return the mean agreement of the judge with the majority of four votes; None without a pair of four votes."""
    return _mean([agreement_with_majority(choice_of_judge(one), _four(one)) for one in judged if _four(one)])


def ceiling(judged: Sequence[JudgedExample]) -> float | None:
    """Return the mean agreement of one vote with the majority of the other three; None without a pair of four votes."""
    return _mean(
        [
            agreement_with_majority(vote, others)
            for votes in map(_four, judged)
            for vote, others in zip(reversed(votes), combinations(votes, NUM_VOTES - 1), strict=True)
        ]
    )


def _four(judged: JudgedExample) -> list[int]:
    """Return the first four votes; no vote if there are fewer."""
    votes = judged.outline.facts[VOTES][:NUM_VOTES]
    return votes if len(votes) == NUM_VOTES else []


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


BENCHMARK = Benchmark(
    name="alpacaeval-human",
    title="AlpacaEval human agreement",
    citation="arXiv:2305.14387",
    # The repository has a loading script, which `datasets` does not support, so the file is named.
    sources={
        "crossannotations": HubSource(
            id="json",
            split="train",
            files=f"hf://datasets/tatsu-lab/alpaca_eval@{REVISION}/{FILE}",
            revision=REVISION,
            license="CC-BY-NC-4.0",
        )
    },
    columns=("instruction", "output_1", "output_2", "preference"),
    examples=examples,
    joined=joined,
    compared=the_pair,
    sheet=(
        FormulaMetric(name="human agreement", compute=human_agreement),
        FormulaMetric(name="agreement of humans", compute=ceiling),
    ),
)
