"""Parses timestamps from the command line: a date, a date with a time, or a time span such as `30d`."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

import typer

_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def parse_timestamp(given: str, *, option: str, ahead: bool) -> int:
    """Return a timestamp as Unix time in milliseconds.

    Args:
        given: such as `2030-01-31`, `2030-01-31T12:00` or `30d` (units s, m, h, d, w). A time without a zone is UTC.
        option: name of the option, for the error.
        ahead: whether the time has to be in the future, and a span is added to the current time. If not, it is subtracted.

    Raises:
        typer.BadParameter: `given` has none of these formats, or is not in the future.
    """
    span = _SPAN.fullmatch(given)
    now_s = time.time()
    if span:
        away_s = float(span[1]) * _SECONDS[span[2]]
        at_s = now_s + (away_s if ahead else -away_s)
    else:
        try:
            moment = datetime.fromisoformat(given)
        except ValueError:
            wanted = "use 2030-01-31, 2030-01-31T12:00 or 30d"
            raise typer.BadParameter(f"{given!r} given; {wanted}", param_hint=option) from None
        at_s = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if ahead and at_s <= now_s:
        raise typer.BadParameter(f"{given!r} given; expected: a time in the future", param_hint=option)
    return round(at_s * 1000)
