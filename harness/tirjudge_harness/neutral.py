"""The common row layout, which every benchmark accepts besides its official columns:
`{id, prompt, responses, label, subset, meta}`.

`label` is the index of the right response. If several responses are right, `label` is null and `meta.correct` is the list
of their indexes, or one boolean per response. `meta.cluster` identifies the prompt that several rows share.
"""

from __future__ import annotations

from typing import Any

from tirjudge.types import MAX_RESPONSES
from tirjudge_harness.benchmark import Row
from tirjudge_harness.columns import conversation, items, name, record, text, texts, whole
from tirjudge_harness.examples import Example, example

COLUMNS = ("id", "prompt", "responses")
TAGS = ("difficulty", "domain", "language", "level", "model", "response_model", "source", "split")
"""Keys of `meta` that become tags of the example."""


def is_neutral(row: Row) -> bool:
    """Whether a row has the common layout."""
    return all(column in row for column in COLUMNS)


def neutral_example(row: Row) -> Example:
    """Convert a row to an example.

    Raises:
        ValueError, KeyError: the row is invalid.
    """
    meta = meta_of(row)
    responses = texts(row, "responses")
    subset = row.get("subset")
    return example(
        id=name(row, "id"),
        prompt=conversation(row, "prompt"),
        responses=responses,
        correct=_correct(row, meta, num_responses=len(responses)),
        subset="" if subset is None else text(row, "subset"),
        cluster=None if meta.get("cluster") is None else name(meta, "cluster"),
        tags={tag: name(meta, tag) for tag in TAGS if isinstance(meta.get(tag), str | int)},
    )


def meta_of(row: Row, column: str = "meta") -> dict[str, Any]:
    """Return the object in the column `meta`. Empty if the column is null or missing."""
    return record(row, column) if row.get(column) is not None else {}


def check(made: Example) -> None:
    """Check that an example can be judged and scored.

    Raises:
        ValueError: the number of responses is out of range, or none of several responses is right.
    """
    given = len(made.responses)
    if not 1 <= given <= MAX_RESPONSES:
        raise ValueError(f"expected 1 to {MAX_RESPONSES} responses, got {given}")
    if not made.outline.correct and given > 1:
        raise ValueError("no response is marked as right")


def _correct(row: Row, meta: Row, *, num_responses: int) -> tuple[int, ...]:
    if meta.get("correct") is None:
        if row.get("label") is None:
            raise ValueError("no response is marked as right: label and meta.correct are missing")
        return (whole(row, "label"),)
    given = items(meta, "correct")
    if given and all(isinstance(value, bool) for value in given):
        if len(given) != num_responses:
            raise ValueError(f"meta.correct: expected {num_responses} values, one per response, got {len(given)}")
        return tuple(index for index, is_right in enumerate(given) if is_right)
    places = {f"meta.correct[{place}]": value for place, value in enumerate(given)}
    return tuple(whole(places, place) for place in places)
