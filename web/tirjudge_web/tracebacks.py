"""Formats exceptions for logs: frames and kinds, never messages, which may quote a caller."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from types import TracebackType

from tirjudge.errors import TirjudgeError, logged


def frames_of(error: BaseException) -> str:
    """The traceback of an exception and of those that led to it, the first one first; instead of messages their kinds."""
    parts = []
    for each in reversed(list(_chain(error))):
        said = f": {logged(each)}" if isinstance(each, TirjudgeError) else ""
        frames = "".join(traceback.format_tb(each.__traceback__))
        parts.append(f"{frames}{type(each).__module__}.{type(each).__qualname__}{said}")
    return "\n".join(parts)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, those that it holds, and what each was raised from."""
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
    """Lines of text."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        record.exc_text = None  # what another handler made of it
        return super().format(record)

    def formatException(
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        return "" if ei[1] is None else frames_of(ei[1])
