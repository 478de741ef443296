"""Read and parse request bodies within limits. An error names the problem and the field."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from tirjudge.http.protocol import NumberTooLarge, invalid, parse_json, problem_of, problem_of_number, shown
from tirjudge_web.body_budget import held_body
from tirjudge_web.cost import check_json
from tirjudge_web.draining import Draining
from tirjudge_web.errors import Refused

Model = TypeVar("Model", bound=BaseModel)

MAX_LENGTH_DIGITS = 18
"""Maximum number of digits of a `Content-Length`. A longer one exceeds any limit."""


async def read_body(request: Request, *, max_bytes: int) -> bytes:
    """Read the whole body. Stop as soon as it is known to be too large.

    Raises:
        Refused: 400, the body is compressed; 413, it is larger than `max_bytes`; 503, the bodies of all requests exceed the
            server's budget.
    """
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding not in ("identity", ""):
        message = f"content-encoding: {shown(encoding)} given; send the body without compression"
        raise Refused(invalid(message, param="content-encoding", code="unsupported_encoding"))
    declared = request.headers.get("content-length", "0")
    # Check the length first: Python refuses to parse an integer of thousands of digits.
    if declared.isdecimal() and (len(declared) > MAX_LENGTH_DIGITS or int(declared) > max_bytes):
        raise _too_large(shown(declared).strip('"'), max_bytes=max_bytes)
    body, held = bytearray(), held_body(request.scope)
    async with held.reading():
        async for chunk in request.stream():
            held.add(len(chunk))
            body += chunk
            if len(body) > max_bytes:
                raise _too_large(f"more than {max_bytes}", max_bytes=max_bytes)
    return bytes(body)


async def read_request(request: Request, model: type[Model], *, draining: Draining, max_bytes: int) -> Model:
    """Read and parse a request. At shutdown, the server stops waiting for the rest of a body.

    Raises:
        Refused: see `read_body` and `parse_body`.
        ShuttingDown: the grace period ended before the body was complete.
    """
    async with draining.limit():
        body = await read_body(request, max_bytes=max_bytes)
    return parse_body(body, model)


def _too_large(given: str, *, max_bytes: int) -> Refused:
    message = f"body: {given} bytes given, this server takes {max_bytes}; send less, or split it into several requests"
    return Refused(invalid(message, param="body", code="body_too_large"), status=413)


def parse_body(body: bytes, model: type[Model]) -> Model:
    """Parse and validate a request.

    Raises:
        Refused: 400, the body is not UTF-8, not JSON, or not a valid request; 413, it has too many JSON values.
    """
    try:
        return model.model_validate(_parsed(body))
    except ValidationError as error:
        raise Refused(problem_of(error, model=model)) from error


def _parsed(body: bytes) -> Any:
    check_json(body)
    try:
        return parse_json(body)
    except UnicodeDecodeError as error:
        message = f"body: not UTF-8, byte {error.start} is 0x{body[error.start]:02x}"
        raise Refused(invalid(message, param="body", code="not_utf8")) from error
    except RecursionError as error:
        raise Refused(invalid("body: nested too deeply", param="body", code="invalid_json")) from error
    except NumberTooLarge as error:
        raise Refused(problem_of_number(error)) from error
    except ValueError as error:
        raise Refused(invalid(f"body: not JSON: {error}", param="body", code="invalid_json")) from error
