"""Forms in which other judges write verdicts, and how each is read. A form is data: it has no patterns of its own.

Each reader takes time proportional to the text of a turn: marks are searched as plain strings, at most `MAX_SKIPPED`
characters after a mark are skipped, and at most `MAX_OBJECTS` JSON objects are parsed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tirjudge.types import TIE, label_of

MAX_NUMBER_CHARS = 16
"""Maximum length of a number in a verdict, in characters."""

MAX_LABEL_CHARS = 16
"""Maximum length of a label that was not offered, in characters."""

MAX_SKIPPED = 64
"""Maximum number of blanks and opening characters between a mark and its verdict."""

MAX_OBJECTS = 16
"""Maximum number of JSON objects that are parsed, from the end of a text."""

MAX_SPELLED = 101
"""Maximum number of whole numbers on a scale whose probabilities are read."""

BLANKS = " \t\r\n\f\v"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadVerdict:
    """A verdict that a form found in a text."""

    label: str | None
    """Letter of a response, `TIE`, or a score from 1 to 10. None: a number is not on the scale: the text has no verdict."""
    written: str
    """Text that the model wrote for it."""
    opens: int
    """Offset of the mark before the label, in characters."""
    opened: int
    """Offset of the end of this mark."""
    start: int
    """Offset of the label."""
    spellings: Mapping[str, str] = field(default_factory=dict)
    """Text that may be written in this place -> its label. Empty: not known."""
    points: tuple[float, ...] | None = None
    """Points of each response, in the order shown, with which opposite orders are joined. None: a score of one response."""


class Declared(BaseModel):
    """Base of the parts of a format file: unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Scale(Declared):
    """The scale on which a judge writes scores."""

    low: float
    """Lowest score."""
    high: float
    """Highest score."""

    @model_validator(mode="after")
    def _check_order(self) -> Scale:
        if not self.low < self.high:
            raise ValueError(f"low is {self.low:g} and high is {self.high:g}; low must be lower than high")
        return self

    def holds(self, score: float) -> bool:
        """Whether a score is on the scale."""
        return self.low <= score <= self.high

    def label(self, score: float) -> str | None:
        """Return the score on the scale of 1 to 10, as a label: `1 + 9 * (score - low) / (high - low)`; None: it is not on
        this scale.

        This is the only place where scores of other judges are mapped. The order of scores does not change.

        >>> Scale(low=1, high=5).label(4), Scale(low=1, high=10).label(7.5), Scale(low=0, high=1).label(1)
        ('7.75', '7.5', '10')
        """
        if not self.holds(score):
            return None
        if (self.low, self.high) == (1, 10):
            return f"{score:.12g}"
        return f"{1 + 9 * (score - self.low) / (self.high - self.low):.12g}"


