"""Convert the rows of a user's file to examples, by the mapping of its columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from tirjudge.types import MAX_RESPONSES, ChatMessage, label_of
from tirjudge.verdict import TIED
from tirjudge_harness.benchmark import Row
from tirjudge_harness.columns import id_of
from tirjudge_harness.examples import Example, example, model_facts
from tirjudge_harness.external import EVEN
from tirjudge_harness.neutral import neutral_example
from tirjudge_harness.own_data.cells import Reply, is_empty, prompt_in, replies_in, text_in
from tirjudge_harness.own_data.conversations import Conversation, prompt_and_responses
from tirjudge_harness.own_data.labels import comma_advice, label_value, majority, rating_of
from tirjudge_harness.own_data.mapping import TIE, ColumnMapping

RATERS = "raters"
"""Key in `facts`: the label of each rater, in the order of the columns. An index, `TIED` or a rating; null: no label."""

RATING = "rating"
"""Key in `facts`: the mean rating of the response."""

ROW = "row"
"""Key in `facts`: number of the row in the file."""


def own_example(row: Row, *, columns: ColumnMapping, number: int, needs_label: bool = True) -> Example | None:
    """Convert a row to an example. None: the row has no label, no right or no wrong response, and it needs them.

    An example whose label is a tie has no right response, and `EVEN` in its facts.

    Args:
        row: cells of the row by column.
        columns: the meaning of the columns.
        number: number of the row in the file.
        needs_label: whether a row without a label has no example. False: its example has no right response.

    Raises:
        ValueError, KeyError: the row is invalid. The message names the column.
    """
    if columns.layout == "neutral":
        found = neutral_example(row)
        has_both = 0 < len(set(found.outline.correct)) < found.outline.num_responses
        return _with_facts(found, {ROW: number}) if has_both or not needs_label else None
    prompt, responses, num_chosen = _texts(row, columns)
    if columns.layout == "chosen_rejected":
        return _example(
            row,
            columns,
            prompt=prompt,
            responses=responses,
            correct=range(num_chosen),
            facts={ROW: number},
        )
    if columns.layout == "rated":
        ratings = [_rating(row, column, values=columns.label_values) for column in columns.labels]
        known = [rating for rating in ratings if rating is not None]
        if not known and needs_label:
            return None
        facts = {ROW: number, **({RATING: fmean(known)} if known else {}), **_raters(ratings)}
        return _example(row, columns, prompt=prompt, responses=responses, correct=(), facts=facts)
    votes = [_vote(row, column, values=columns.label_values, num_responses=len(responses)) for column in columns.labels]
    winner = majority(votes)
    if winner is None and needs_label:
        return None
    facts = {ROW: number, **({EVEN: True} if winner == TIED else {}), **_raters(votes)}
    correct = () if winner is None or winner == TIED else (winner,)
    return _example(row, columns, prompt=prompt, responses=responses, correct=correct, facts=facts)


def label_in(one: Example) -> tuple[Any, ...]:
    """Return what a row says about the responses: the right ones, whether it is a tie, its rating and its raters' labels."""
    return one.outline.correct, *(one.outline.facts.get(key) for key in (EVEN, RATING, RATERS))


def _texts(row: Row, columns: ColumnMapping) -> tuple[str | Conversation, tuple[str, ...], int]:
    """Return the prompt, the responses, and the number of responses in the column `chosen`."""
    names = columns.response_columns
    cells = [replies_in(row.get(name), column=name, structured=columns.structured) for name in names]
    if columns.layout == "rated" or len(columns.responses) > 1:
        for name, cell in zip(names, cells, strict=True):
            if len(cell) != 1:
                raise ValueError(f"{name}: expected one response, got a list of {len(cell)}")
    replies = [reply for cell in cells for reply in cell]
    if columns.layout != "rated" and not 2 <= len(replies) <= MAX_RESPONSES:
        raise ValueError(f"{', '.join(names)}: expected 2 to {MAX_RESPONSES} responses, got {len(replies)}")
    before, responses = _split(replies)
    if columns.prompt:
        prompt: Reply = prompt_in(row, columns.prompt, structured=columns.structured)
    elif before:
        prompt = before
    else:
        raise ValueError(f"{', '.join(names)}: no message before the last one; expected conversations")
    return _shortened(prompt), responses, len(cells[0])


