"""Options in the query of a dialect's URL.

Clients of a dialect cannot send additional fields, but their users configure a URL:
`http://host:8400/get_reward?mode=pointwise&tools=on&fallback=0.5`. An unknown option is an error that names it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import Field, ValidationError, field_validator

from tirjudge.http.protocol import parse_json, problem_of
from tirjudge.http.rewards import JudgingOptions, RewardMode, Scale
from tirjudge.integrations.detemplate import ResponseView
from tirjudge.strategies import ComparingStrategy
from tirjudge.types import Number
from tirjudge_web.errors import Refused

_NO_TEXT = re.compile(r"-?\d|true$|false$|null$|\[|\{")


class DialectOptions(JudgingOptions):
    """The options of every dialect. A dialect with more options defines a subclass."""

    texts: ClassVar[frozenset[str]] = frozenset({"rubric", "model"})
    """Names of options that are text, even if the value looks like a number."""

    mode: RewardMode | None = None
    """Reward mode; None: the server's setting."""
    strategy: ComparingStrategy | None = None
    """Strategy of mode `cohort`; None: the server's setting."""
    scale: Scale | None = None
    """Worst and best reward, such as `0,5`; None: the server's setting."""
    fallback: Annotated[Number | None, Field(description="Score for missing scores.")] = None
    """Score for missing scores; None: the server's setting."""
    response_view: ResponseView | None = None
    """Whether the judge sees a response's reasoning; None: the server's setting."""

    @field_validator("scale", mode="before")
    @classmethod
    def _scale_is_a_pair(cls, value: Any) -> Any:
        with suppress(ValueError):
            return [float(part) for part in value.split(",")] if isinstance(value, str) else value
        return value


Options = TypeVar("Options", bound=DialectOptions)


def options_of(query: Mapping[str, str], *, model: type[Options] = DialectOptions) -> Options:
    """Parse the options of a query.

    Args:
        query: name -> value, as in the URL.
        model: the options of the dialect.

    Raises:
        Refused: 400, an option is unknown or has an invalid value.
    """
    try:
        return model.model_validate({n: text if n in model.texts else _value(text) for n, text in query.items()})
    except ValidationError as error:
        raise Refused(problem_of(error, model=model)) from error


def _value(text: str) -> Any:
    """Parse `3`, `true` and `[...]` as JSON; return every other value as text."""
    if not _NO_TEXT.match(text):
        return text
    try:
        return parse_json(text.encode())
    except (ValueError, RecursionError):
        return text
