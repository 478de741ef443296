"""The rows that two runs have in common: those with the same texts and the same label.

A run records a hash of the texts of each row of a user's file. Rows of a benchmark are known by their id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tirjudge.counted import counted
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import ExampleMetadata
from tirjudge_harness.items import InputError, as_input_error
from tirjudge_harness.own_data.rows import RATING
from tirjudge_harness.reports.scored import ScoredRun
from tirjudge_harness.run import PlannedExample
from tirjudge_harness.statistics.paired import NO_COMPARISONS, Common, common_of


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonRows:
    """The common comparisons and examples of two runs."""

    common: Common
    """Common comparisons."""
    judged: tuple[list[JudgedExample], list[JudgedExample]]
    """Examples of each run with decisions, without the rows that are left out."""
    left_out: str
    """Number of the rows of both runs that are left out, and why. Empty: none."""


def common_rows_of(first: ScoredRun, second: ScoredRun) -> CommonRows:
    """Return the common comparisons and examples of two runs. Rows of both runs whose texts or labels differ are left out.

    Raises:
        InputError: the runs have no common comparison, or a run has two different scores for one comparison.
    """
    changed, relabeled = different_rows(first, second)
    counts = {"different texts": len(changed), "different labels": len(relabeled)}
    left_out = " and ".join(f"{counted(num, 'row')} with {what}" for what, num in counts.items() if num)
    ignored = changed | relabeled
    marks, others = ([mark for mark in run.marks if mark.outline.id not in ignored] for run in (first, second))
    common = NO_COMPARISONS
    if first.marks or second.marks:
        if left_out and not (marks and others):
            raise InputError(f"{first.place} and {second.place}: nothing to compare, left out: {left_out}")
        with as_input_error(f"{first.place} and {second.place}"):
            common = common_of(marks, others)
    return CommonRows(
        common=common,
        judged=(
            [one for one in first.judged if one.outline.id not in ignored],
            [one for one in second.judged if one.outline.id not in ignored],
        ),
        left_out=left_out,
    )


def different_rows(first: ScoredRun, second: ScoredRun) -> tuple[set[str], set[str]]:
    """Return the ids of the rows of both runs whose texts differ, and of those whose labels alone differ."""
    ours, theirs = _by_id(first), _by_id(second)
    equal = equal_rows(first, second)
    relabeled = {id for id in equal if _label(ours[id].outline) != _label(theirs[id].outline)}
    return (ours.keys() & theirs.keys()) - equal, relabeled


def equal_rows(first: ScoredRun, second: ScoredRun) -> set[str]:
    """Return the ids of the rows that are in both runs with the same texts.

    Ids decide if the rows are those of a benchmark, and for a run and the same run under an attack, which changes the texts.
    """
    ours, theirs = first.manifest, second.manifest
    one, other = _by_id(first), _by_id(second)
    in_both = one.keys() & other.keys()
    if (columns := ours.data.columns) is None or (others := theirs.data.columns) is None:
        return set(in_both)
    if ours.data.sha256 == theirs.data.sha256 or ours.attack != theirs.attack:
        return set(in_both)
    have_hashes = columns.id is None and others.id is None
    return {id for id in in_both if _are_equal(one[id].content, other[id].content, otherwise=have_hashes)}


def records_texts(run: ScoredRun) -> bool:
    """Whether the rows of a run have a hash of their texts. In a run of an older version, only the ids of a file without an
    id column are such hashes."""
    columns = run.manifest.data.columns
    return columns is None or columns.id is None or all(one.content is not None for one in run.planned)


def _are_equal(one: str | None, other: str | None, *, otherwise: bool) -> bool:
    """Whether two rows have the same texts. `otherwise`: the result if a run of an older version has no hash of them."""
    return otherwise if one is None or other is None else one == other


def _by_id(run: ScoredRun) -> Mapping[str, PlannedExample]:
    return {one.outline.id: one for one in run.planned}


def _label(outline: ExampleMetadata) -> tuple[frozenset[int], object]:
    """Return the right responses and the rating of a row."""
    return frozenset(outline.correct), outline.facts.get(RATING)
