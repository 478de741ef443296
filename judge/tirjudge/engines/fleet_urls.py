"""Where the engines of a fleet are: URLs that are given, and those of a file that is read again whenever it changed.

What cannot be read, or holds no URL at all, changes nothing: a file that is being written must not stop a server.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from tirjudge.http.workers import BadUrl, service_url

logger = logging.getLogger(__name__)

Stamp = tuple[int, int, int]


class EngineUrls:
    """Called, it says where they are now.

    Args:
        given: URLs that stay.
        file: with one URL a line; empty lines and what follows a # do not count. None: there is none.

    Raises:
        BadUrl: something given is no URL, or there is none.
    """

    def __init__(self, given: Sequence[str] = (), *, file: Path | None = None) -> None:
        self._given = [service_url(url) for url in given]
        self._file = file
        self._stamp: Stamp | None = None
        self._problem: str | None = None
        """Why the file was not read last time, which is told once."""
        self._read: list[str] = []
        if file is not None:
            self._stamp, self._read = _stamp(file), _urls_in(file)
        elif not self._given:
            raise BadUrl("engines: no URL given, at least one is needed")

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
                logger.warning("the engines stay as they are: %s", error)
            self._problem, self._stamp = str(error), None


def _stamp(file: Path) -> Stamp:
    """Another one after every change.

    Raises:
        BadUrl: there is no such file.
    """
    try:
        status = file.stat()
    except OSError as error:
        raise BadUrl(f"{file}: {error.strerror}") from error
    return status.st_mtime_ns, status.st_size, status.st_ino


def _urls_in(file: Path) -> list[str]:
    """
    Raises:
        BadUrl: it cannot be read, has a line that is no URL, or has none.
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
        raise BadUrl(f"{file}: no URL in it, at least one is needed")
    return urls
