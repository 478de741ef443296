"""Rank models by the verdicts of a judge, and compare the ranking with people's ratings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from tirjudge_harness.items import InputError, as_input_error
from tirjudge_harness.model_battles import read_arena, read_battles
from tirjudge_harness.reports.tables import Column, ReportTable, TableEntry, TableRow, percent_of, row
from tirjudge_harness.statistics.ratings import (
    MEAN_RATING,
    ArenaScore,
    Ratings,
    SystemAgreement,
    agreement_with_arena,
    ratings_of,
)

COLUMNS = (
    Column(key="figure", title="Model", kind="text"),
    Column(key="value", title="Rating (95 %)", kind="number", ends=True),
    Column(key="wins", title="Wins, % (95 %)", ends=True),
    Column(key="num", title="n", kind="count"),
    Column(key="arena", title="Arena", kind="number", ends=True),
)


def ranking_table(source: Path, *, arena: Path | None) -> ReportTable:
    """Return the ratings of the models of a run or of a file of verdicts, and their agreement with people's ratings.

    Args:
        source: folder of a run whose examples name their models, or a file of verdicts.
        arena: file with people's ratings. None: no comparison.

    Raises:
        InputError: a file cannot be read, or models cannot be rated or compared.
    """
    battles = read_battles(source)
    with as_input_error(source):
        ratings = ratings_of(battles.found)
    people = {} if arena is None else read_arena(arena)
    agreement = None if arena is None else _agreement(ratings, people, path=arena)
    notes = [
        f"{len(battles.found):,} verdicts on {ratings.num_clusters:,} prompts; {battles.num_without:,} without a verdict."
    ]
    if battles.num_unnamed:
        notes.append(f"{battles.num_unnamed:,} examples left out, because they do not name two different models.")
    if agreement is not None and agreement.missing:
        notes.append(f"Not in {arena}: {', '.join(agreement.missing)}.")
    return ReportTable(
        title=f"{source.name}: {len(ratings.models)} models",
        columns=COLUMNS,
        rows=(*_models(ratings, people), *_figures(ratings, agreement)),
        notes=(*notes, *_READING),
    )


_READING = (
    f"Rating: Bradley-Terry in Elo points, mean {MEAN_RATING:.0f}; a tie is half a win for each. Intervals: bootstrap over "
    "prompts.",
    "Separability: share of pairs of models whose intervals do not overlap. Agreement with confidence: mean over pairs of 1 "
    "if both tables separate the pair in the same order, -1 in opposite orders, 0 otherwise (arXiv:2406.11939).",
)


def _models(ratings: Ratings, people: Mapping[str, ArenaScore]) -> Iterator[TableRow]:
    for one in ratings.models:
        known = people.get(one.name)
        arena = TableEntry() if known is None else TableEntry(value=known.score, interval=known.interval)
        rating = TableEntry(value=one.rating, interval=one.interval)
        yield row(one.name, rating, percent_of(one.wins), one.wins.num, arena, ours=True)


def _figures(ratings: Ratings, agreement: SystemAgreement | None) -> Iterator[TableRow]:
    if (apart := ratings.separability) is not None:
        yield _figure("separability, %", TableEntry(value=100 * apart, kind="percent"))
    if agreement is None:
        return
    for name, found in (
        ("Spearman's correlation with arena", agreement.spearman),
        ("Kendall's tau-b with arena", agreement.kendall),
    ):
        yield _figure(name, TableEntry(value=found.value, interval=found.interval), num=found.num)
    pairs = replace(percent_of(agreement.pairs), kind="percent")
    yield _figure("pairs of models in the order of arena, %", pairs, num=agreement.pairs.num)
    if agreement.with_confidence is not None:
        entry = TableEntry(value=100 * agreement.with_confidence, kind="percent")
        yield _figure("agreement with confidence, %", entry, num=agreement.spearman.num)


def _figure(name: str, entry: TableEntry, *, num: int | None = None) -> TableRow:
    return row(name, entry, None, num, None, ours=True)


def _agreement(ratings: Ratings, people: Mapping[str, ArenaScore], *, path: Path) -> SystemAgreement:
    try:
        with as_input_error(path):
            return agreement_with_arena(ratings, people)
    except ImportError:
        raise InputError("--arena needs scipy: pip install 'tirjudge[bench]'") from None
