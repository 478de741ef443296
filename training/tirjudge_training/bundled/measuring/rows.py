"""Rows of benchmarks in a folder: `NAME.jsonl.gz` or `NAME.jsonl`, one JSON object per line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tirjudge.http.protocol import problem_of
from tirjudge_training.row_files import read_rows


class FollowedInstructions(BaseModel):
    """The instructions of an IFEval prompt, and which of them its response follows by the official rules."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    instruction_id_list: list[str]
    """Kinds, such as `punctuation:no_comma`."""
    kwargs: list[dict[str, Any]]
    """Arguments of each instruction."""
    strict: list[bool]
    """Whether the response follows each instruction strictly."""
    nondeterministic_in_official_code: bool = False
    """Whether the official rules replace an argument with a random one. Their verdict then differs from run to run."""


class BenchmarkRow(BaseModel):
    """One row of a benchmark."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    """Id of the row."""
    subset: str = ""
    """Part of the benchmark."""
    prompt: str
    """Prompt of the responses."""
    responses: list[str] = Field(min_length=1)
    """Responses to the prompt."""
    label: int | None = None
    """Index of the best response. None: none, or several equally good ones."""
    meta: dict[str, Any] = Field(default_factory=dict)
    """Further facts. `correct` says for each response whether it is right."""

    @property
    def instructions(self) -> FollowedInstructions:
        """Instructions of an IFEval row.

        Raises:
            ValueError: the row has none.
        """
        try:
            return FollowedInstructions.model_validate(self.meta)
        except ValidationError as error:
            raise ValueError(f"row {self.id}: meta: {problem_of(error).message}") from None


def find_benchmark(folder: Path, name: str) -> Path | None:
    """Return the file of a benchmark whose name begins with `name`; None if there is none.

    Raises:
        ValueError: several files match.
    """
    found = sorted(file for file in folder.glob(f"{name}*") if file.name.endswith((".jsonl", ".jsonl.gz")))
    if len(found) > 1:
        raise ValueError(f"{folder}: {found[0].name} and {found[1].name} are both rows of {name}; keep one of them")
    return found[0] if found else None


def read_benchmark(file: Path) -> list[BenchmarkRow]:
    """Read all rows of a file.

    Raises:
        ValueError: the file cannot be read, or a row is not valid.
    """
    _, rows = read_rows(file)
    found = []
    for number, row in enumerate(rows, start=1):
        try:
            found.append(BenchmarkRow.model_validate(row))
        except ValidationError as error:
            raise ValueError(f"{file}: row {number}: {problem_of(error).message}") from None
    return found
