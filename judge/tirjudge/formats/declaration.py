"""A format file: the prompts of another judge and the forms of its verdicts, as TOML.

    title = "My judge"

    [[pairwise.prompt]]
    [[pairwise.prompt.message]]
    content = "Question: {{prompt}} First answer: {{response_a}} Second answer: {{response_b}} Which is better?"

    [[pairwise.verdict]]
    form = "label"
    before = ["[["]
    after = ["]]"]
    labels = { A = "A", B = "B", C = "tie" }

    [[pairwise.example]]
    text = "The first one is right. [[A]]"
    label = "A"

A placeholder is a name in double braces. All placeholders of a message are filled in one pass, so that a placeholder
inside a response stays as it is. A prompt that has a place for the reference or the rubric of a request is used for
requests that have one.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from tirjudge.formats.verdict_forms import (
    Declared,
    JSONForm,
    LabelForm,
    LineForm,
    NumberForm,
    NumbersForm,
    ReadVerdict,
    Scale,
    VerdictForm,
)
from tirjudge.types import TIE, Mode, label_of

SLOT = re.compile(r"\{\{(\w{1,40})(\|json)?\}\}")
"""A placeholder: a name, and `|json` to write the text as a JSON string."""

SECTIONS: tuple[Literal["reference", "rubric"], ...] = ("reference", "rubric")
"""Optional texts of a request that a prompt may have a place for."""

MAX_BYTES = 1 << 20
"""Maximum size of a format file."""

MAX_SHOWN = 26
"""Maximum number of responses with a placeholder of their own."""


class SourcePart(Declared):
    """Where the words of a format come from."""

    repository: str
    """URL of the repository."""
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    """Commit that was read."""
    files: tuple[str, ...] = Field(min_length=1)
    """Files with the prompts and the code that reads verdicts."""
    licence: str
    """Licence of the repository, as an SPDX identifier."""


class SamplingPart(Declared):
    """How the authors sample."""

    temperature: float = Field(default=0.0, ge=0.0, le=2.0)
    """Sampling temperature of requests that set none."""
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    """Nucleus sampling mass."""


class MessagePart(Declared):
    """A message of a prompt."""

    role: str = Field(default="user", min_length=1, max_length=40)
    """Role in the chat template of the judge."""
    content: str | None = None
    """Text with placeholders. None: the message stands for the messages of `conversation`."""
    conversation: bool = False
    """Whether the messages of the request's conversation stand in this place, each with its own role."""
    only_with: Literal["reference", "rubric"] | None = None
    """Section without which the message is left out. None: the message is always there."""

    @model_validator(mode="after")
    def _check_content(self) -> MessagePart:
        if self.conversation is (self.content is not None):
            raise ValueError("give content, or conversation = true")
        return self


class Listing(Declared):
    """How any number of responses is written, for the placeholder `{{responses}}`."""

    each: str
    """Text for one response, with `{{response}}`, and with `{{number}}` (1, 2, ...) or `{{letter}}` (A, B, ...)."""
    between: str = ""
    """Text between two responses."""


class VerdictExample(Declared):
    """A text that the judge may write, and its verdict. `tirjudge formats test` reads it."""

    text: str
    """The text."""
    label: Annotated[str, Field(coerce_numbers_to_str=True)] | None = None
    """Expected label: a letter, `tie` or a score from 1 to 10. None: the text has no verdict."""
    responses: int | None = Field(default=None, ge=1, le=MAX_SHOWN)
    """Number of responses that were shown. None: as many as the prompts of the mode have placeholders for."""


