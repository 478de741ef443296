"""Format exceptions for logs: frames and exception types, but no messages, which may quote a caller's text."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from types import TracebackType

from tirjudge.errors import TirjudgeError, logged


def frames_of(error: BaseException) -> str:
    """Return the traceback of an exception and of its causes, oldest first. Messages are omitted, except those
    of `TirjudgeError`."""
    parts = []
    for each in reversed(list(_chain(error))):
        message = f": {logged(each)}" if isinstance(each, TirjudgeError) else ""
        frames = "".join(traceback.format_tb(each.__traceback__))
        parts.append(f"{frames}{type(each).__module__}.{type(each).__qualname__}{message}")
    return "\n".join(parts)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, its members if it is a group, and the causes of each."""
    waiting, seen = [error], set()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
        before = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
        if before is not None:
            waiting.append(before)


class Lines(logging.Formatter):
    """Log formatter for plain text. Tracebacks are formatted by `frames_of`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        record.exc_text = None  # drop a traceback that another handler has cached
        return super().format(record)

    def formatException(
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        return "" if ei[1] is None else frames_of(ei[1])
