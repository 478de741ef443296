"""URLs of the engines of a fleet: fixed URLs, and URLs from a file that is read again after each change.

If the file cannot be read or contains no URL, the previous URLs stay in use, so that a partially written file does not
stop a server.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from tirjudge.http.workers import BadUrl, service_url

logger = logging.getLogger(__name__)

Stamp = tuple[int, int, int]


class EngineUrls:
    """Callable that returns the current URLs.

    Args:
        given: fixed URLs.
        file: file with one URL per line. Empty lines and text after a # are ignored. None: no file.

    Raises:
        BadUrl: an entry is not a URL, or there are no URLs.
    """

    def __init__(self, given: Sequence[str] = (), *, file: Path | None = None) -> None:
        self._given = [service_url(url) for url in given]
        self._file = file
        self._stamp: Stamp | None = None
        self._problem: str | None = None
        """Why the file could not be read last time. Each problem is logged once."""
        self._read: list[str] = []
        if file is not None:
            self._stamp, self._read = _stamp(file), _urls_in(file)
        elif not self._given:
            raise BadUrl("engines: no URL given; give at least one")

    def __call__(self) -> list[str]:
        if self._file is not None:
            self._read_again(self._file)
        return [*self._given, *self._read]

    def _read_again(self, file: Path) -> None:
        try:
            stamp = _stamp(file)
            if stamp != self._stamp:
                self._stamp = stamp
                self._read = _urls_in(file)
            self._problem = None
        except BadUrl as error:
            if str(error) != self._problem:
                logger.warning("engine URLs not updated: %s", error)
            self._problem, self._stamp = str(error), None


def _stamp(file: Path) -> Stamp:
    """Return a value that differs after every change of the file.

    Raises:
        BadUrl: the file does not exist.
    """
    try:
        status = file.stat()
    except OSError as error:
        raise BadUrl(f"{file}: {error.strerror}") from error
    return status.st_mtime_ns, status.st_size, status.st_ino


def _urls_in(file: Path) -> list[str]:
    """Read the URLs in a file.

    Raises:
        BadUrl: the file cannot be read, has a line that is not a URL, or contains no URL.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadUrl(f"{file}: {error}") from error
    urls: list[str] = []
    for number, line in enumerate(lines, start=1):
        if content := line.partition("#")[0].strip():
            try:
                urls.append(service_url(content))
            except BadUrl as error:
                raise BadUrl(f"{file}, line {number}: {error}") from error
    if not urls:
        raise BadUrl(f"{file}: contains no URL; add at least one")
    return urls