class PromptPart(Declared):
    """One prompt of a mode."""

    message: tuple[MessagePart, ...] = Field(min_length=1)
    """Messages, in order."""
    defaults: dict[Literal["reference", "rubric"], str] = Field(default_factory=dict)
    """Section -> text for requests that have none."""
    responses: Listing | None = None
    """How `{{responses}}` is written. None: each response has a placeholder of its own."""
    strip: bool = False
    """Whether blanks around each response are removed."""

    @cached_property
    def slots(self) -> dict[str, bool]:
        """Placeholder -> whether a message has it that is always there."""
        found: dict[str, bool] = {}
        for message in self.message:
            for name in slots_in(message.content or ""):
                found[name] = found.get(name, False) or message.only_with is None
        return found

    @property
    def sections(self) -> set[str]:
        """Sections that the prompt has a place for."""
        return {name for name in SECTIONS if name in self.slots}

    @property
    def needed(self) -> set[str]:
        """Sections that a request must have."""
        return {name for name in self.sections if self.slots[name]}.difference(self.defaults)

    @property
    def num_responses(self) -> int | None:
        """Number of responses that the prompt shows. None: any number."""
        return None if self.responses is not None else sum(name.startswith("response") for name in self.slots)

    def check(self, mode: Mode) -> None:
        """Check the placeholders.

        Raises:
            ValueError: one is unknown or missing.
        """
        wanted = self._response_slots(mode)
        known = {"prompt", *SECTIONS, *wanted}
        for name in self.slots:
            if name not in known:
                raise ValueError(unknown(name, known=known, what="placeholder", shown="{{%s}}"))
        missing = {name for name in wanted if not self.slots.get(name)}
        if not self.slots.get("prompt") and not any(message.conversation for message in self.message):
            missing.add("prompt")
        if missing:
            listed = ", ".join(f"{{{{{name}}}}}" for name in sorted(missing))
            raise ValueError(f"no message has the placeholder {listed}, so the judge would not see this text")
        if self.responses is not None:
            inner = slots_in(self.responses.each)
            for name in inner:
                if name not in _LISTED:
                    raise ValueError(
                        f"responses.each: {unknown(name, known=_LISTED, what='placeholder', shown='{{%s}}')}"
                    )
            if "response" not in inner:
                raise ValueError("responses.each: the placeholder {{response}} is missing")

    def _response_slots(self, mode: Mode) -> list[str]:
        """Return the placeholders of the responses that the prompt must have."""
        if self.responses is not None:
            return ["responses"]
        if mode is Mode.POINTWISE:
            return ["response"]
        names = [f"response_{label_of(index).lower()}" for index in range(2 if mode is Mode.PAIRWISE else MAX_SHOWN)]
        return names[: max([2, *(number for number, name in enumerate(names, start=1) if name in self.slots)])]


class ModePart(Declared):
    """What a format declares for one mode."""

    prompt: tuple[PromptPart, ...] = Field(min_length=1)
    """Prompts. The first one counts that has a place for each section of the request, and needs no other."""
    verdict: tuple[VerdictForm, ...] = Field(min_length=1)
    """Forms of the verdict. The first one that finds a verdict counts."""
    verdict_after: str = ""
    """Mark such as `</think>`: if it occurs in a turn, only the text after its last occurrence is read."""
    example: tuple[VerdictExample, ...] = Field(min_length=1)
    """Texts of the judge with their verdicts, which are read when the file is loaded."""

    @property
    def sizes(self) -> set[int | None]:
        """Numbers of responses that the prompts show. None: any number."""
        return {prompt.num_responses for prompt in self.prompt}

    def read(self, text: str, *, num_responses: int) -> ReadVerdict | None:
        """Return the verdict in the text of a turn; None without a verdict."""
        mark = self.verdict_after
        skipped = text.rfind(mark) + len(mark) if mark and mark in text else 0
        if mark.startswith("</") and not skipped and mark.replace("/", "", 1) in text:
            return None  # the text ends inside a thought
        for form in self.verdict:
            verdict = form.read(text[skipped:], num_responses=num_responses)
            if verdict is not None:
                return None if verdict.label is None else moved(verdict, by=skipped)
        return None

    def check(self, mode: Mode) -> None:
        """Check the prompts, the forms and the examples.

        Raises:
            ValueError: a placeholder, a label or an example is wrong.
        """
        for number, prompt in enumerate(self.prompt, start=1):
            with named(f"prompt {number}"):
                prompt.check(mode)
        shown = 1 if mode is Mode.POINTWISE else max(size or 2 for size in self.sizes)
        for number, form in enumerate(self.verdict, start=1):
            with named(f"verdict {number}"):
                _check_form(form, mode=mode, num_responses=MAX_SHOWN if None in self.sizes else shown)
        for number, example in enumerate(self.example, start=1):
            found = self.read(example.text, num_responses=example.responses or shown)
            label = None if found is None else found.label
            if label != example.label:
                read = "no verdict" if label is None else f"the label {label!r}"
                expected = "none" if example.label is None else repr(example.label)
                raise ValueError(f"example {number}: {read} is read, but {expected} is expected")


