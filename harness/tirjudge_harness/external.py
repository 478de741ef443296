"""Read verdicts that another program made, from a file with lines such as

    {"id": "q7", "decisions": ["A>B", "B>A"]}
    {"id": "q8", "decisions": ["A>>B", null], "label": "B>A", "subset": "math"}
    {"id": "q9", "decisions": ["C"]}
    {"id": "q10", "scores": [7, 3.5, null]}

Each decision uses the labels that the judge saw: A is the response that was shown first. By default, the first decision is
about the listed order of the responses, the second about the reversed order, the third about the listed order, and so on.
`shown` gives other orders: `[[0, 3], [3, 0]]` are the response indexes for each decision. `A>>B` equals `A>B`, `A=B` is a
tie, and null means no verdict. `scores` has one score for each response in the listed order; null means no verdict. Scores
are compared as they are, without rounding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError, model_validator

from tirjudge.http.protocol import parse_json, problem_of
from tirjudge.right import Decision
from tirjudge.types import MAX_RESPONSES, Mode, label_of
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import ExampleMetadata
from tirjudge_harness.items import InputError, as_input_error, numbered_lines

Indexes = Annotated[list[Annotated[StrictInt, Field(ge=0)]], Field(min_length=2)]
Score = Annotated[float, Field(strict=True, allow_inf_nan=False)]

_DECISION = re.compile(r"([A-Z]+)(?:\s*(>{1,2}|=)\s*([A-Z]+))?")
"""A decision without surrounding brackets and spaces."""
_FORMS = '"A>B", "A>>B", "A=B", a letter such as "C", or null'

EVEN = "even"
"""Key in `facts` of an example whose label is a tie."""


class ExternalLine(BaseModel):
    """One line of the file. Unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: StrictStr | StrictInt
    decisions: list[StrictStr | None] | None = None
    """One decision per presentation of the responses to the judge. Each uses the labels of its presentation."""
    scores: list[Score | None] | None = None
    """One score per response."""
    shown: list[Indexes] | None = None
    """Response indexes of each presentation, in the order shown. None: the listed and the reversed order alternate."""
    label: StrictStr | StrictInt | None = None
    """The right answer, if no benchmark provides it: an index, `A>B`, `A=B`, or a letter. None: unknown."""
    subset: StrictStr = ""

    @model_validator(mode="after")
    def _is_consistent(self) -> ExternalLine:
        if (self.decisions is None) == (self.scores is None):
            raise ValueError("decisions, scores: give exactly one of the two")
        if self.shown is not None and len(self.shown) != len(self.decisions or []):
            raise ValueError(
                f"shown: expected {len(self.decisions or [])} lists, one per decision, got {len(self.shown)}"
            )
        if self.shown is not None and any(len(set(look)) < len(look) for look in self.shown):
            raise ValueError("shown: a list contains a response twice")
        return self


Numbered = tuple[int, ExternalLine]
"""The number of a line, counted from 1, and the line."""


def read_lines(path: Path) -> list[Numbered]:
    """Read the lines of a file, without comparing them with examples.

    Raises:
        InputError: the file cannot be read, or a line is invalid.
    """
    read = [(number, _parsed(content, place=f"{path}, line {number}")) for number, content in numbered_lines(path)]
    if not read:
        raise InputError(f'{path}: the file is empty; expected lines such as {{"id": "q7", "decisions": ["A>B"]}}')
    return read


