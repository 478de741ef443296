"""Refuses a request that costs too much with a 413, before any of its work is done."""

from __future__ import annotations

from tirjudge.http.protocol import invalid
from tirjudge_web.errors import Refused

TOO_MUCH_WORK = "too_much_work"
"""The code of the error."""

MAX_JSON_VALUES = 2**19
"""Most values in the JSON of one request, where a list or an object counts twice, as does a key: two bytes of JSON take more
than 64 bytes of memory once they are parsed."""

_BEFORE_VALUES = (b"[", b"{", b",", b":")


def check_cost(given: int, *, most: int, what: str, param: str | None, remedy: str) -> None:
    """
    Args:
        given: what the request costs.
        most: what it may cost.
        what: is counted, such as `characters of prompts`.
        param: the field that costs so much.
        remedy: what fixes it, such as `send fewer questions`.

    Raises:
        Refused: 413, it costs more.
    """
    if given > most:
        message = f"{param or 'body'}: {given:,} {what}, at most {most:,} are taken; {remedy}"
        raise Refused(invalid(message, param=param, code=TOO_MUCH_WORK), status=413)


def check_json(text: bytes, *, param: str | None = None) -> None:
    """Whether a JSON text is small enough to be parsed at once.

    Raises:
        Refused: 413, it holds more than `MAX_JSON_VALUES` values.
    """
    # Counts too many where texts hold such characters, but takes no time; most requests need no closer look.
    num_values = sum(map(text.count, _BEFORE_VALUES))
    if num_values > MAX_JSON_VALUES:
        num_values = _num_values_outside_texts(text)
    remedy = "split it into several requests"
    check_cost(num_values, most=MAX_JSON_VALUES, what="JSON values", param=param, remedy=remedy)


def _num_values_outside_texts(text: bytes) -> int:
    plain = text.replace(rb"\\", b"").replace(rb"\"", b"")
    num_texts = plain.count(b'"') // 2
    if num_texts > MAX_JSON_VALUES:
        return num_texts
    outside = b"".join(plain.split(b'"')[::2])
    return sum(map(outside.count, _BEFORE_VALUES))