class FormatFile(Declared):
    """Complete content of a format file."""

    title: str
    """Name of the judge, for lists."""
    notes: str = ""
    """What a user should know."""
    unverified: bool = False
    """Whether the words could not be compared with the source."""
    orders: Literal["single", "both"] = "single"
    """In how many orders the authors show two responses. It is not applied: use `--protocol` or `orders`."""
    join: Literal["agree", "points"] = Field(default="agree", exclude_if=lambda join: join == "agree")
    """How the verdicts of opposite orders are joined. `agree`: orders that disagree are a tie. `points`: the response with
    the most points over all orders wins: scores as written, or the points of labels."""
    source: SourcePart | None = None
    """Where the words come from. None: they are the user's own."""
    sampling: SamplingPart = SamplingPart()
    """How the authors sample."""
    pointwise: ModePart | None = None
    """Scores of single responses. None: not supported."""
    pairwise: ModePart | None = None
    """Comparisons of two responses. None: not supported."""
    listwise: ModePart | None = None
    """Comparisons of several responses. None: not supported."""

    @property
    def modes(self) -> dict[Mode, ModePart]:
        """Mode -> what the format declares for it."""
        parts = {Mode.POINTWISE: self.pointwise, Mode.PAIRWISE: self.pairwise, Mode.LISTWISE: self.listwise}
        return {mode: part for mode, part in parts.items() if part is not None}

    @model_validator(mode="after")
    def _check(self) -> FormatFile:
        if not self.modes:
            raise ValueError("no mode; add a table [pointwise], [pairwise] or [listwise]")
        for mode, part in self.modes.items():
            with named(mode.value):
                part.check(mode)
                if mode is not Mode.POINTWISE:
                    self._check_join(part)
        return self

    def _check_join(self, part: ModePart) -> None:
        """Check that the forms of a comparison fit the way in which orders are joined.

        Raises:
            ValueError: they do not.
        """
        for form in part.verdict:
            if isinstance(form, LabelForm) and form.points and self.join != "points":
                raise ValueError('points: given for labels, but they only count with join = "points"')
            if isinstance(form, JSONForm) and form.ranking and self.join == "points":
                raise ValueError('join: "points" given, but a ranking gives no points; use "agree"')


@contextmanager
def named(place: str) -> Iterator[None]:
    """Put the name of a place before the message of a ValueError that is raised inside.

    Raises:
        ValueError: the block raised one.
    """
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def _check_form(form: VerdictForm, *, mode: Mode, num_responses: int) -> None:
    """Check that a form gives verdicts of a mode.

    Raises:
        ValueError: it does not.
    """
    if isinstance(form, NumberForm) and mode is not Mode.POINTWISE:
        raise ValueError(f"the form number gives one score, but {mode} compares; use label, numbers, line or json")
    if isinstance(form, NumbersForm) and mode is Mode.POINTWISE:
        raise ValueError("the form numbers compares responses, but pointwise scores one; use number")
    if not isinstance(form, LabelForm | LineForm):
        return
    if mode is Mode.POINTWISE and form.scale is None:
        raise ValueError(f"the form {form.form} needs a scale in a pointwise prompt")
    if isinstance(form, LabelForm) and mode is not Mode.POINTWISE and form.scale is not None:
        raise ValueError(f"the labels are scores, but {mode} compares; remove scale")
    offered = {label_of(index) for index in range(num_responses)} | {TIE}
    for label in () if form.scale is not None else form.labels.values():
        if label not in offered:
            raise ValueError(f"label {label!r} given, but the prompt shows {num_responses} responses")


