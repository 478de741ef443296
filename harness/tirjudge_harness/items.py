"""What is judged: the lines of a JSONL file, each with `id`, `prompt`, `responses`, and perhaps `label`.

A line that cannot be judged is kept with what is wrong with it, and does not stop the others.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError, model_validator

from tirjudge.errors import TirjudgeError
from tirjudge.http.protocol import parse_json, problem_of
from tirjudge.types import ChatMessage, JudgeRequest, Mode, Text

ItemId = Text | StrictInt


class InputError(TirjudgeError, ValueError):
    """Files or options with which nothing can be judged."""


@contextmanager
def as_input_error(where: object = None) -> Iterator[None]:
    """What is wrong with a value becomes an `InputError` that says where it stands."""
    try:
        yield
    except ValueError as error:
        raise InputError(str(error) if where is None else f"{where}: {error}") from error


class JudgeItem(BaseModel):
    """One line. Fields that it does not know, such as the name of a subset, are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: ItemId
    prompt: Text | list[ChatMessage]
    responses: list[Text]
    label: Annotated[StrictInt, Field(ge=0)] | None = None
    """Index of the best response; None: not known, or not the only one. Such an item is judged and not scored."""

    @model_validator(mode="after")
    def _label_is_a_response(self) -> JudgeItem:
        if self.label is not None and self.label >= len(self.responses):
            raise ValueError(f"label: {self.label} given, there are {len(self.responses)} responses, counted from 0")
        return self

    @property
    def sha256(self) -> str:
        """A hash of what the judge is shown, 16 hex digits."""
        return hashlib.sha256(self.model_dump_json(include={"prompt", "responses"}).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """An item, and the request that it makes."""

    item: JudgeItem
    request: JudgeRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine:
    """A line that cannot be judged."""

    number: int
    """Counted from 1."""
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """How all items of a run are judged."""

    mode: Mode | None = None
    """None: by the number of responses, as `default_mode`."""
    tools: str = "auto"
    orders: str = "single"
    votes: int = 1
    max_tool_calls: int = 3
    seed: int = 0

    def request(self, item: JudgeItem) -> JudgeRequest:
        """The request for one item.

        Raises:
            ValidationError: the item does not suit the mode.
        """
        return JudgeRequest.model_validate(
            {
                "mode": self.mode or default_mode(len(item.responses)),
                "prompt": item.prompt,
                "responses": item.responses,
                "tools": self.tools,
                "orders": self.orders,
                "votes": self.votes,
                "max_tool_calls": self.max_tool_calls,
                "seed": self.seed,
            }
        )


def default_mode(num_responses: int) -> Mode:
    """Pairwise for two responses, listwise for more, pointwise for one."""
    if num_responses == 2:
        return Mode.PAIRWISE
    return Mode.LISTWISE if num_responses > 2 else Mode.POINTWISE


def read_tasks(path: Path, *, settings: JudgeSettings) -> tuple[list[Task], list[BadLine]]:
    """The lines of a `.jsonl` or `.jsonl.gz` file: those that can be judged, and those that cannot.

    Raises:
        InputError: the file cannot be read, has no line, or two items have the same id.
    """
    tasks: list[Task] = []
    bad: list[BadLine] = []
    line_of: dict[ItemId, int] = {}
    for number, line in numbered_lines(path):
        try:
            item = JudgeItem.model_validate(parse_json(line))
            tasks.append(Task(item=item, request=settings.request(item)))
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
        raise InputError(f"{path}: there is no line in it")
    return tasks, bad


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
