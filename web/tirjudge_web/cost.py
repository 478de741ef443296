"""Refuse a request that would cost too much with a 413, before any of its work is done."""

from __future__ import annotations

from tirjudge.http.protocol import invalid
from tirjudge_web.errors import Refused

TOO_MUCH_WORK = "too_much_work"
"""Error code."""

MAX_JSON_VALUES = 2**19
"""Maximum number of values in the JSON of one request. Lists, objects and keys count twice. The limit is needed because
two bytes of JSON can take more than 64 bytes of memory after parsing."""

_BEFORE_VALUES = (b"[", b"{", b",", b":")


def check_cost(given: int, *, most: int, what: str, param: str | None, remedy: str) -> None:
    """Check that a cost is within its maximum.

    Args:
        given: cost of the request.
        most: maximum cost.
        what: unit of the cost, such as `characters of prompts`.
        param: name of the request field that causes the cost. None: the whole body.
        remedy: advice for the caller, such as `send fewer questions`.

    Raises:
        Refused: 413, `given` exceeds `most`.
    """
    if given > most:
        message = f"{param or 'body'}: {given:,} {what}, at most {most:,} are allowed; {remedy}"
        raise Refused(invalid(message, param=param, code=TOO_MUCH_WORK), status=413)


def check_json(text: bytes, *, param: str | None = None) -> None:
    """Check that a JSON text is small enough to be parsed.

    Raises:
        Refused: 413, it contains more than `MAX_JSON_VALUES` values.
    """
    # A fast upper bound, which also counts characters inside strings. Most requests need no exact count.
    num_values = sum(map(text.count, _BEFORE_VALUES))
    if num_values > MAX_JSON_VALUES:
        num_values = _num_values_outside_texts(text)
    remedy = "split it into several requests"
    check_cost(num_values, most=MAX_JSON_VALUES, what="JSON values", param=param, remedy=remedy)


def _num_values_outside_texts(text: bytes) -> int:
    """Count values without those characters that are inside strings."""
    plain = text.replace(rb"\\", b"").replace(rb"\"", b"")
    num_texts = plain.count(b'"') // 2
    if num_texts > MAX_JSON_VALUES:
        return num_texts
    outside = b"".join(plain.split(b'"')[::2])
    return sum(map(outside.count, _BEFORE_VALUES))
