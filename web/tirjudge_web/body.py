"""Reads and parses request bodies within limits; a refusal names what is wrong."""

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
"""Of a `Content-Length`."""


async def read_body(request: Request, *, max_bytes: int) -> bytes:
    """The whole body; reading stops as soon as it is known to be too large.

    Raises:
        Refused: 413; or 503, bodies of others leave no room.
    """
    declared = request.headers.get("content-length", "0")
    # Python refuses to read an integer of thousands of digits; one that has more than the limit is larger.
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
    """The request in a body, as `read_body` and `parse_body`; a server that ends does not wait for the rest of it.

    Raises:
        Refused: as there.
        ShuttingDown: the server ended first.
    """
    async with draining.limit():
        body = await read_body(request, max_bytes=max_bytes)
    return parse_body(body, model)


def _too_large(given: str, *, max_bytes: int) -> Refused:
    message = f"body: {given} bytes given, this server takes {max_bytes}; send less, or in several requests"
    return Refused(invalid(message, param="body", code="body_too_large"), status=413)


def parse_body(body: bytes, model: type[Model]) -> Model:
    """The request in a body.

    Raises:
        Refused: 400, not UTF-8, not JSON, or not a request; 413, too many JSON values.
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
