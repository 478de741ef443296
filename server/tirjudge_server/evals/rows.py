"""The rows of a run: from the request, from an uploaded file, or from this server's own records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tirjudge.http.protocol import NumberTooLarge, invalid, parse_json, problem_of, problem_of_number
from tirjudge_server.caller_schema import MAX_REQUEST_STEPS, CallerSchema, UncheckableValue
from tirjudge_server.evals.definitions import CustomConfig, DataSourceConfig, RecordsConfig, RowContent
from tirjudge_server.openai.batchlines import MAX_LINES, raw_lines
from tirjudge_server.records.record import StoredJudgment
from tirjudge_web.cost import check_json
from tirjudge_web.errors import Refused

MAX_ROWS = MAX_LINES
"""Maximum number of rows of a run."""


class RowProblem(ValueError):
    """A row is invalid. The message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRow:
    """A row of a run."""

    number: int
    """Position among the rows, from 0."""
    item: str
    """JSON of the variable `item`."""
    sample: str | None
    """JSON of the variable `sample`. None: the row came without one."""

    @property
    def num_bytes(self) -> int:
        """Size of the row, which counts against the quota of its owner."""
        return len(self.item) + len(self.sample or "")


def row_schema(config: DataSourceConfig) -> dict[str, Any]:
    """Return the JSON schema of whole rows, which clients see."""
    text = {"type": "object", "properties": {"output_text": {"type": "string"}}, "required": ["output_text"]}
    properties = {"item": config.item_schema if isinstance(config, CustomConfig) else {"type": "object"}}
    if isinstance(config, RecordsConfig) or config.include_sample_schema:
        properties["sample"] = text
    return {"type": "object", "properties": properties, "required": list(properties)}


def schema_of(config: DataSourceConfig) -> CallerSchema | None:
    """Return the check of items. None: any object is valid.

    Raises:
        Refused: The schema of the eval is invalid.
    """
    try:
        return CallerSchema(config.item_schema) if isinstance(config, CustomConfig) else None
    except ValueError as error:
        param = "data_source_config.item_schema"
        raise Refused(invalid(f"{param}: {error}", param=param, code="invalid_value")) from None


def rows_of(content: Sequence[RowContent], *, schema: CallerSchema | None) -> list[EvalRow]:
    """Return the rows of a request.

    Raises:
        RowProblem: A row does not match the schema, or there are none or too many rows.
    """
    if not content:
        raise RowProblem("no rows given")
    if len(content) > MAX_ROWS:
        raise RowProblem(f"{len(content)} rows given; the limit is {MAX_ROWS}; split them into several runs")
    rows = []
    for number, row in enumerate(content):
        rows.append(_checked(number, row, schema=schema, line=number + 1, name="row"))
        if schema is not None and schema.num_steps > MAX_REQUEST_STEPS:
            raise RowProblem(f"row {number + 1}: checking the rows takes too long; upload them as a file")
    return rows


def rows_in(path: Path, *, schema: CallerSchema | None, max_line_bytes: int) -> Iterator[EvalRow]:
    """Yield the rows of a file.

    Raises:
        RowProblem: A line is not a row, a row does not match the schema, or there are none or too many rows.
    """
    number = -1
    with path.open("rb") as file:
        for number, raw in enumerate(raw_lines(file, max_line_bytes=max_line_bytes)):
            if number == MAX_ROWS:
                raise RowProblem(f"more than {MAX_ROWS} rows given; split them into several runs")
            row = _row_in(raw, line=number + 1, max_line_bytes=max_line_bytes)
            yield _checked(number, row, schema=schema, line=number + 1, name="line")
    if number < 0:
        raise RowProblem("the file has no rows")


def _row_in(raw: bytes, *, line: int, max_line_bytes: int) -> RowContent:
    if len(raw) > max_line_bytes:
        raise RowProblem(f"line {line}: longer than {max_line_bytes} bytes")
    try:
        check_json(raw)
        return RowContent.model_validate(parse_json(raw))
    except Refused as refused:
        raise RowProblem(f"line {line}: {refused}") from None
    except ValidationError as error:
        raise RowProblem(f"line {line}: {problem_of(error, model=RowContent).message}") from None
    except NumberTooLarge as error:
        raise RowProblem(f"line {line}: {problem_of_number(error).message}") from None
    except (ValueError, RecursionError) as error:
        raise RowProblem(f"line {line}: not JSON: {error}") from None


def _checked(number: int, row: RowContent, *, schema: CallerSchema | None, line: int, name: str) -> EvalRow:
    try:
        problem = None if schema is None else schema.problem(row.item)
    except UncheckableValue as error:
        problem = str(error)
    if problem is not None:
        raise RowProblem(f"{name} {line}: item: {problem}")
    try:
        item = json.dumps(row.item)
        sample = None if row.sample is None else json.dumps(row.sample)
    except RecursionError:
        raise RowProblem(f"{name} {line}: nested too deeply") from None
    return EvalRow(number=number, item=item, sample=sample)


def row_of_record(number: int, record: StoredJudgment) -> EvalRow | None:
    """Return the row of a recorded judgment. None: its texts are erased.

    `item` has the fields of the request, with the prompt as messages in `input`. `sample` has the verdict.
    """
    fields, values = record.request_fields, record.values
    if "prompt" not in fields or "responses" not in fields:
        return None
    prompt = fields["prompt"]
    verdict = values["judgment"]["verdict"]
    shown = ("mode", "prompt", "responses", "reference", "criteria", "rubric")
    item = {
        "id": record.id,
        "model": values["judgment"]["model"],
        "input": [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt,
        **{name: fields[name] for name in shown if fields.get(name) is not None},
    }
    sample = {"output_text": json.dumps(verdict, ensure_ascii=False), "model": values["judgment"]["model"]}
    return EvalRow(number=number, item=json.dumps(item), sample=json.dumps(sample))
