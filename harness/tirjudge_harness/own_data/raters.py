"""Agreement of the raters of a user's file with each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from tirjudge_harness.examples import ExampleMetadata
from tirjudge_harness.own_data.mapping import ColumnMapping
from tirjudge_harness.own_data.rows import RATERS
from tirjudge_harness.statistics.agreement import Agreement, agreement_of

MAX_RATERS = 8
"""Maximum number of raters that are compared in pairs. Further raters are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaterPair:
    """The agreement of two raters."""

    first: str
    """Column of the labels of a rater."""
    second: str
    are_ratings: bool
    """Whether the labels are numbers; kappa then has quadratic weights."""
    agreement: Agreement
    """A tie is a category. Examples that one of the two did not label are left out."""


def rater_pairs_of(columns: ColumnMapping | None, outlines: Sequence[ExampleMetadata]) -> Iterator[RaterPair]:
    """Yield the agreement of each pair of raters. Nothing for a file with one rater.

    Args:
        columns: the meaning of the columns. None: the rows of a benchmark, which have no raters.
        outlines: the examples, including those whose raters disagree.
    """
    if columns is None or len(columns.labels) < 2:
        return
    clusters = [outline.cluster for outline in outlines]
    labels = [outline.facts[RATERS] for outline in outlines]
    are_ratings = columns.layout == "rated"
    for first, second in combinations(range(min(len(columns.labels), MAX_RATERS)), 2):
        yield RaterPair(
            first=columns.labels[first],
            second=columns.labels[second],
            are_ratings=are_ratings,
            agreement=agreement_of(
                [given[first] for given in labels],
                [given[second] for given in labels],
                clusters=clusters,
                weights="quadratic" if are_ratings else None,
            ),
        )
