"""The lines of a batch: requests in the input file, answers in the output files."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tirjudge.http.protocol import NumberTooLarge, parse_json, problem_of_number
from tirjudge.types import encodable
from tirjudge_server.openai.batchstore import LineError, digest
from tirjudge_web.cost import check_json
from tirjudge_web.errors import Refused

MAX_LINES = 50_000
"""Maximum number of requests in a batch; OpenAI's limit."""

MAX_ERRORS = 100
"""Maximum number of errors that are reported for a file. Checking stops there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLine:
    """One request of a batch."""

    custom_id: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Result of checking a file of requests."""

    num_lines: int
    """Number of lines that were read."""
    errors: tuple[LineError, ...]
    """Errors of the file. Empty: the batch can run."""
    model: str | None
    """The model that all requests name. None: the requests name several, or none."""


def check(path: Path, *, endpoint: str, max_line_bytes: int) -> Checked:
    """Check a file of requests in one pass, one line at a time.

    Args:
        path: The file.
        endpoint: Path that every line must name.
        max_line_bytes: Maximum length of a line.
    """
    errors: list[LineError] = []
    seen: set[bytes] = set()
    models: set[str | None] = set()
    number = 0
    with path.open("rb") as file:
        for number, raw in enumerate(raw_lines(file, max_line_bytes=max_line_bytes), start=1):
            if number > MAX_LINES:
                errors.append(_problem("too_many_requests", f"more than {MAX_LINES} requests; split the file"))
                break
            found = read_line(raw, endpoint=endpoint, max_line_bytes=max_line_bytes)
            if isinstance(found, BatchLine):
                key = digest(found.custom_id)
                if key in seen:
                    message = "custom_id: given before; each must be unique"
                    found = _problem("duplicate_custom_id", message, param="custom_id")
                seen.add(key)
            if isinstance(found, LineError):
                errors.append(found.model_copy(update={"line": number}))
            else:
                model = found.body.get("model")
                models.add(encodable(model) if isinstance(model, str) else None)
            if len(errors) == MAX_ERRORS:
                break
    if number == 0:
        errors.append(_problem("empty_file", "the file holds no requests"))
    return Checked(num_lines=number, errors=tuple(errors), model=next(iter(models)) if len(models) == 1 else None)


def raw_lines(file: IO[bytes], *, max_line_bytes: int) -> Iterator[bytes]:
    """Yield the lines that are not blank. A line that is too long is cut."""
    while raw := file.readline(max_line_bytes + 1):
        if len(raw) > max_line_bytes and not raw.endswith(b"\n"):
            while (rest := file.readline(max_line_bytes)) and not rest.endswith(b"\n"):
                pass
        if raw.strip():
            yield raw


def lines(path: Path, *, endpoint: str, max_line_bytes: int) -> Iterator[BatchLine]:
    """Yield the requests of a checked file."""
    with path.open("rb") as file:
        for raw in raw_lines(file, max_line_bytes=max_line_bytes):
            line = read_line(raw, endpoint=endpoint, max_line_bytes=max_line_bytes)
            if isinstance(line, BatchLine):
                yield line


def read_line(raw: bytes, *, endpoint: str, max_line_bytes: int) -> BatchLine | LineError:
    """Parse one line. Return its request, or the error in it."""
    if len(raw) > max_line_bytes:
        return _problem("line_too_long", f"the line is longer than {max_line_bytes} bytes")
    try:
        check_json(raw)
        value = parse_json(raw)
    except Refused as refused:
        return _problem("line_too_long", str(refused))
    except NumberTooLarge as error:
        problem = problem_of_number(error)
        return _problem("invalid_json_line", problem.message, param=problem.param)
    except (ValueError, RecursionError) as error:
        return _problem("invalid_json_line", f"not JSON: {error}")
    if not isinstance(value, Mapping):
        return _problem("invalid_json_line", "not a JSON object")
    custom_id, body = value.get("custom_id"), value.get("body")
    if not isinstance(custom_id, str) or not custom_id:
        return _problem("missing_required_parameter", "custom_id: expected: a string", param="custom_id")
    if value.get("method") != "POST":
        return _problem("invalid_method", 'method: expected: "POST"', param="method")
    if value.get("url") != endpoint:
        return _problem("mismatched_endpoint", f"url: expected: the batch's endpoint, {endpoint}", param="url")
    if not isinstance(body, dict):
        return _problem("missing_required_parameter", "body: expected: a JSON object", param="body")
    return BatchLine(custom_id=custom_id, body=body)


def _problem(code: str, message: str, *, param: str | None = None) -> LineError:
    return LineError(code=code, message=message, param=param)


def answer_line(custom_id: str, *, status: int, request_id: str, body: Mapping[str, Any]) -> bytes:
    """Return the line of an answered request. Answers with an error status belong in the error file."""
    response = {"status_code": status, "request_id": request_id, "body": body}
    return _encoded(custom_id, response=response, error=None)


def unanswered_line(custom_id: str, *, code: str, message: str) -> bytes:
    """Return a line of the error file for a request that was never run."""
    return _encoded(custom_id, response=None, error={"code": code, "message": message})


def _encoded(custom_id: str, *, response: Mapping[str, Any] | None, error: Mapping[str, Any] | None) -> bytes:
    line = {"id": f"batch_req_{uuid.uuid4().hex}", "custom_id": custom_id, "response": response, "error": error}
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def usage_in(path: Path) -> dict[str, Any] | None:
    """Return the token counts of all answers in an output file. None: the file does not exist."""
    if not path.exists():
        return None
    counts = [0, 0, 0]
    with path.open("rb") as file:
        for raw in file:
            usage = json.loads(raw)["response"]["body"].get("usage") or {}
            details = usage.get("input_tokens_details") or usage.get("prompt_tokens_details") or {}
            found = (
                usage.get("input_tokens", usage.get("prompt_tokens", 0)),
                usage.get("cached_tokens", details.get("cached_tokens", 0)),
                usage.get("output_tokens", usage.get("completion_tokens", 0)),
            )
            counts = [total + (count or 0) for total, count in zip(counts, found, strict=True)]
    num_input, num_cached, num_output = counts
    return {
        "input_tokens": num_input,
        "input_tokens_details": {"cached_tokens": num_cached},
        "output_tokens": num_output,
        "output_tokens_details": {"reasoning_tokens": num_output},
        "total_tokens": num_input + num_output,
    }
