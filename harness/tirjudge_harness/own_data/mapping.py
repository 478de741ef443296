"""The meaning of the columns of a user's file, as a run records it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from tirjudge_harness.items import InputError
from tirjudge_harness.run_store import StoredModel

Layout = Literal["chosen_rejected", "labeled", "rated", "neutral"]

MAX_NAME = 40
"""Maximum length of the name of a column in messages, in characters."""

MAX_NAMES = 30
"""Maximum number of names in a message."""

TIE = "tie"
"""Meaning of a label value that names several responses as equally good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenColumns:
    """The columns that a user named. Columns that are not given are found by their names."""

    prompt: tuple[str, ...] = ()
    """Columns of the prompt. Several are joined by blank lines."""
    chosen: str | None = None
    rejected: str | None = None
    responses: tuple[str, ...] = ()
    """One column per response, or one column with lists of responses."""
    labels: tuple[str, ...] = ()
    """One column per rater."""
    label_values: Mapping[str, str] | None = None
    """Value of a label -> its meaning: a letter such as `A`, `tie`, or a number for a rating."""
    id: str | None = None
    subset: str | None = None
    reference: str | None = None
    model_a: str | None = None
    """Column with the name of the model that wrote the first response."""
    model_b: str | None = None

    @property
    def used(self) -> list[str]:
        """All given columns."""
        single = (self.chosen, self.rejected, self.id, self.subset, self.reference, self.model_a, self.model_b)
        return [*self.prompt, *self.responses, *self.labels, *(name for name in single if name is not None)]

    @property
    def layout_options(self) -> list[str]:
        """The given options that determine the layout."""
        given = {"--chosen-column": self.chosen, "--rejected-column": self.rejected}
        given |= {"--response-column": self.responses or None, "--label-column": self.labels or None}
        return [name for name, value in given.items() if value is not None]


class ColumnMapping(StoredModel):
    """The meaning of the columns of a file."""

    layout: Layout
    """`chosen_rejected`: a right and a wrong response. `labeled`: several responses, and labels that name the best one.
    `rated`: one response with a numeric rating. `neutral`: the common row layout of `tirjudge_harness.neutral`."""
    prompt: tuple[str, ...] = ()
    """Columns of the prompt. Empty: the messages before the last one of each response, which is a conversation."""
    chosen: str | None = None
    """Column of the right responses. None: the layout has none; also for `rejected`."""
    rejected: str | None = None
    responses: tuple[str, ...] = ()
    """Columns of the responses; in the layout `labeled`, a single column has lists of responses."""
    labels: tuple[str, ...] = ()
    """Columns of the labels, one per rater."""
    label_values: dict[str, str] = Field(default_factory=dict)
    """Normalized value of a label -> its meaning: a letter, `tie`, or a number. Empty: ratings are numbers."""
    structured: tuple[str, ...] = ()
    """Columns whose texts are read as JSON lists or transcripts. Texts of other columns are not parsed."""
    id: str | None = None
    """Column of the ids. None: an id is a hash of the texts."""
    subset: str | None = None
    """Column of the subsets. None: no subsets."""
    reference: str | None = None
    """Column of the reference answers. None: no references."""
    models: tuple[str, ...] = ()
    """Two columns: the models that wrote the first and the second response. Empty: the models are not named."""

    @property
    def response_columns(self) -> tuple[str, ...]:
        """The columns of the right and the wrong responses, or those of all responses."""
        return self.responses or tuple(name for name in (self.chosen, self.rejected) if name is not None)

    @property
    def used(self) -> list[str]:
        """All columns of the mapping."""
        given = [name for name in (self.id, self.subset, self.reference) if name is not None]
        return [*self.prompt, *self.response_columns, *self.labels, *given, *self.models]


def label_values_of(options: Sequence[str]) -> dict[str, str] | None:
    """Return value -> meaning of options such as `left=A`; None: no options.

    Raises:
        InputError: an option has another form.
    """
    values: dict[str, str] = {}
    for option in options:
        value, equals, meaning = option.rpartition("=")
        meaning = meaning.strip()
        is_letter = meaning.isascii() and meaning.isalpha() and meaning.isupper()
        if not (equals and value and (is_letter or meaning == TIE or _is_number(meaning))):
            raise InputError(
                f"--label-value: expected VALUE=A (another letter, {TIE}, or a number for a rating), got {option!r}"
            )
        values[value] = meaning
    return values or None


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def lists_are_texts(columns: Sequence[str]) -> str:
    """Return a note about columns in which each JSON list is one response."""
    return (
        f"each JSON list in {listed(columns)} is read as the text of one response; for lists of responses, use a column "
        "`responses`, or lists in a .jsonl file"
    )


def listed(names: Sequence[object]) -> str:
    """Return names for a message, quoted and separated by commas. Long names and long lists are cut."""
    shown = [repr(text if len(text) <= MAX_NAME else f"{text[:MAX_NAME]}…") for text in map(str, names[:MAX_NAMES])]
    more = [f"{len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else []
    return ", ".join([*shown, *more])
