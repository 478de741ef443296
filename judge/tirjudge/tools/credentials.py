"""Credentials that a tool adds to its requests on the host.

`${NAME}` in settings stands for an environment variable of the host. Texts that leave the tool, such as results and errors,
are passed through `removed_from`, because a server may echo what it received.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

_VARIABLE = re.compile(r"\$\{(\w*)\}")

_MIN_CHARS = 8
"""Length of the shortest credential that is removed from texts. Shorter ones, such as `true`, occur in ordinary text."""

REMOVED = "[credential]"
"""Text in place of a credential."""


class Credentials:
    """Values of environment variables and headers that must not reach a program.

    Args:
        environ: environment of the host.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._values: set[str] = set()

    def filled(self, text: str, *, where: str) -> str:
        """Return a text of the settings with the values of its variables, and remember these values as credentials.

        Args:
            text: text with `${NAME}`.
            where: name of the setting, for error messages.

        Raises:
            ValueError: a variable is not set.
        """

        def value_of(match: re.Match[str]) -> str:
            value = self._environ.get(match[1])
            if not value:
                raise ValueError(f"{where}: the environment variable {match[1]!r} is not set")
            self._add(value)
            return value

        return _VARIABLE.sub(value_of, text)

    def headers(self, headers: Mapping[str, str], *, where: str) -> dict[str, str]:
        """Return headers, named in lower case, with the values of their variables; remember the values as credentials.

        Raises:
            ValueError: a variable is not set, or a header is not one line of ASCII.
        """
        made: dict[str, str] = {}
        for name, text in headers.items():
            value = self.filled(text, where=f"{where}.{name}")
            if not (is_header_name(name) and is_header_value(value)):
                raise ValueError(
                    f"{where}.{name}: not a header: use letters, digits and - in the name, ASCII in the value"
                )
            for part in (value, *value.split()):
                self._add(part)
            made[name.lower()] = value
        return made

    def removed_from(self, text: str) -> str:
        """Return a text without credentials."""
        for value in sorted(self._values, key=len, reverse=True):
            text = text.replace(value, REMOVED)
        return text

    def removed_from_bytes(self, body: bytes) -> bytes:
        """Return a body without credentials."""
        for value in sorted(self._values, key=len, reverse=True):
            body = body.replace(value.encode(), REMOVED.encode())
        return body

    def removed_from_json(self, value: JsonValue) -> Any:
        """Return a JSON value without credentials in its texts and keys."""
        match value:
            case str():
                return self.removed_from(value)
            case list():
                return [self.removed_from_json(each) for each in value]
            case dict():
                return {self.removed_from(key): self.removed_from_json(each) for key, each in value.items()}
            case _:
                return value

    @property
    def max_bytes(self) -> int:
        """Size of the longest credential."""
        return max((len(value.encode()) for value in self._values), default=0)

    def _add(self, value: str) -> None:
        if len(value) >= _MIN_CHARS:
            self._values.add(value)


def is_header_name(name: str) -> bool:
    """Whether a text is a name of a header: letters, digits and hyphens."""
    return name.isascii() and name.replace("-", "").replace("_", "").isalnum()


def is_header_value(value: str) -> bool:
    """Whether a text is a value of a header: one line of printable ASCII."""
    return value.isascii() and value.isprintable()