class Marked(Declared):
    """Part of the forms whose verdict stands after a mark."""

    before: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Marks, one of which precedes the verdict. A mark that begins with a line break is only found at the start of a
    line. Empty: the verdict is at the start of the text."""
    opening: str = ""
    """Characters, besides blanks, that may stand between the mark and the verdict."""
    after: tuple[str, ...] = ("",)
    """Texts, one of which follows the verdict."""
    place: Literal["anywhere", "line_end", "end"] = "anywhere"
    """What may follow the verdict: anything, only blanks up to the end of a line, or only blanks."""
    pick: Literal["first", "last", "only"] = "last"
    """Which of several verdicts counts. `only`: verdicts that differ do not count."""
    ignore_case: bool = False
    """Whether upper and lower case are the same, for marks and for labels."""

    def found(self, text: str, *, read: Callable[[str, int], tuple[str, str | None] | None]) -> list[ReadVerdict]:
        """Return all verdicts in a text, in order.

        Args:
            text: text of a turn.
            read: returns the written text at an offset and its label; None if there is none.
        """
        shown = self._folded(text)
        end = len(text.rstrip(BLANKS))
        verdicts: list[ReadVerdict] = []
        skipped = BLANKS + self.opening
        marks = _marks(shown, marks=[self._folded(mark) for mark in self.before]) if self.before else [(0, "")]
        for opens, mark in marks:
            start = opened = opens + len(mark)
            while start < min(end, opened + MAX_SKIPPED) and text[start] in skipped:
                start += 1
            found = read(text, start)
            if found is not None and self._is_closed(shown, after=start + len(found[0]), end=end):
                verdicts.append(ReadVerdict(label=found[1], written=found[0], opens=opens, opened=opened, start=start))
        return verdicts

    def picked(self, verdicts: Sequence[ReadVerdict]) -> ReadVerdict | None:
        """Return the verdict that counts."""
        if not verdicts or (self.pick == "only" and len({verdict.written for verdict in verdicts}) > 1):
            return None
        return verdicts[0] if self.pick == "first" else verdicts[-1]

    def _folded(self, text: str) -> str:
        return _lower(text) if self.ignore_case else text

    def _is_closed(self, text: str, *, after: int, end: int) -> bool:
        for closing in self.after:
            if text.startswith(self._folded(closing), after):
                at = after + len(closing)
                if self.place == "anywhere" or at >= end:
                    return True
                if self.place == "line_end":
                    while text[at] in " \t\r\f\v":
                        at += 1
                    if text[at] == "\n":
                        return True
        return False


class LabelForm(Marked):
    """One of several labels after a mark, such as `[[A]]`."""

    form: Literal["label"]
    labels: dict[Annotated[str, Field(min_length=1)], Annotated[str, Field(coerce_numbers_to_str=True)]] = Field(
        min_length=1
    )
    """Text of the label -> letter of a response, `tie`, or a number if there is a scale."""
    scale: Scale | None = None
    """Scale of the numbers. None: the labels name responses."""
    alphabet: str = ""
    """Characters of labels. Any other text of these characters in the place of a label is a verdict that was not offered: if
    it counts, the text has no verdict. Empty: other texts are ignored."""
    in_order: bool = False
    """Whether the first of `labels` that occurs counts, wherever it stands. False: `pick` decides."""
    points: dict[str, Annotated[float, Field(gt=0, le=1000)]] = Field(
        default_factory=dict, exclude_if=lambda points: not points
    )
    """Text of a label -> points of the response that it prefers, if the format joins orders by points. The other labels
    give 1 point. A tie gives equal parts of its points to all responses."""

    @model_validator(mode="after")
    def _check_labels(self) -> LabelForm:
        for text in self.points:
            if text not in self.labels or self.scale is not None:
                listed = ", ".join(self.labels)
                raise ValueError(f"points: {text!r} is not a label that names a response; labels: {listed}")
        for text, value in self.labels.items():
            if self.scale is None and not is_preference(value):
                raise ValueError(
                    f'labels: {text} = {value!r} given; give the letter of a response, such as "A", or "tie"'
                )
            if self.scale is not None and (
                number_in(value, 0, whole=False) != value or not self.scale.holds(float(value))
            ):
                raise ValueError(
                    f"labels: {text} = {value!r} given; give a number from {self.scale.low:g} to {self.scale.high:g}"
                )
        return self

    @cached_property
    def spellings(self) -> dict[str, str]:
        """Text of each label -> label on our scale."""
        if self.scale is None:
            return self.labels
        return {text: self.scale.label(float(value)) or "" for text, value in self.labels.items()}

    def read(self, text: str, *, num_responses: int) -> ReadVerdict | None:
        """Return the verdict in a text; None without a verdict."""
        longest = sorted(self.labels, key=len, reverse=True)
        folded = {self._folded(label): label for label in longest}

        def label_at(text: str, start: int) -> tuple[str, str | None] | None:
            for label, named in folded.items():
                end = start + len(label)
                if self._folded(text[start:end]) == label and not (
                    label[-1].isalnum() and text[end : end + 1].isalnum()
                ):
                    return text[start:end], self.spellings[named]
            end = start
            while end < min(len(text), start + MAX_LABEL_CHARS) and text[end] in self.alphabet:
                end += 1
            return (text[start:end], None) if end > start else None

        verdicts = self.found(text, read=label_at)
        if self.in_order:
            order = [self._folded(label) for label in self.labels]
            offered = [verdict for verdict in verdicts if self._folded(verdict.written) in order]
            verdicts = sorted(offered, key=lambda verdict: order.index(self._folded(verdict.written)))[:1]
        verdict = self.picked(verdicts)
        if verdict is None:
            return None
        if verdict.label is not None and self.scale is None:
            given = {self._folded(label): number for label, number in self.points.items()}
            number = given.get(self._folded(verdict.written), 1.0)
            verdict = replace(verdict, points=points_of(verdict.label, num_responses=num_responses, number=number))
        return _with_spellings(verdict, self.spellings)


class NumberForm(Marked):
    """A number after a mark, such as `Rating: [[7]]`, or at the end of the text."""

    form: Literal["number"]
    before: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """As above. Empty: the number is the last word of the text."""
    scale: Scale
    """Scale of the number. A number outside of it does not count as a verdict."""
    whole: bool = True
    """Whether only whole numbers count."""

    @cached_property
    def spellings(self) -> dict[str, str]:
        """Text of each whole number on the scale -> label on our scale; empty if there are too many."""
        low, high = self.scale.low, self.scale.high
        if not self.whole or high - low >= MAX_SPELLED or low % 1 or high % 1:
            return {}
        return {str(number): self.scale.label(number) or "" for number in range(int(low), int(high) + 1)}

    def read(self, text: str, *, num_responses: int) -> ReadVerdict | None:
        """Return the verdict in a text; None without a verdict."""

        def number_at(text: str, start: int) -> tuple[str, str | None] | None:
            written = number_in(text, start, whole=self.whole)
            return None if written is None else (written, self.scale.label(float(written)))

        if self.before:
            verdict = self.picked(self.found(text, read=number_at))
        else:
            end = len(text.rstrip(BLANKS))
            start = end
            while start and end - start < MAX_NUMBER_CHARS and (text[start - 1].isalnum() or text[start - 1] == "_"):
                start -= 1
            found = number_at(text, start)
            verdict = None
            if found is not None and start + len(found[0]) == end:
                verdict = ReadVerdict(label=found[1], written=found[0], opens=start, opened=start, start=start)
        return None if verdict is None else _with_spellings(verdict, self.spellings)


class NumbersForm(Marked):
    """One number for each response, each after a mark, such as `<answer>8</answer><answer>5</answer>`. The highest wins."""

    form: Literal["numbers"]
    before: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    """Marks, one of which precedes each number."""
    scale: Scale
    """Scale of the numbers. A number outside of it does not count as a verdict."""
    whole: bool = True
    """Whether only whole numbers count."""

    def read(self, text: str, *, num_responses: int) -> ReadVerdict | None:
        """Return the verdict in a text; None without a verdict. Of more numbers than responses, `pick` names those that
        count."""

        def number_at(text: str, start: int) -> tuple[str, str | None] | None:
            written = number_in(text, start, whole=self.whole)
            return None if written is None else (written, None)

        found = self.found(text, read=number_at)
        if len(found) < num_responses or (self.pick == "only" and len(found) > num_responses):
            return None
        chosen = found[:num_responses] if self.pick == "first" else found[-num_responses:]
        scores = tuple(float(each.written) for each in chosen)
        first = chosen[0]
        return replace(
            first,
            label=compared(scores, scale=self.scale),
            written=" ".join(each.written for each in chosen),
            points=scores,
        )


class LineForm(Declared):
    """A verdict that is the whole first line: a label, or one number for each response."""

    form: Literal["line"]
    labels: dict[str, str] = Field(default_factory=dict)
    """Text of the line -> letter of a response or `tie`."""
    scale: Scale | None = None
    """Scale of the numbers of the line, one for each response, separated by blanks or commas. The highest wins. None: the
    line is a label."""

    @model_validator(mode="after")
    def _check_content(self) -> LineForm:
        if bool(self.labels) is (self.scale is not None):
            raise ValueError("give labels or scale, one of them")
        wrong = [value for value in self.labels.values() if not is_preference(value)]
        if wrong:
            raise ValueError(f'labels: {wrong[0]!r} given; give the letter of a response, such as "A", or "tie"')
        return self

    def read(self, text: str, *, num_responses: int) -> ReadVerdict | None:
        """Return the verdict in a text; None without a verdict."""
        start = len(text) - len(text.lstrip(BLANKS))
        line = text[start:].partition("\n")[0].rstrip(BLANKS)
        if self.scale is None:
            label = {_lower(name): label for name, label in self.labels.items()}.get(_lower(line))
            if label is None:
                return None
            points = points_of(label, num_responses=num_responses)
            verdict = ReadVerdict(label=label, written=line, opens=start, opened=start, start=start, points=points)
            return _with_spellings(verdict, self.labels)
        if len(line) > num_responses * (MAX_NUMBER_CHARS + 2):
            return None
        parts = line.replace(",", " ").split()
        if len(parts) != num_responses or any(number_in(part, 0, whole=False) != part for part in parts):
            return None
        scores = tuple(float(part) for part in parts)
        label = compared(scores, scale=self.scale)
        return ReadVerdict(label=label, written=line, opens=start, opened=start, start=start, points=scores)


class JSONForm(Declared):
    """A JSON object with one score for each response, the last such object in the text."""

    form: Literal["json"]
    scale: Scale
    """Scale of the scores."""
    scores: tuple[str, ...] = Field(min_length=1)
    """Path to the score of a response: names of fields, in which `{{number}}` is 1, 2, ... in the order shown."""
    ranking: tuple[str, ...] = ()
    """Path to a list of names, best first, which decides between equal scores. Empty: none."""
    name: str = ""
    """Name of a response in the ranking, with `{{number}}`."""
    preference: tuple[str, ...] = ()
    """Path to a number that decides between two equal scores. Empty: none."""
    middle: float = 0.0
    """Below this number the first response is preferred, above it the second."""

    def read(self, text: str, *, num_responses: int) -> ReadVerdict | None:
        """Return the verdict in a text; None without a verdict."""
        for start, written in objects_in(text):
            try:
                content = json.loads(written, parse_int=_integer)
            except (ValueError, RecursionError):
                continue
            scores = [_number(_at(content, self.scores, number=index + 1)) for index in range(num_responses)]
            known = [score for score in scores if score is not None]
            if len(known) == num_responses:
                label = compared(known, scale=self.scale)
                label = self._among_equal(content, known) if label == TIE else label
                shown, points = self._shown(content, known), self._points(content, known)
                return ReadVerdict(label=label, written=shown, opens=start, opened=start, start=start, points=points)
        return None

    def _points(self, content: Any, scores: Sequence[float]) -> tuple[float, ...]:
        """Return the scores. Two equal scores move apart by the distance of the preference from the middle."""
        preferred = _number(_at(content, self.preference, number=0)) if self.preference else None
        if preferred is None or len(scores) != 2 or scores[0] != scores[1]:
            return tuple(scores)
        return scores[0] + (self.middle - preferred), scores[1] - (self.middle - preferred)

    def _among_equal(self, content: Any, scores: Sequence[float]) -> str:
        """Return the label of the preferred one of the responses with the highest score."""
        top = [index for index, score in enumerate(scores) if score == max(scores)]
        preferred = _number(_at(content, self.preference, number=0)) if self.preference else None
        if preferred is not None and len(scores) == 2 and preferred < self.middle:
            return label_of(0)
        if preferred is not None and len(scores) == 2 and preferred > self.middle:
            return label_of(1)
        ranking = _at(content, self.ranking, number=0) if self.ranking else None
        if isinstance(ranking, list):
            names = {_numbered(self.name, index + 1): index for index in top}
            ranked = [names[name] for name in ranking if isinstance(name, str) and name in names]
            if len(set(ranked)) == len(top):
                return label_of(ranked[0])
        return TIE

    def _shown(self, content: Any, scores: Sequence[float]) -> str:
        """Return the scores, the preference and the ranking as JSON, without any other text of the model."""
        shown: dict[str, Any] = {"scores": list(scores)}
        preferred = _number(_at(content, self.preference, number=0)) if self.preference else None
        if preferred is not None:
            shown["preference"] = preferred
        ranking = _at(content, self.ranking, number=0) if self.ranking else None
        if isinstance(ranking, list):
            names = {_numbered(self.name, index + 1) for index in range(len(scores))}
            shown["ranking"] = [name for name in ranking if isinstance(name, str) and name in names][: len(scores)]
        return json.dumps(shown)


VerdictForm = Annotated[LabelForm | NumberForm | NumbersForm | LineForm | JSONForm, Field(discriminator="form")]
"""How a verdict is written."""


def is_preference(label: str) -> bool:
    """Whether a label is `TIE` or the letter of one of 26 responses."""
    return label == TIE or (len(label) == 1 and "A" <= label <= "Z")


def points_of(label: str, *, num_responses: int, number: float = 1.0) -> tuple[float, ...]:
    """Return the points of each response for a label: all for the preferred one, or equal parts after a tie.

    >>> points_of("B", num_responses=2, number=3.0), points_of("tie", num_responses=2)
    ((0.0, 3.0), (0.5, 0.5))
    """
    if label == TIE:
        return (number / num_responses,) * num_responses
    return tuple(number if label_of(index) == label else 0.0 for index in range(num_responses))


def compared(scores: Sequence[float], *, scale: Scale) -> str | None:
    """Return the label of the response with the strictly highest score; `TIE` if several share it. Of one response, its
    score from 1 to 10. None: a score is not on the scale."""
    if not all(map(scale.holds, scores)):
        return None
    if len(scores) == 1:
        return scale.label(scores[0])
    top = [index for index, score in enumerate(scores) if score == max(scores)]
    return label_of(top[0]) if len(top) == 1 else TIE


def number_in(text: str, start: int, *, whole: bool) -> str | None:
    """Return the number at an offset, without a sign; None if there is none, or if it is longer than
    `MAX_NUMBER_CHARS`."""
    end = _digits_end(text, start)
    if end == start or end - start > MAX_NUMBER_CHARS:
        return None
    if not whole and text[end : end + 1] == "." and _digits_end(text, end + 1) <= start + MAX_NUMBER_CHARS:
        end = _digits_end(text, end + 1)
        return text[start:end]
    return text[start:end]


def objects_in(text: str) -> Iterator[tuple[int, str]]:
    """Yield offset and text of the last `MAX_OBJECTS` pairs of matching braces, the last pair first. Braces in strings are
    skipped; a string ends at the end of its line at the latest."""
    opened: list[int] = []
    spans: list[tuple[int, int]] = []
    in_string = escaped = False
    for offset, character in enumerate(text):
        if escaped:
            escaped = False
        elif in_string:
            escaped = character == "\\"
            in_string = character not in '"\n'
        elif character == '"':
            in_string = bool(opened)
        elif character == "{":
            opened.append(offset)
        elif character == "}" and opened:
            spans.append((opened.pop(), offset + 1))
    for start, end in reversed(spans[-MAX_OBJECTS:]):
        yield start, text[start:end]


def _marks(text: str, *, marks: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield offset and text of each mark, in the order of their ends; of marks with the same start, the longest."""
    longest: dict[int, str] = {}
    for mark in sorted(marks, key=len):
        at_start = mark.startswith("\n") and text.startswith(mark[1:])
        if at_start:
            longest[0] = mark[1:]
        start = text.find(mark)
        while start >= 0:
            longest[start] = mark
            start = text.find(mark, start + 1)
    return iter(sorted(longest.items()))