def read_decisions(
    path: Path,
    outlines: Sequence[ExampleMetadata] | None,
    *,
    lines: Sequence[Numbered] | None = None,
    mode: Mode | None = None,
    flipped: bool = False,
    scalar: bool = False,
    on_junk: Callable[[str], None] | None = None,
) -> list[JudgedExample]:
    """Read the decisions about each example.

    Args:
        path: `.jsonl` or `.jsonl.gz` file. Blank lines are ignored.
        outlines: the judged examples. The result has one entry per example in this order; an example without a line has
            no decisions. None: the lines carry the right answer in `label`.
        lines: the lines of the file. None: they are read.
        mode: the mode in which the examples were judged. None: pointwise for scores, listwise if more than two responses
            were shown together, and pairwise otherwise.
        flipped: whether all decisions about an example use the labels of the first presentation.
        scalar: whether the scores are those of a scalar reward model, and not ratings.
        on_junk: called with a message for each decision that is none of those offered, such as `A>A`, which then counts as no
            verdict. None: such a decision is an error.

    Raises:
        InputError: the file cannot be read, or a line is invalid. The message names the line.
    """
    read = read_lines(path) if lines is None else lines
    if outlines is None:
        outlines = _labeled_outlines(read, path=path)
    known = {outline.id: outline for outline in outlines}
    _reject_unknown_ids(read, known=known, path=path)
    decided = _decisions_by_id(read, known=known, flipped=flipped, path=path, on_junk=on_junk)
    mode = _mode(read, decided=decided, mode=mode, path=path)
    if scalar:
        decided = {id: [replace(one, scalar=True) for one in decisions] for id, decisions in decided.items()}
    return [
        JudgedExample(outline=outline, mode=mode, decisions=tuple(decided.get(outline.id, ()))) for outline in outlines
    ]


def _decisions_by_id(
    read: Sequence[Numbered],
    *,
    known: Mapping[str, ExampleMetadata],
    flipped: bool,
    path: Path,
    on_junk: Callable[[str], None] | None,
) -> dict[str, list[Decision]]:
    """Return the decisions by example id. An example may have several lines with different values of `shown`."""
    decided: dict[str, list[Decision]] = {}
    places: dict[tuple[str, str], int] = {}
    for number, line in read:
        if (other := places.setdefault((str(line.id), repr(line.shown)), number)) != number:
            raise InputError(f"{path}: lines {other} and {number} have the same id, {line.id!r}")
        outline = known[str(line.id)]
        place = f"{path}, line {number}"
        with as_input_error(place):
            told = None if on_junk is None else partial(_tell_junk, on_junk, place)
            decided.setdefault(outline.id, []).extend(_decisions(line, outline=outline, flipped=flipped, on_junk=told))
    return decided


def _tell_junk(on_junk: Callable[[str], None], place: str, problem: str) -> None:
    on_junk(f"{place}: {problem}")


def _parsed(content: bytes, *, place: str) -> ExternalLine:
    try:
        value = parse_json(content)
        if not isinstance(value, dict):
            raise ValueError(f"got {str(value)[:40]!r}")
        return ExternalLine.model_validate(value)
    except ValidationError as error:
        raise InputError(f"{place}: {problem_of(error).message}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: not a JSON object: {error}") from error


def _reject_unknown_ids(read: Sequence[Numbered], *, known: Mapping[str, ExampleMetadata], path: Path) -> None:
    unknown = {str(line.id): number for number, line in reversed(read) if str(line.id) not in known}
    if unknown:
        id, number = min(unknown.items(), key=lambda item: item[1])
        raise InputError(
            f"{path}, line {number}: unknown id {id!r} ({len(unknown)} unknown ids in the file); "
            f"ids of the {len(known)} examples look like {', '.join(map(repr, islice(known, 3)))}"
        )


def _mode(
    read: Sequence[Numbered], *, decided: Mapping[str, Sequence[Decision]], mode: Mode | None, path: Path
) -> Mode:
    kinds = {line.scores is None: number for number, line in reversed(read)}
    if len(kinds) == 2:
        raise InputError(
            f"{path}: line {kinds[True]} has decisions and line {kinds[False]} has scores; use one kind per file"
        )
    if mode is not None and (mode is Mode.POINTWISE) != (False in kinds):
        kind = "scores" if False in kinds else "decisions"
        raise InputError(f"{path}: the file has {kind}, which do not match --mode {mode.value}")
    if mode is not None or False in kinds:
        return mode or Mode.POINTWISE
    most = max((len(decision.shown) for decisions in decided.values() for decision in decisions), default=2)
    return Mode.LISTWISE if most > 2 else Mode.PAIRWISE


