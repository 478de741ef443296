"""Verdicts made elsewhere, read from a file of lines such as

    {"id": "q7", "decisions": ["A>B", "B>A"]}
    {"id": "q8", "decisions": ["A>>B", null], "label": "B>A", "subset": "math"}
    {"id": "q9", "decisions": ["C"]}
    {"id": "q10", "scores": [7, 3.5, null]}

A decision is one look at the responses, in the labels that the judge saw: A is what it was shown first. The responses are
taken to be shown as they are listed, then the other way round, then as listed again, and so on; `shown` says otherwise
(`[[0, 3], [3, 0]]`: the indexes of what was shown at each look). `A>>B` is `A>B`, `A=B` a tie, null no verdict. Scores are
one a response, as listed; null is no verdict on that one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
"""A decision without the brackets and the blanks around it."""
_FORMS = '"A>B", "A>>B", "A=B", a letter such as "C" and null are known'

EVEN = "even"
"""The fact of an example whose label says that its responses are equally good."""


class ExternalLine(BaseModel):
    """One line. Fields that it does not know are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: StrictStr | StrictInt
    decisions: list[StrictStr | None] | None = None
    """One a look, in the labels of that look."""
    scores: list[Score | None] | None = None
    """One a response."""
    shown: list[Indexes] | None = None
    """The responses of each look, in the order shown; None: as listed and the other way round, by turns."""
    label: StrictStr | StrictInt | None = None
    """What is right, where no benchmark says it: an index, `A>B`, `A=B`, or a letter; None: not known."""
    subset: StrictStr = ""

    @model_validator(mode="after")
    def _says_one_thing(self) -> ExternalLine:
        if (self.decisions is None) == (self.scores is None):
            raise ValueError("decisions, scores: give one of them")
        if self.shown is not None and len(self.shown) != len(self.decisions or []):
            raise ValueError(f"shown: {len(self.shown)} looks given for {len(self.decisions or [])} decisions")
        if self.shown is not None and any(len(set(look)) < len(look) for look in self.shown):
            raise ValueError("shown: a response twice in one look")
        return self


Numbered = tuple[int, ExternalLine]
"""A line, and its number in the file, counted from 1."""


def read_decisions(
    path: Path, outlines: Sequence[ExampleMetadata] | None, *, mode: Mode | None = None, flipped: bool = False
) -> list[JudgedExample]:
    """What a file of verdicts says of each example.

    Args:
        path: `.jsonl` or `.jsonl.gz`; lines that are blank are left out.
        outlines: the examples that are spoken of, all of which come back, in that order, those that the file lacks without
            decisions; None: the lines say themselves what is right, in `label`.
        mode: in which they were judged; None: pointwise for scores, listwise if more than two were shown at once, else
            pairwise.
        flipped: whether every look's decision is already in the labels of the first.

    Raises:
        InputError: the file cannot be read, or a line of it cannot be used; names the line.
    """
    read = [(number, _parsed(content, place=f"{path}, line {number}")) for number, content in numbered_lines(path)]
    if not read:
        raise InputError(f'{path}: is empty; a line such as {{"id": "q7", "decisions": ["A>B"]}} is needed')
    if outlines is None:
        outlines = _own_outlines(read, path=path)
    known = {outline.id: outline for outline in outlines}
    _refuse_strangers(read, known=known, path=path)
    said = _said(read, known=known, flipped=flipped, path=path)
    mode = _mode(read, said=said, mode=mode, path=path)
    return [
        JudgedExample(outline=outline, mode=mode, decisions=tuple(said.get(outline.id, ()))) for outline in outlines
    ]


def _said(
    read: Sequence[Numbered], *, known: Mapping[str, ExampleMetadata], flipped: bool, path: Path
) -> dict[str, list[Decision]]:
    """The decisions on each example; one may have several lines if they say that other responses were shown."""
    said: dict[str, list[Decision]] = {}
    places: dict[tuple[str, str], int] = {}
    for number, line in read:
        if (other := places.setdefault((str(line.id), repr(line.shown)), number)) != number:
            raise InputError(f"{path}: lines {other} and {number} have the same id, {line.id!r}")
        outline = known[str(line.id)]
        with as_input_error(f"{path}, line {number}"):
            said.setdefault(outline.id, []).extend(_decisions(line, outline=outline, flipped=flipped))
    return said


def _parsed(content: bytes, *, place: str) -> ExternalLine:
    try:
        value = parse_json(content)
        if not isinstance(value, dict):
            raise ValueError(f"{str(value)[:40]!r} given")
        return ExternalLine.model_validate(value)
    except ValidationError as error:
        raise InputError(f"{place}: {problem_of(error).message}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: no JSON object: {error}") from error


def _refuse_strangers(read: Sequence[Numbered], *, known: Mapping[str, ExampleMetadata], path: Path) -> None:
    strangers = {str(line.id): number for number, line in reversed(read) if str(line.id) not in known}
    if strangers:
        id, number = min(strangers.items(), key=lambda item: item[1])
        raise InputError(
            f"{path}, line {number}: no example has the id {id!r} ({len(strangers)} such ids in the file, "
            f"{len(known)} examples); their ids are such as {', '.join(map(repr, islice(known, 3)))}"
        )


