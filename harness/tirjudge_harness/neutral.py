"""The layout that all benchmarks share, besides the columns of their own: `{id, prompt, responses, label, subset, meta}`.

`label` is the index of the right response. Where several are right it is null, and `meta.correct` says which: their
indexes, or true and false, one a response. `meta.cluster` names the prompt that several rows have in common.
"""

from __future__ import annotations

from typing import Any

from tirjudge.types import MAX_RESPONSES
from tirjudge_harness.benchmark import Row
from tirjudge_harness.columns import conversation, items, name, record, text, texts, whole
from tirjudge_harness.examples import Example, example

COLUMNS = ("id", "prompt", "responses")
TAGS = ("difficulty", "domain", "language", "level", "model", "response_model", "source", "split")
"""Of `meta`: what tables can be broken down by."""


def is_neutral(row: Row) -> bool:
    """Whether a row has this layout."""
    return all(column in row for column in COLUMNS)


def neutral_example(row: Row) -> Example:
    """The example of a row.

    Raises:
        ValueError, KeyError: the row is broken.
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
    """What a row says besides; empty: nothing."""
    return record(row, column) if row.get(column) is not None else {}


def check(made: Example) -> None:
    """That an example can be judged and scored.

    Raises:
        ValueError: it cannot.
    """
    given = len(made.responses)
    if not 1 <= given <= MAX_RESPONSES:
        raise ValueError(f"{given} responses given, 1 to {MAX_RESPONSES} wanted")
    if not made.outline.correct:
        raise ValueError("no response is said to be right")


def _correct(row: Row, meta: Row, *, num_responses: int) -> tuple[int, ...]:
    if meta.get("correct") is None:
        if row.get("label") is None:
            raise ValueError("no response is said to be right: label is null, and there is no meta.correct")
        return (whole(row, "label"),)
    given = items(meta, "correct")
    if given and all(isinstance(value, bool) for value in given):
        if len(given) != num_responses:
            raise ValueError(f"meta.correct: {len(given)} given, one for each of {num_responses} responses wanted")
        return tuple(index for index, is_right in enumerate(given) if is_right)
    places = {f"meta.correct[{place}]": value for place, value in enumerate(given)}
    return tuple(whole(places, place) for place in places)