def _split(replies: Sequence[Reply]) -> tuple[Conversation, tuple[str, ...]]:
    """Return the common messages of conversations, and the responses. Texts have no common messages."""
    conversations = [reply for reply in replies if not isinstance(reply, str)]
    if not conversations:
        return (), tuple(reply for reply in replies if isinstance(reply, str))
    if len(conversations) < len(replies):
        raise ValueError("some responses are texts and others are conversations")
    return prompt_and_responses(conversations)


def _shortened(prompt: Reply) -> Reply:
    """Return a conversation of a single user message as its text."""
    if not isinstance(prompt, str) and len(prompt) == 1 and prompt[0].role == "user":
        return prompt[0].content
    return prompt


def _vote(row: Row, column: str, *, values: Mapping[str, str], num_responses: int) -> int | None:
    value = _value(row, column)
    if value is None:
        return None
    meaning = values.get(value)
    if meaning is None:
        raise ValueError(f"{column}: the meaning of {value!r} is not known; give --label-value '{value}=A' (or B, tie)")
    if meaning == TIE:
        return TIED
    index = next((index for index in range(num_responses) if label_of(index) == meaning), None)
    if index is None:
        raise ValueError(f"{column}: {value!r} means response {meaning}, but the row has {num_responses} responses")
    return index


def _rating(row: Row, column: str, *, values: Mapping[str, str]) -> float | None:
    value = _value(row, column)
    rating = None if value is None else rating_of(value, given=values)
    if value is not None and rating is None:
        raise ValueError(f"{column}: expected a number, got {value!r}{comma_advice([value])}")
    return rating


def _value(row: Row, column: str) -> str | None:
    try:
        return label_value(row.get(column))
    except ValueError as error:
        raise ValueError(f"{column}: {error}") from None


def _raters(labels: Sequence[float | None]) -> dict[str, Any]:
    return {RATERS: list(labels)} if len(labels) > 1 else {}


def _models(row: Row, columns: ColumnMapping, *, num_responses: int) -> dict[str, str]:
    """Return the facts that name the models of two responses. Empty: a cell is empty, or there are not two responses."""
    if not columns.models or num_responses != 2 or any(is_empty(row.get(name)) for name in columns.models):
        return {}
    return model_facts(*(text_in(row, name).strip() for name in columns.models))


def _example(
    row: Row,
    columns: ColumnMapping,
    *,
    prompt: str | tuple[ChatMessage, ...],
    responses: tuple[str, ...],
    correct: Sequence[int],
    facts: Mapping[str, Any],
) -> Example:
    wrong = {response for index, response in enumerate(responses) if index not in correct}
    if any(responses[index] in wrong for index in correct):
        raise ValueError("the right response equals a wrong one, so no verdict can be right")
    shown = prompt if isinstance(prompt, str) else repr([(message.role, message.content) for message in prompt])
    subset, reference = (
        None if name is None or is_empty(row.get(name)) else text_in(row, name)
        for name in (columns.subset, columns.reference)
    )
    models = _models(row, columns, num_responses=len(responses))
    made = example(
        id=id_of(shown, *responses, *models.values()) if columns.id is None else text_in(row, columns.id),
        prompt=prompt,
        responses=responses,
        correct=tuple(correct),
        subset=subset or "",
        facts={**facts, **models},
    )
    return replace(made, reference=reference)


def _with_facts(made: Example, facts: Mapping[str, Any]) -> Example:
    return replace(made, outline=replace(made.outline, facts={**made.outline.facts, **facts}))
