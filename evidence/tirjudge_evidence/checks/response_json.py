"""The parts of a response that checks read: its JSON, a fenced block, and values in them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import re2
from pydantic import Field, model_validator

from tirjudge.types import encodable_json
from tirjudge_evidence.checks.base import CheckSettings, Missing

MAX_JSON_CHARS = 1 << 18
"""Maximum length of the JSON of a response."""

MAX_DEPTH = 64
"""Maximum nesting of the JSON of a response."""

MAX_VALUE_CHARS = 10_000
"""Maximum length of a value from a response."""

ValueType = Literal["string", "integer", "number", "boolean", "iri"]
"""Type of a value in a query."""

Scalar = str | int | float | bool
"""A value in a query."""


class FromResponse(CheckSettings):
    """A check with values from the response: by JSON pointers into its JSON, or by the named groups of a pattern."""

    params: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")], str] = Field(default_factory=dict)
    """Name -> JSON pointer."""
    extract: str | None = None
    """Pattern (re2) with named groups. None: only `params`."""
    types: dict[str, ValueType] = Field(default_factory=dict)
    """Name -> type. Without one, a JSON value has its own type and a group is a string."""

    @model_validator(mode="after")
    def _check_values(self) -> FromResponse:
        named = set(self.params)
        if self.extract is not None:
            groups = set(compiled(self.extract).groupindex)
            if not groups or groups & named:
                raise ValueError("extract: expected named groups with other names than `params`")
            named |= groups
        if unknown := sorted(set(self.types) - named):
            raise ValueError(f"types: {unknown[0]} is neither in `params` nor a group of `extract`")
        for pointer in self.params.values():
            if pointer and not pointer.startswith("/"):
                raise ValueError(f"params: {pointer!r} given, expected a JSON pointer such as /amount")
        return self

    @property
    def names(self) -> set[str]:
        """Names of the values."""
        return set(self.params) | (set(compiled(self.extract).groupindex) if self.extract is not None else set())

    def values_in(self, response: str) -> dict[str, Scalar]:
        """Return the values of a response by name.

        Raises:
            Missing: the response lacks one, or it does not have its type.
        """
        found: dict[str, Any] = {}
        if self.params:
            contents = json_of(response)
            found = {name: at_pointer(contents, pointer) for name, pointer in self.params.items()}
        if self.extract is not None:
            match = compiled(self.extract).search(response)
            if match is None:
                raise Missing("the pattern of `extract` does not match the response")
            found |= match.groupdict()
        return {name: _typed(name, value, self.types.get(name)) for name, value in found.items()}


def compiled(pattern: str) -> Any:
    """Return a compiled pattern, which takes linear time.

    Raises:
        ValueError: the pattern is invalid.
    """
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0] if error.args else ""
        said = said.decode(errors="replace") if isinstance(said, bytes) else said
        raise ValueError(f"pattern {pattern!r} is not valid in re2: {said}") from None


def fenced_block(response: str, *, languages: tuple[str, ...]) -> str | None:
    """Return the content of the first fenced block in one of the languages; None if there is none."""
    inside: list[str] | None = None
    fence, is_ours = "", False
    for line in response.split("\n"):
        bare = line.strip()
        if inside is None and bare.startswith("```"):
            fence = bare[: len(bare) - len(bare.lstrip("`"))]
            language = bare[len(fence) :].strip().lower()
            inside, is_ours = [], language in languages
        elif inside is not None and bare == fence:
            if is_ours:
                return "\n".join(inside)
            inside = None
        elif inside is not None:
            inside.append(line)
    return None


def json_of(response: str) -> Any:
    """Return the JSON of a response: its first fenced `json` block, otherwise the whole response.

    Lone surrogates are replaced by U+FFFD, as in the texts of a request.

    Raises:
        Missing: there is none, or it exceeds a limit.
    """
    block = fenced_block(response, languages=("json", "jsonc", "json-ld", "jsonld"))
    text = response if block is None else block
    if len(text) > MAX_JSON_CHARS:
        raise Missing(f"the JSON of the response has {len(text):,} characters, the limit is {MAX_JSON_CHARS:,}")
    try:
        contents = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        raise Missing("the response has no valid JSON") from None
    if _depth_exceeds(contents):
        raise Missing(f"the JSON of the response is nested more than {MAX_DEPTH} times")
    return encodable_json(contents)


def _finite(spelled: str) -> float:
    if not math.isfinite(number := float(spelled)):
        raise Missing(f"the JSON of the response has the number {spelled[:80]}, which no 64-bit float holds")
    return number


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _depth_exceeds(contents: Any) -> bool:
    level = [contents]
    for _ in range(MAX_DEPTH):
        level = [
            part
            for each in level
            if isinstance(each, dict | list)
            for part in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True


def at_pointer(contents: Any, pointer: str) -> Any:
    """Return the value at a JSON pointer (RFC 6901).

    Raises:
        Missing: the JSON has nothing there.
    """
    value = contents
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and len(key) < 10 and int(key) < len(value):
            value = value[int(key)]
        else:
            raise Missing(f"the JSON of the response has nothing at {pointer}")
    return value


def _typed(name: str, value: Any, kind: ValueType | None) -> Scalar:
    if isinstance(value, str) and len(value) > MAX_VALUE_CHARS:
        raise Missing(f"{name}: {len(value):,} characters, the limit is {MAX_VALUE_CHARS:,}")
    if kind is None and isinstance(value, Scalar):
        return value
    is_text, is_number = isinstance(value, str), isinstance(value, int | float) and not isinstance(value, bool)
    try:
        if kind in ("string", "iri") and is_text:
            return value
        if kind == "integer" and (is_text or is_number) and float(value).is_integer():
            return int(value)
        if kind == "number" and (is_text or is_number) and abs(float(value)) <= 1e300:
            return float(value)
    except (ValueError, OverflowError):
        pass
    if kind == "boolean" and (isinstance(value, bool) or str(value).lower() in ("true", "false")):
        return str(value).lower() == "true"
    shown = json.dumps(value)[:80]
    raise Missing(f"{name}: {shown} given, expected a value of type {kind or 'string, number or boolean'}")
