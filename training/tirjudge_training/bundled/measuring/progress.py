"""Progress of long measurements."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console

LINE_EVERY_S = 10.0
"""Seconds between two lines of progress."""

OnItem = Callable[[str, int, int | None], None]
"""Called with the name of what is done, the number of done items, and the number of all; None: not known."""


def progress_of(console: Console) -> OnItem:
    """Return a function that prints a line of progress every few seconds, and at the beginning and end of each part."""
    last = 0.0

    def moved(name: str, done: int, total: int | None) -> None:
        nonlocal last
        now = time.monotonic()
        if done in (0, total) or now - last >= LINE_EVERY_S:
            last = now
            console.print(f"{name}  {done}" if total is None else f"{name}  {done}/{total}", soft_wrap=True)

    return moved