def _labeled_outlines(read: Sequence[Numbered], *, path: Path) -> list[ExampleMetadata]:
    """Return the examples of a file whose lines have labels."""
    outlines: dict[str, ExampleMetadata] = {}
    for number, line in read:
        with as_input_error(f"{path}, line {number}"):
            outline = _labeled_outline(line)
        if outlines.setdefault(outline.id, outline) != outline:
            raise InputError(
                f"{path}, line {number}: label or subset differs from an earlier line with id {outline.id!r}"
            )
    return list(outlines.values())


def _labeled_outline(line: ExternalLine) -> ExampleMetadata:
    """Return the example of a line with a label. It has two responses, or more if `scores` or `shown` has more."""
    shown = [index for look in line.shown or [] for index in look]
    if max(shown, default=0) >= MAX_RESPONSES:
        raise ValueError(f"shown: index {max(shown)} is too large; the largest is {MAX_RESPONSES - 1}")
    num_responses = max([1, *shown]) + 1 if line.scores is None else len(line.scores)
    label = line.label
    if isinstance(label, str):
        with as_input_error("label"):
            label = chosen(label, shown=range(num_responses))
    if label is not None and not 0 <= label < num_responses:
        raise ValueError(f"label: {label} is not an index of the {num_responses} responses (counted from 0)")
    return ExampleMetadata(
        id=str(line.id),
        subset=line.subset,
        num_responses=num_responses,
        correct=() if label is None else (label,),
        cluster=str(line.id),
        facts={EVEN: True} if label is None and line.label is not None else {},
    )


def _decisions(
    line: ExternalLine, *, outline: ExampleMetadata, flipped: bool, on_junk: Callable[[str], None] | None
) -> list[Decision]:
    """Return the decisions of one line.

    Raises:
        ValueError: the line does not match the example.
    """
    if line.scores is not None:
        if len(line.scores) != outline.num_responses:
            raise ValueError(f"scores: expected {outline.num_responses}, one per response, got {len(line.scores)}")
        return [Decision(shown=(index,), score=score) for index, score in enumerate(line.scores)]
    listed = tuple(range(outline.num_responses))
    looks = [listed if place % 2 == 0 else listed[::-1] for place in range(len(line.decisions or []))]
    if line.shown is not None:
        looks = [tuple(look) for look in line.shown]
    for look in looks:
        if beyond := [index for index in look if index >= outline.num_responses]:
            raise ValueError(
                f"shown: {beyond[0]} is not an index of the {outline.num_responses} responses (counted from 0)"
            )
    decisions: list[Decision] = []
    for place, (text, look) in enumerate(zip(line.decisions or [], looks, strict=True)):
        try:
            best = None if text is None else chosen(text, shown=looks[0] if flipped else look)
        except ValueError as error:
            if on_junk is None:
                raise ValueError(f"decisions[{place}]: {error}") from error
            on_junk(f"decisions[{place}]: {error}")
            text = best = None
        decisions.append(Decision(shown=look, best=best, tied=text is not None and best is None))
    return decisions


def chosen(text: str, *, shown: Sequence[int]) -> int | None:
    """Return the index of the response that a decision names; None: a tie. A is the first response in `shown`.

    >>> chosen("B>>A", shown=[4, 7]), chosen("A=B", shown=[4, 7]), chosen("C", shown=[2, 0, 1])
    (7, None, 1)
    """
    labels = {label_of(place): index for place, index in enumerate(shown)}
    match = _DECISION.fullmatch(text.strip().removeprefix("[[").removesuffix("]]").strip())
    if match is None:
        raise ValueError(f"expected {_FORMS}; got {text!r}")
    first, sign, second = match.groups()
    if sign is not None:
        if len(labels) != 2:
            raise ValueError(
                f'{text!r} compares two responses, but {len(labels)} were shown; name one, or list the two in "shown"'
            )
        if {first, second} != {"A", "B"}:
            raise ValueError(f"expected the labels A and B; got {text!r}")
        return None if sign == "=" else labels[first]
    if first not in labels:
        raise ValueError(
            f'expected a label from A to {label_of(len(labels) - 1)}, got {first!r}; list other responses in "shown"'
        )
    return labels[first]
