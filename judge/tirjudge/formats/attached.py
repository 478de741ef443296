"""Lines of a prompt that name the stores of evidence that come with a request. The texts are untrusted."""

from __future__ import annotations

from collections.abc import Sequence

from tirjudge.formats.texts import elide
from tirjudge.types import AttachedFile, AttachedStore

MAX_CHARS = 4000
"""Maximum total length of the lines shown in full, in characters."""

MAX_FILES = 8
"""Maximum number of files of a store in its line."""

MAX_NAME_CHARS = 60
"""Maximum length of the name of a file shown in full, in characters."""

MAX_HEADER_CHARS = 200
"""Maximum length of the header of a CSV file, in characters. The rest is cut."""


def store_lines(stores: Sequence[AttachedStore]) -> list[str]:
    """Return a line for each store: its name, its kind, and its files with their formats and the header of CSV files."""
    return [elide(_store_line(store), limit=MAX_CHARS // len(stores)) for store in stores]


def _store_line(store: AttachedStore) -> str:
    files = [_file(file) for file in store.files[:MAX_FILES]]
    more = len(store.files) - MAX_FILES
    return f"{store.name} ({store.kind}): {'; '.join(files)}" + (f"; and {more} more files" if more > 0 else "")


def _file(file: AttachedFile) -> str:
    shown = f"{_one_line(file.name, limit=MAX_NAME_CHARS)} ({file.format})"
    if file.format != "csv" or file.text is None:
        return shown
    header = file.text[:MAX_HEADER_CHARS].lstrip("\ufeff").partition("\n")[0]
    return f"{shown} with columns {_one_line(header, limit=MAX_HEADER_CHARS)}"


def _one_line(text: str, *, limit: int) -> str:
    return elide(" ".join(text.split()), limit=limit)
