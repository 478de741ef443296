"""Read verdicts on the responses of named models, and a table of people's ratings of models.

Verdicts come from a run whose examples name their models in the facts `model_a` and `model_b`, or from a file with the
columns `model_a`, `model_b` and `winner`, as the releases of Chatbot Arena have, and optionally `prompt`. Names of columns
are compared in lower case, without blanks and punctuation, as those of own rows are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tirjudge_harness.benchmark import Row
from tirjudge_harness.examples import models_of
from tirjudge_harness.external import chosen
from tirjudge_harness.items import InputError, as_input_error
from tirjudge_harness.output import is_output
from tirjudge_harness.own_data.labels import plain
from tirjudge_harness.own_data.mapping import listed
from tirjudge_harness.preferences import judged_in, preference_of, preference_of_people
from tirjudge_harness.row_files import is_row_file, read_rows
from tirjudge_harness.statistics.ratings import ArenaScore, Battle
from tirjudge_harness.verdict_table import refuse_table

WINNERS = {
    "model_a": 1.0,
    "model_b": 0.0,
    "tie": 0.5,
    "tie (bothbad)": 0.5,
    "both_bad": 0.5,
    "bothbad": 0.5,
}
"""Values of the column `winner` in releases of Chatbot Arena. `A>B`, `A=B` and `B>A` are read, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Battles:
    """The verdicts of a source."""

    found: list[Battle]
    num_without: int
    """Number of comparisons without a verdict."""
    num_unnamed: int = 0
    """Number of examples that do not name two different models. They are left out."""
    people: list[Battle] = field(default_factory=list)
    """Labels of people on the examples of a run. Empty: the source has none."""


def read_battles(source: Path) -> Battles:
    """Read the verdicts of a run folder, of an output file of `tirjudge judge`, or of a file with columns.

    Raises:
        InputError: the source cannot be read, a column is missing, a row is invalid, or no example names its models.
    """
    refuse_table(source)
    return _of_rows(source) if is_row_file(source) and not is_output(source) else _of_run(source)


def read_arena(path: Path) -> dict[str, ArenaScore]:
    """Read a table of people's ratings: a file with the columns `model` and `score`, and optionally `low` and `high`.

    Raises:
        InputError: the file cannot be read, a column is missing, a row is invalid, or a model has two rows.
    """
    found: dict[str, ArenaScore] = {}
    for place, row in _rows(path, columns=("model", "score")):
        with as_input_error(place):
            name = _name(row, "model")
            if name in found:
                raise ValueError(f"model: {name!r} has two rows; remove one")
            low, high = (_number(row, end) if row.get(end) not in (None, "") else None for end in ("low", "high"))
            score = _number(row, "score")
            if (low is None) != (high is None) or not (low is None or high is None or low <= score <= high):
                raise ValueError(f"low, high: expected both, with low <= score <= high, got {low}, {score}, {high}")
            found[name] = ArenaScore(score=score, interval=None if low is None or high is None else (low, high))
    return found


def _of_run(source: Path) -> Battles:
    found, people, num_without, num_unnamed = [], [], 0, 0
    judged = judged_in(source)
    for one in judged:
        models = models_of(one.outline)
        if models is None or models[0] == models[1]:
            num_unnamed += 1
            continue
        preference, label = preference_of(one), preference_of_people(one.outline)
        num_without += preference is None
        for given, into in ((preference, found), (label, people)):
            if given is not None:
                into.append(Battle(first=models[0], second=models[1], credit=given, cluster=one.outline.cluster))
    if num_unnamed == len(judged):
        raise InputError(
            f"{source}: no example names two models; give a run on your own rows with the columns model_a and model_b (or "
            "--model-a-column and --model-b-column), an output of `tirjudge judge` on such rows, a run of mt-bench-human, "
            "or a CSV file with the columns model_a, model_b and winner"
        )
    return Battles(found=found, num_without=num_without, num_unnamed=num_unnamed, people=people)


def _of_rows(path: Path) -> Battles:
    found, num_without = [], 0
    for number, (place, row) in enumerate(_rows(path, columns=("model_a", "model_b", "winner"))):
        with as_input_error(place):
            first, second = _name(row, "model_a"), _name(row, "model_b")
            winner = row.get("winner")
            if winner in (None, ""):
                num_without += 1
                continue
            prompt = row.get("prompt")
            found.append(
                Battle(
                    first=first,
                    second=second,
                    credit=_credit(str(winner)),
                    cluster=f"row {number}" if prompt in (None, "") else f"prompt {prompt}",
                )
            )
    return Battles(found=found, num_without=num_without)


def _rows(path: Path, *, columns: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """Yield each row, with normalized names of its columns, and its place, for messages.

    Args:
        path: the file.
        columns: names of columns that at least one row must have.

    Raises:
        InputError: the file cannot be read, a row is invalid, or a column is missing.
    """
    rows = list(read_rows(path))
    names = dict.fromkeys(name for one in rows for name in one.row or ())
    if names and (missing := [column for column in columns if column not in map(plain, names)]):
        raise InputError(
            f"{path}: no column {' and no column '.join(missing)}; the columns are {listed(list(names))}; rename the "
            "columns, or add the missing ones"
        )
    for one in rows:
        place = f"{path}, row {one.number}"
        if one.row is None:
            raise InputError(f"{place}: {one.problem}")
        yield place, {plain(name): value for name, value in one.row.items()} | dict(one.row)


def _credit(winner: str) -> float:
    if winner in WINNERS:
        return WINNERS[winner]
    try:
        best = chosen(winner, shown=(0, 1))
        return 0.5 if best is None else 1.0 - best
    except ValueError:
        raise ValueError(f"winner: expected {', '.join(WINNERS)}, A>B, A=B or B>A, got {winner[:40]!r}") from None


def _name(row: Row, column: str) -> str:
    value = row.get(column)
    if not isinstance(value, str) or not value.strip():
        given = "no value" if value is None else repr(str(value)[:40])
        raise ValueError(f"{column}: expected the name of a model, got {given}")
    return value.strip()


def _number(row: Row, column: str) -> float:
    try:
        value = float(row.get(column) or "")
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{column}: expected a number, got {str(row.get(column))[:40]!r}")
    return value