def moved(verdict: ReadVerdict, *, by: int) -> ReadVerdict:
    """Return a verdict with its offsets increased."""
    return replace(verdict, opens=verdict.opens + by, opened=verdict.opened + by, start=verdict.start + by)


def slots_in(text: str) -> list[str]:
    """Return the names of the placeholders in a text, in order.

    >>> slots_in("{{prompt}} {x} {{{responses}}} {{prompt|json}}")
    ['prompt', 'responses', 'prompt']
    """
    return [match[1] for match in SLOT.finditer(text)]


def parse_format(content: bytes, *, origin: str) -> FormatFile:
    """Parse the content of a format file.

    Args:
        content: the file.
        origin: name of the file, for messages.

    Raises:
        ValueError: not TOML, an unknown field or placeholder, a missing placeholder, or an example whose verdict is
            read differently.
    """
    if len(content) > MAX_BYTES:
        raise ValueError(f"{origin}: larger than {MAX_BYTES >> 20} MiB; a format file has the prompts of one judge")
    try:
        values = tomllib.loads(content.decode())
        _check_escapes(values, origin=origin)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        hint = "; write a text of several lines between three quotes" if r"character '\n'" in str(error) else ""
        raise ValueError(f"{origin}: not TOML: {error}{hint}") from error
    try:
        return FormatFile.model_validate(values)
    except ValidationError as error:
        raise ValueError(f"{origin}: {_first_problem(error)}") from error


def _check_escapes(value: object, *, origin: str) -> None:
    """Check that no text has a backspace or a form feed, which double quotes make of `\\boxed` and `\\frac`.

    Raises:
        ValueError: a text has one.
    """
    for text in value if isinstance(value, list) else [*value, *value.values()] if isinstance(value, dict) else ():
        _check_escapes(text, origin=origin)
    for control, written in ("\b", r"\b"), ("\f", r"\f"):
        if isinstance(value, str) and control in value:
            raise ValueError(
                f"{origin}: the text {value[:60]!r} has a control character: in double quotes, TOML reads {written} as one; "
                "write the text in single quotes"
            )


def read_format_file(path: Path) -> bytes:
    """Return the content of a format file.

    Raises:
        ValueError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"--format {path}: {error.strerror}") from error


def unknown(name: str, *, known: Collection[str], what: str, shown: str = "%s") -> str:
    """Return the message about an unknown name, with the most similar known ones."""
    close = difflib.get_close_matches(name[:40], sorted(known), n=3)
    meant = f"did you mean {', '.join(shown % one for one in close)}?" if close else ""
    listed = f"known: {', '.join(shown % one for one in sorted(known))}"
    return f"unknown {what} {shown % name}; {meant or listed}"


_LISTED = ("response", "number", "letter")

_PARTS: dict[str, type[Declared]] = {
    "source": SourcePart,
    "sampling": SamplingPart,
    "pointwise": ModePart,
    "pairwise": ModePart,
    "listwise": ModePart,
    "prompt": PromptPart,
    "message": MessagePart,
    "responses": Listing,
    "example": VerdictExample,
    "label": LabelForm,
    "number": NumberForm,
    "numbers": NumbersForm,
    "line": LineForm,
    "json": JSONForm,
    "scale": Scale,
}
"""Name of a table of a format file, or of the form of a verdict -> its fields."""


def _first_problem(error: ValidationError) -> str:
    """Return an error as one line: where it is, and what it is. Unknown fields come first: a misspelled field is also
    missing."""
    first = min(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
    names = [part for part in first["loc"] if isinstance(part, str)]
    place = ".".join(str(part + 1) if isinstance(part, int) else part for part in first["loc"])
    if first["type"] == "extra_forbidden":
        part = _PARTS.get(names[-2], FormatFile) if len(names) > 1 else FormatFile
        return f"{place}: {unknown(names[-1], known=set(part.model_fields), what='field')}"
    message = first["msg"].removeprefix("Value error, ")
    return f"{place}: {message}" if place else message
