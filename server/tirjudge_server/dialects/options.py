"""The query of a dialect's URL: how to judge.

Clients of a dialect cannot send fields of ours, but they all take a URL:
`http://host:8400/get_reward?mode=pointwise&tools=on&fallback=0.5`. An option that does not exist is an error that names it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import Field, ValidationError, field_validator

from tirjudge.http.protocol import parse_json, problem_of
from tirjudge.http.rewards import JudgingOptions, RewardMode
from tirjudge.integrations.detemplate import ResponseView
from tirjudge.strategies import ComparingStrategy
from tirjudge.types import Number
from tirjudge_web.errors import Refused

_NO_TEXT = re.compile(r"-?\d|true$|false$|null$|\[|\{")


class DialectOptions(JudgingOptions):
    """What a query may say. A dialect with options of its own has a subclass."""

    texts: ClassVar[frozenset[str]] = frozenset({"rubric", "model"})
    """Options that are text, even where they look like a number."""

    mode: RewardMode | None = None
    """None: as the server was started."""
    strategy: ComparingStrategy | None = None
    """The same."""
    scale: tuple[Number, Number] | None = None
    """The same; `0,5` are the worst and the best reward."""
    fallback: Annotated[Number | None, Field(description="Stands in for a score that is missing.")] = None
    """The same."""
    response_view: ResponseView | None = None
    """The same."""

    @field_validator("scale", mode="before")
    @classmethod
    def _scale_is_a_pair(cls, value: Any) -> Any:
        return [float(part) for part in value.split(",")] if isinstance(value, str) and "," in value else value


Options = TypeVar("Options", bound=DialectOptions)


def options_of(query: Mapping[str, str], *, model: type[Options] = DialectOptions) -> Options:
    """The options in a query.

    Raises:
        Refused: there is no such option, or not with this value.
    """
    try:
        return model.model_validate({n: text if n in model.texts else _value(text) for n, text in query.items()})
    except ValidationError as error:
        raise Refused(problem_of(error, model=model)) from error


def _value(text: str) -> Any:
    """`3`, `true` and `[...]` as JSON, everything else as text."""
    if not _NO_TEXT.match(text):
        return text
    try:
        return parse_json(text.encode())
    except (ValueError, RecursionError):
        return text
