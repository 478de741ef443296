"""Ranking strategies, one a file: how many responses to one prompt are set in order. Other packages add theirs under
`tirjudge.strategies`.

    pointwise       N judgments: the score that the judge wrote
    expected_score  N judgments: the sum of score x P(score)
    circular        N comparisons, each response with its neighbours: mean P(it is the better one)
    all_pairs       N(N-1)/2 comparisons: the same mean; `round_robin` is another name for it
    knockout        N-1 comparisons in ceil(log2 N) rounds: share of the rounds that it survived
    listwise        one judgment over all, or groups whose winners meet
    verified_vote   N judgments: a vote over answers, in which one that a program verified weighs more (T3RL)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from tirjudge.kinds import Kinds
from tirjudge.strategies.base import Strategy

STRATEGIES: Kinds[Strategy] = Kinds("tirjudge.strategies", what="strategy")
"""By name."""


def names_of_strategies(*, fits: Callable[[Strategy], bool] = lambda strategy: True) -> list[str]:
    """The names of the installed strategies that fit."""
    return [name for name, strategy in STRATEGIES.items() if fits(strategy)]


def _comparing(strategy: Strategy) -> bool:
    return strategy.compares


def _without_answers(strategy: Strategy) -> bool:
    return not strategy.needs_answers


def _check(name: str, *, fits: Callable[[Strategy], bool]) -> str:
    if name not in STRATEGIES or not fits(STRATEGIES[name]):
        *names, last = map(repr, names_of_strategies(fits=fits))
        raise PydanticCustomError("enum", "Input should be {expected}", {"expected": f"{', '.join(names)} or {last}"})
    return name


def _schema(schema: dict[str, Any], *, fits: Callable[[Strategy], bool]) -> None:
    schema["enum"] = names_of_strategies(fits=fits)


ComparingStrategy = Annotated[
    str,
    AfterValidator(partial(_check, fits=_comparing)),
    Field(json_schema_extra=partial(_schema, fits=_comparing)),
]
"""Name of a strategy that sets responses against each other."""

RankingStrategy = Annotated[
    str,
    AfterValidator(partial(_check, fits=_without_answers)),
    Field(json_schema_extra=partial(_schema, fits=_without_answers)),
]
"""Name of a strategy that needs the responses alone."""
