"""Read items as JSON lines with `prompt`, `responses`, and optionally `id`, `label` and `reference`.

An invalid line is reported with its problem and does not stop the other lines.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from codecs import BOM_UTF8
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, ValidationError, model_validator

from tirjudge.errors import TirjudgeError
from tirjudge.http.protocol import parse_json, problem_of
from tirjudge.types import ChatMessage, JudgeRequest, Mode, Text
from tirjudge_harness.examples import ExampleMetadata, example, model_facts

ItemId = Text | StrictInt

Name = Annotated[str, BeforeValidator(lambda value: value.strip() if isinstance(value, str) else "")]
"""A name in a field that files use for other things, too. A value that is not a text is no name."""


class InputError(TirjudgeError, ValueError):
    """Invalid files or options. The command stops before it judges."""


@contextmanager
def as_input_error(where: object = None) -> Iterator[None]:
    """Convert a ValueError in the block to an InputError.

    Args:
        where: prefix of the message, such as a file or an option. None: no prefix.
    """
    try:
        yield
    except ValueError as error:
        raise InputError(str(error) if where is None else f"{where}: {error}") from error


class JudgeItem(BaseModel):
    """One line of the input. Unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: ItemId = ""
    """Omitted: a hash of the texts, with a suffix such as `#2` for a repetition."""
    prompt: Text | list[ChatMessage]
    responses: list[Text]
    reference: Text | None = None
    """A reference answer that the judge sees. None: no reference."""
    label: Annotated[StrictInt, Field(ge=0)] | None = None
    """Index of the best response. None: unknown, or not unique; the item is judged but not scored."""
    subset: Name = ""
    """Group of the item in reports. Empty: none."""
    model_a: Name = ""
    """Model that wrote the first of two responses. Empty: unknown."""
    model_b: Name = ""

    @model_validator(mode="after")
    def _label_is_a_response(self) -> JudgeItem:
        if self.label is not None and self.label >= len(self.responses):
            raise ValueError(
                f"label: {self.label} is not an index of the {len(self.responses)} responses (counted from 0)"
            )
        return self

    @property
    def sha256(self) -> str:
        """Hash of the prompt, the responses and the reference if there is one, 16 hex digits."""
        fields = {"prompt", "responses"} | (set() if self.reference is None else {"reference"})
        return hashlib.sha256(self.model_dump_json(include=fields).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """An item and its request."""

    item: JudgeItem
    outline: ExampleMetadata
    """The item without its texts, for reports."""
    request: JudgeRequest
    number: int
    """Number of the line or row in the file, counted from 1. A CSV header is not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine:
    """An invalid line."""

    number: int
    """Line number, counted from 1."""
    problem: str
    """Reason, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """Settings for all items of a run; the fields of a `JudgeRequest`."""

    mode: Mode | None = None
    """Judging mode. None: chosen by the number of responses, see `default_mode`."""
    tools: str = "auto"
    orders: str = "single"
    votes: int = 1
    max_tool_calls: int = 3
    seed: int = 0
    require: str | None = None
    min_confidence: float | None = None
    force_verdict: bool = True

    @property
    def configuration(self) -> dict[str, Any]:
        """Return the settings as JSON data. Requirements that are not given and forced verdicts are omitted, as in older
        files."""
        unset = {name for name in ("require", "min_confidence") if getattr(self, name) is None}
        unset |= {"force_verdict"} if self.force_verdict else set()
        return {name: value for name, value in asdict(self).items() if name not in unset}

    def request(self, item: JudgeItem) -> JudgeRequest:
        """Return the request for one item.

        Raises:
            ValidationError: the number of responses does not fit the mode.
        """
        return JudgeRequest.model_validate(
            {
                "mode": self.mode or default_mode(len(item.responses)),
                "prompt": item.prompt,
                "responses": item.responses,
                "reference": item.reference,
                "tools": self.tools,
                "orders": self.orders,
                "votes": self.votes,
                "max_tool_calls": self.max_tool_calls,
                "seed": self.seed,
                "require": self.require,
                "min_confidence": self.min_confidence,
                "force_verdict": self.force_verdict,
            }
        )


MAX_BAD_ROWS = 0.1
"""Maximum share of invalid rows or lines by default."""


def check_bad_rows(num_bad: int, *, num_valid: int, max_error_rate: float | None) -> None:
    """Raise InputError if the share of invalid rows is too large. `max_error_rate`: None for `MAX_BAD_ROWS`."""
    limit = MAX_BAD_ROWS if max_error_rate is None else max_error_rate
    num = num_bad + num_valid
    if num_bad > limit * num:
        raise InputError(
            f"{num_bad} of {num} rows are invalid, more than --max-error-rate {limit:g}; correct the rows, or give a higher "
            "--max-error-rate"
        )


def default_mode(num_responses: int) -> Mode:
    """Return pairwise for two responses, listwise for more, and pointwise for one."""
    if num_responses == 2:
        return Mode.PAIRWISE
    return Mode.LISTWISE if num_responses > 2 else Mode.POINTWISE


def read_tasks(path: Path, *, settings: JudgeSettings) -> tuple[list[Task], list[BadLine]]:
    """Read a `.jsonl` or `.jsonl.gz` file. Return the valid lines as tasks, and the invalid lines.

    Raises:
        InputError: the file cannot be read, has no line, is one JSON array, or has two items with the same id.
    """
    lines = list(numbered_lines(path))
    refuse_array(b"".join(line for _, line in lines), source=str(path))
    tasks: list[Task] = []
    bad: list[BadLine] = []
    line_of: dict[ItemId, int] = {}
    first_of: dict[object, str] = {}  # prompt -> id of its first item, which names the cluster
    for number, line in lines:
        try:
            item = _with_id(JudgeItem.model_validate(parse_json(line)), taken=line_of)
            request = settings.request(item)
            prompt = item.prompt if isinstance(item.prompt, str) else tuple(item.prompt)
            outline = _outline_of(item, cluster=first_of.setdefault(prompt, str(item.id)))
            tasks.append(Task(item=item, outline=outline, request=request, number=number))
        except ValidationError as error:
            bad.append(BadLine(number=number, problem=problem_of(error).message))
            continue
        except (ValueError, RecursionError) as error:
            bad.append(BadLine(number=number, problem=f"not JSON: {error}"))
            continue
        if item.id in line_of:
            raise InputError(f"{path}: lines {line_of[item.id]} and {number} have the same id, {item.id!r}")
        line_of[item.id] = number
    if not tasks and not bad:
        raise InputError(f"{path}: the file is empty")
    return tasks, bad


def _with_id(item: JudgeItem, *, taken: Container[ItemId]) -> JudgeItem:
    """Return an item with an id that no earlier item without an id has."""
    if "id" in item.model_fields_set:
        return item
    numbers = count(2)
    id = item.sha256
    while id in taken:
        id = f"{item.sha256}#{next(numbers)}"
    return item.model_copy(update={"id": id})


def _outline_of(item: JudgeItem, *, cluster: str) -> ExampleMetadata:
    return example(
        id=str(item.id),
        prompt="",
        responses=tuple(item.responses),
        correct=() if item.label is None else (item.label,),
        subset=item.subset,
        cluster=cluster,
        facts=model_facts(item.model_a, item.model_b) if item.model_a and item.model_b else {},
    ).outline


def refuse_array(content: bytes, *, source: str) -> None:
    """Raise InputError if a file of JSON lines is one JSON array of objects."""
    if not content.lstrip().startswith(b"["):
        return
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return
    if isinstance(value, list) and any(isinstance(one, dict) for one in value):
        raise InputError(
            f"{source}: one JSON array, not one object per line; rename the file to .json, or write one object per line"
        )


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers, counted from 1. A byte order mark is removed."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                text = line.removeprefix(BOM_UTF8) if number == 1 else line
                if text.strip():
                    yield number, text
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