def _with_spellings(verdict: ReadVerdict, spellings: Mapping[str, str]) -> ReadVerdict:
    """Return the verdict with the texts that may stand in its place, if its own text is one of them."""
    return replace(verdict, spellings=spellings) if verdict.written in spellings else verdict


def _lower(text: str) -> str:
    """Return the text with ASCII letters in lower case, with the same length."""
    return text.translate(_LOWER)


_LOWER = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


def _digits_end(text: str, start: int) -> int:
    end = start
    while end < len(text) and end - start <= MAX_NUMBER_CHARS and "0" <= text[end] <= "9":
        end += 1
    return end


def _at(content: Any, path: Sequence[str], *, number: int) -> Any:
    for name in path:
        if not isinstance(content, dict):
            return None
        content = content.get(_numbered(name, number))
    return content


def _numbered(text: str, number: int) -> str:
    return text.replace("{{number}}", str(number))


def _integer(digits: str) -> int | float:
    """Return an integer of JSON; one with more than `MAX_NUMBER_CHARS` characters is infinite."""
    return int(digits) if len(digits) <= MAX_NUMBER_CHARS else math.inf


def _number(value: Any) -> float | None:
    """Return a number, or a text that is one."""
    if isinstance(value, str) and number_in(value, 0, whole=False) == value:
        return float(value)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
