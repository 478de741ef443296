"""Read people's labels of the examples of a run: preferences between two responses, or scores.

A row has the `id` of an example and a `label` of two responses, with the values of a user's own rows (`own_data.labels`), or
a `score` with an optional `response` (index, default 0). A row without a label and a score is left out. Names of columns may
be in upper case. Several rows on one example are labels of several people.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Literal, get_args

from tirjudge_harness.benchmark import Row
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.items import InputError, as_input_error
from tirjudge_harness.own_data.labels import label_value, meanings_of
from tirjudge_harness.preferences import preference_in
from tirjudge_harness.row_files import read_rows

Kind = Literal["label", "score"]
"""Column of the labels of a file."""

_COLUMNS = "expected the columns id and label (A>B, A=B, B>A), or id, score and optionally response"


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanLabels:
    """Labels of a file. Each is the mean over the people who labeled the example."""

    kind: Literal["preference", "score"]
    """`preference`: 1 if the first of two responses is better, 0 if the second is, 0.5 for a tie."""
    values: Mapping[tuple[str, int], float]
    """Example id and response -> label. The response of a preference is 0."""
    num_rows: int
    """Number of labels, with all people."""

    @property
    def responses(self) -> list[int]:
        """The responses that have labels, as indexes in ascending order."""
        return sorted({response for _, response in self.values})

    def check(self, judged: Sequence[JudgedExample], *, path: Path, hint: str = "") -> None:
        """Check that the labels are about these examples.

        Args:
            judged: the examples.
            path: the file of labels.
            hint: end of the message about an unknown id.

        Raises:
            InputError: an id is unknown, or the example does not have the labeled response.
        """
        outlines = {one.outline.id: one.outline for one in judged}
        unknown = [id for id, _ in self.values if id not in outlines]
        if unknown:
            raise InputError(
                f"{path}: unknown id {unknown[0]!r} ({len(set(unknown))} unknown of {len({id for id, _ in self.values})}); "
                f"ids of the {len(outlines)} examples look like {', '.join(map(repr, islice(outlines, 3)))}{hint}"
            )
        for id, response in self.values:
            num = outlines[id].num_responses
            if self.kind == "preference" and num != 2:
                raise InputError(f"{path}: {id!r} has {num} responses; label is for two, so give score and response")
            if response >= num:
                raise InputError(f"{path}: response {response} of {id!r} does not exist; it has {num}, counted from 0")


def read_labels(path: Path) -> HumanLabels:
    """Read a file of labels: `.csv`, `.json`, `.jsonl` or `.parquet`, optionally with `.gz`.

    Raises:
        InputError: the file cannot be read, a row is invalid, rows have labels and scores, or no row has one.
    """
    rows = _filled_rows(path)
    kind: Kind = "label" if _is_filled(rows[0].row, "label") else "score"
    counted = Counter(value for one in rows if (value := label_value(one.row.get("label"))) is not None)
    meanings = meanings_of(counted, columns=(), num_responses=2, label_column="label", given={})
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for one in rows:
        with as_input_error(one.place):
            if not _is_filled(one.row, kind):
                raise ValueError(f"{_COLUMNS}; the file has labels and scores")
            if kind == "label":
                response, value = 0, preference_in(_text(one.row, "label"), meanings=meanings)
            else:
                response, value = _scored(one.row)
        found[_text(one.row, "id"), response].append(value)
    return HumanLabels(
        kind="preference" if kind == "label" else "score",
        values={key: fmean(values) for key, values in found.items()},
        num_rows=len(rows),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _FilledRow:
    """A row with a label or a score."""

    place: str
    """The file and the number of the row, for messages."""
    row: Row
    """Cells by name of the column, in lower case."""


def _filled_rows(path: Path) -> list[_FilledRow]:
    """Return the rows with a label or a score.

    Raises:
        InputError: the file cannot be read, a row is invalid or has no id, or no row has a label or a score.
    """
    found: list[_FilledRow] = []
    names: dict[str, None] = {}
    for one in read_rows(path):
        place = f"{path}, row {one.number}"
        if one.row is None:
            raise InputError(f"{place}: {one.problem}")
        row = {str(name).strip().lower(): value for name, value in one.row.items()}
        names |= dict.fromkeys(row)
        with as_input_error(place):
            filled = [kind for kind in get_args(Kind) if _is_filled(row, kind)]
            if filled and not _text(row, "id"):
                raise ValueError(f"{_COLUMNS}; the row has no id")
            if len(filled) > 1:
                raise ValueError(f"{_COLUMNS}; the row has a label and a score")
        if filled:
            found.append(_FilledRow(place=place, row=row))
    if not found:
        columns = [kind for kind in get_args(Kind) if kind in names]
        given = f"no row has a value in {' or '.join(columns)}" if columns else f"got {', '.join(names)}"
        raise InputError(f"{path}: {_COLUMNS}; {given}")
    return found


def _is_filled(row: Row, kind: Kind) -> bool:
    """Whether a row has a label or a score.

    Raises:
        ValueError: the label is a list, an object, or a long text.
    """
    return bool(_text(row, "score")) if kind == "score" else label_value(row.get("label")) is not None


def _scored(row: Row) -> tuple[int, float]:
    """Return the response and the score of a row.

    Raises:
        ValueError: one of them is invalid.
    """
    response = _text(row, "response") or "0"
    if not response.isdecimal() or len(response) > 4:
        raise ValueError(f"response: expected an index, counted from 0, got {response[:40]!r}")
    try:
        score = float(_text(row, "score"))
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise ValueError(f"score: expected a number, got {_text(row, 'score')[:40]!r}")
    return int(response), score


def _text(row: Row, name: str) -> str:
    """Return a cell as text; empty if there is none."""
    value = row.get(name)
    return "" if value is None else str(value).strip()