def _mode(read: Sequence[Numbered], *, said: Mapping[str, Sequence[Decision]], mode: Mode | None, path: Path) -> Mode:
    kinds = {line.scores is None: number for number, line in reversed(read)}
    if len(kinds) == 2:
        raise InputError(
            f"{path}: line {kinds[True]} has decisions and line {kinds[False]} has scores; give a file of one kind"
        )
    if mode is not None and (mode is Mode.POINTWISE) != (False in kinds):
        raise InputError(f"{path}: has {'scores' if False in kinds else 'decisions'}, which are not {mode.value}")
    if mode is not None or False in kinds:
        return mode or Mode.POINTWISE
    most = max((len(decision.shown) for decisions in said.values() for decision in decisions), default=2)
    return Mode.LISTWISE if most > 2 else Mode.PAIRWISE


def _own_outlines(read: Sequence[Numbered], *, path: Path) -> list[ExampleMetadata]:
    """The examples of a file that says itself what is right."""
    outlines: dict[str, ExampleMetadata] = {}
    for number, line in read:
        with as_input_error(f"{path}, line {number}"):
            outline = _own_outline(line)
        if outlines.setdefault(outline.id, outline) != outline:
            raise InputError(f"{path}, line {number}: another label or subset than before for id {outline.id!r}")
    return list(outlines.values())


def _own_outline(line: ExternalLine) -> ExampleMetadata:
    """Of a line without a benchmark: two responses, unless its scores or what it says was shown are more."""
    shown = [index for look in line.shown or [] for index in look]
    if max(shown, default=0) >= MAX_RESPONSES:
        raise ValueError(f"shown: {max(shown)} given; at most {MAX_RESPONSES} responses are counted, from 0")
    num_responses = max([1, *shown]) + 1 if line.scores is None else len(line.scores)
    label = line.label
    if isinstance(label, str):
        with as_input_error("label"):
            label = chosen(label, shown=range(num_responses))
    if label is not None and not 0 <= label < num_responses:
        raise ValueError(f"label: {label} given, there are {num_responses} responses, counted from 0")
    return ExampleMetadata(
        id=str(line.id),
        subset=line.subset,
        num_responses=num_responses,
        correct=() if label is None else (label,),
        cluster=str(line.id),
        facts={EVEN: True} if label is None and line.label is not None else {},
    )


def _decisions(line: ExternalLine, *, outline: ExampleMetadata, flipped: bool) -> list[Decision]:
    """What one line says.

    Raises:
        ValueError: it does not suit the example.
    """
    if line.scores is not None:
        if len(line.scores) != outline.num_responses:
            raise ValueError(f"scores: {len(line.scores)} given, there are {outline.num_responses} responses")
        return [Decision(shown=(index,), score=score) for index, score in enumerate(line.scores)]
    listed = tuple(range(outline.num_responses))
    looks = [listed if place % 2 == 0 else listed[::-1] for place in range(len(line.decisions or []))]
    if line.shown is not None:
        looks = [tuple(look) for look in line.shown]
    for look in looks:
        if beyond := [index for index in look if index >= outline.num_responses]:
            raise ValueError(f"shown: {beyond[0]} given, there are {outline.num_responses} responses, counted from 0")
    decisions: list[Decision] = []
    for place, (text, look) in enumerate(zip(line.decisions or [], looks, strict=True)):
        with as_input_error(f"decisions[{place}]"):
            best = None if text is None else chosen(text, shown=looks[0] if flipped else look)
        decisions.append(Decision(shown=look, best=best, tied=text is not None and best is None))
    return decisions


def chosen(text: str, *, shown: Sequence[int]) -> int | None:
    """The response that a decision names, None for a tie, among those in `shown`, of which the first is A.

    >>> chosen("B>>A", shown=[4, 7]), chosen("A=B", shown=[4, 7]), chosen("C", shown=[2, 0, 1])
    (7, None, 1)
    """
    labels = {label_of(place): index for place, index in enumerate(shown)}
    match = _DECISION.fullmatch(text.strip().removeprefix("[[").removesuffix("]]").strip())
    if match is None:
        raise ValueError(f"{text!r} given; {_FORMS}")
    first, sign, second = match.groups()
    if sign is not None:
        if len(labels) != 2:
            raise ValueError(
                f'{text!r} given, which compares two; {len(labels)} were shown: name one, or say which two in "shown"'
            )
        if {first, second} != {"A", "B"}:
            raise ValueError(f"{text!r} given; the two that were shown are A and B")
        return None if sign == "=" else labels[first]
    if first not in labels:
        raise ValueError(
            f'{first!r} given; A to {label_of(len(labels) - 1)} were shown; if others were, say which in "shown"'
        )
    return labels[first]
