"""Parses timestamps from the command line: a date, a date with a time, or a time span such as `30d`."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

import typer

_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def parse_timestamp(given: str, *, ahead: bool) -> int:
    """Return a timestamp as Unix time in milliseconds.

    Args:
        given: such as `2030-01-31`, `2030-01-31T12:00` or `30d` (units s, m, h, d, w). A time without a zone is UTC.
        ahead: whether a span is added to the current time. If not, it is subtracted.

    Raises:
        typer.BadParameter: `given` has none of these formats.
    """
    span = _SPAN.fullmatch(given)
    if span:
        away_s = float(span[1]) * _SECONDS[span[2]]
        return round((time.time() + (away_s if ahead else -away_s)) * 1000)
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise typer.BadParameter(f"{given!r} given; use 2030-01-31, 2030-01-31T12:00 or 30d") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
