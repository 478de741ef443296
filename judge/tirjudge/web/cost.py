"""What a request costs is computed before any of its work is done; a request that costs too much is a 413."""

from __future__ import annotations

import re

from tirjudge.protocol import invalid
from tirjudge.web.errors import Refused

TOO_MUCH_WORK = "too_much_work"
"""The code of the error."""

MAX_JSON_VALUES = 2**19
"""Most values in the JSON of one request. A value of two bytes takes 64 bytes of memory once it is parsed."""

_JSON_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{,:]', re.DOTALL)
"""A string, closed or not, or what stands before a value. Possessive: no byte is read twice."""


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
    if sum(map(text.count, (b"[", b"{", b",", b":"))) <= MAX_JSON_VALUES:
        return
    num_values = 0
    for token in _JSON_TOKEN.finditer(text):
        num_values += token[0][:1] != b'"'
        if num_values > MAX_JSON_VALUES:
            remedy = "split it into several requests"
            check_cost(num_values, most=MAX_JSON_VALUES, what="JSON values or more", param=param, remedy=remedy)
