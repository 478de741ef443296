"""Rank models by the verdicts of a judge, and compare the ranking with people's ratings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tirjudge.counted import counted
from tirjudge_harness.items import InputError, as_input_error
from tirjudge_harness.model_battles import Battles, read_arena, read_battles
from tirjudge_harness.reports.tables import Column, ReportTable, TableEntry, TableRow, percent_of, row
from tirjudge_harness.statistics.ratings import (
    MEAN_RATING,
    MIN_COMMON_MODELS,
    ArenaScore,
    Battle,
    Ratings,
    SystemAgreement,
    agreement_with_arena,
    ratings_of,
    rows_correlation,
)

COLUMNS = (
    Column(key="figure", title="Model", kind="text"),
    Column(key="value", title="Rating (95 %)", kind="number", ends=True),
    Column(key="wins", title="Wins, % (95 %)", ends=True),
    Column(key="num", title="n", kind="count"),
    Column(key="arena", title="People", kind="number", ends=True),
)


ARENA, VOTES = "arena", "people's labels"
"""Names of the two sources of people's ratings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _People:
    """Ratings of people, and the agreement with them."""

    name: str
    """`ARENA` or `VOTES`."""
    scores: Mapping[str, ArenaScore]
    agreement: SystemAgreement


def ranking_table(source: Path, *, arena: Path | None) -> ReportTable:
    """Return the ratings of the models of a run or of a file of verdicts, and their agreement with people's ratings.

    Args:
        source: folder of a run whose examples name their models, or a file of verdicts.
        arena: file with people's ratings. None: people's ratings from the labels of the run, if they rate three models.

    Raises:
        InputError: a file cannot be read, or models cannot be rated or compared.
    """
    battles = read_battles(source)
    with as_input_error(source):
        ratings = ratings_of(battles.found)
    notes = [
        f"{len(battles.found):,} verdicts on {ratings.num_clusters:,} prompts; {battles.num_without:,} without a verdict."
    ]
    if battles.num_unnamed:
        notes.append(f"{battles.num_unnamed:,} examples left out, because they do not name two different models.")
    notes += _uncertain(ratings)
    people = None
    try:
        people = _of_arena(ratings, arena) if arena is not None else _of_labels(ratings, battles.people)
    except ImportError:
        if arena is not None:
            raise InputError("--arena needs scipy: pip install 'tirjudge[bench]'") from None
        notes.append("Agreement with people's labels needs scipy: pip install 'tirjudge[bench]'.")
    except InputError as error:
        if arena is not None:
            raise
        notes.append(f"No agreement with people's labels: {error}.")
    if people is not None and people.agreement.missing:
        where = arena if arena is not None else VOTES
        notes.append(f"Not in {where}: {', '.join(people.agreement.missing)}.")
    return ReportTable(
        title=f"{source.name}: {counted(len(ratings.models), 'model')}",
        columns=COLUMNS,
        rows=(
            *_models(ratings, {} if people is None else people.scores),
            *_figures(ratings, people),
            *_rows_figure(battles),
        ),
        notes=(*notes, *_READING),
    )


def _of_arena(ratings: Ratings, path: Path) -> _People:
    scores = read_arena(path)
    with as_input_error(path):
        return _People(name=ARENA, scores=scores, agreement=agreement_with_arena(ratings, scores))


def _of_labels(ratings: Ratings, labels: Sequence[Battle]) -> _People | None:
    """Return the ratings by the labels of people. None: there are no labels, or fewer than three models.

    Raises:
        InputError: the labels do not rate the models.
    """
    if not labels or len(ratings.models) < MIN_COMMON_MODELS:
        return None
    with as_input_error():
        found = ratings_of(labels)
        # Ratings of models with equal results differ in their last digits.
        scores = {
            one.name: ArenaScore(
                score=round(one.rating, 6),
                interval=one.interval,
                group=None if one.interval is None else one.group,
            )
            for one in found.models
        }
        return _People(name=VOTES, scores=scores, agreement=agreement_with_arena(ratings, scores))


_READING = (
    f"Rating: Bradley-Terry in Elo points, mean {MEAN_RATING:.0f}; a tie is half a win for each. Intervals: bootstrap over "
    "prompts.",
    "Separability: share of pairs of models whose intervals do not overlap. Agreement with confidence: mean over pairs of 1 "
    "if both tables separate the pair in the same order, -1 in opposite orders, 0 otherwise (arXiv:2406.11939).",
    "Pair rank Brier score: mean squared error of the share of resamples in which a model is above another; 0 is best. "
    "Row-wise Pearson: mean over models of the correlation of their win rates against each opponent.",
)


def _uncertain(ratings: Ratings) -> Iterator[str]:
    """Yield notes on the models without an interval, and on the pairs that intervals do not compare. Nothing: there are none,
    or the verdicts are on one prompt."""
    if ratings.num_clusters < 2:
        return
    if without := [one.name for one in ratings.models if one.interval is None]:
        yield (
            f"No interval for {', '.join(without)}: only wins, only losses or only ties, directly or through other models, "
            "or equal ratings in all resamples."
        )
    num_pairs = math.comb(len(ratings.models), 2)
    if num_left_out := num_pairs - len(ratings.compared):
        yield (
            f"Separability and agreement with confidence leave out {num_left_out:,} of {counted(num_pairs, 'pair')} of "
            "models: one has no interval, or never won or tied against the other, directly or through other models."
        )


def _models(ratings: Ratings, people: Mapping[str, ArenaScore]) -> Iterator[TableRow]:
    for one in ratings.models:
        known = people.get(one.name)
        arena = TableEntry() if known is None else TableEntry(value=known.score, interval=known.interval)
        rating = TableEntry(value=one.rating, interval=one.interval)
        yield row(one.name, rating, percent_of(one.wins), one.wins.num, arena, ours=True)


def _figures(ratings: Ratings, people: _People | None) -> Iterator[TableRow]:
    if (apart := ratings.separability) is not None:
        yield _figure("separability, %", TableEntry(value=100 * apart, kind="percent"))
    if people is None:
        return
    agreement = people.agreement
    for name, found in (("Spearman's correlation", agreement.spearman), ("Kendall's tau-b", agreement.kendall)):
        yield _figure(
            f"{name} with {people.name}", TableEntry(value=found.value, interval=found.interval), num=found.num
        )
    pairs = replace(percent_of(agreement.pairs), kind="percent")
    yield _figure(f"pairs of models in the order of {people.name}, %", pairs, num=agreement.pairs.num)
    if agreement.with_confidence is not None:
        entry = TableEntry(value=100 * agreement.with_confidence, kind="percent")
        yield _figure("agreement with confidence, %", entry, num=agreement.spearman.num)
    if agreement.brier is not None:
        yield _figure("pair rank Brier score", TableEntry(value=agreement.brier), num=agreement.spearman.num)


def _rows_figure(battles: Battles) -> Iterator[TableRow]:
    """Yield the row-wise correlation with the labels of people on the same examples, if it has a value."""
    found = rows_correlation(battles.found, battles.people)
    if found.value is not None:
        yield _figure(f"row-wise Pearson with {VOTES}", TableEntry(value=found.value), num=found.num)


def _figure(name: str, entry: TableEntry, *, num: int | None = None) -> TableRow:
    return row(name, entry, None, num, None, ours=True)
