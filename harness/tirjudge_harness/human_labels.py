"""Read people's labels of the examples of a run: preferences between two responses, or scores.

A row has the `id` of an example and a `label` ("A>B", "A=B", "B>A", a letter, or the index of the preferred response), or a
`score` with an optional `response` (index, default 0). Names of columns may be in upper case. Several rows on one example are
labels of several people.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Literal

from tirjudge_harness.benchmark import Row
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.items import InputError, as_input_error
from tirjudge_harness.preferences import preference_in
from tirjudge_harness.row_files import read_rows

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

    def check(self, judged: Sequence[JudgedExample], *, path: Path) -> None:
        """Check that the labels are about these examples.

        Raises:
            InputError: an id is unknown, or the example does not have the labeled response.
        """
        outlines = {one.outline.id: one.outline for one in judged}
        unknown = [id for id, _ in self.values if id not in outlines]
        if unknown:
            raise InputError(
                f"{path}: unknown id {unknown[0]!r} ({len(set(unknown))} unknown of {len({id for id, _ in self.values})}); "
                f"ids of the {len(outlines)} examples look like {', '.join(map(repr, islice(outlines, 3)))}"
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
        InputError: the file cannot be read, a row is invalid, or rows have different columns.
    """
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    columns: Set[str] = set()
    for one in read_rows(path):
        place = f"{path}, row {one.number}"
        if one.row is None:
            raise InputError(f"{place}: {one.problem}")
        row = {str(name).strip().lower(): value for name, value in one.row.items()}
        given = {"label", "score"} & {name for name in row if _text(row, name)}
        if len(given) != 1 or not _text(row, "id") or (columns and given != columns):
            raise InputError(f"{place}: {_COLUMNS}; got {', '.join(map(str, one.row))}")
        columns = given
        with as_input_error(place):
            response, value = _value(row, is_preference="label" in given)
        found[_text(row, "id"), response].append(value)
    return HumanLabels(
        kind="preference" if "label" in columns else "score",
        values={key: fmean(values) for key, values in found.items()},
        num_rows=sum(map(len, found.values())),
    )


def _value(row: Row, *, is_preference: bool) -> tuple[int, float]:
    """Return the response and the label of a row.

    Raises:
        ValueError: one of them is invalid.
    """
    if is_preference:
        return 0, preference_in(_text(row, "label"))
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
