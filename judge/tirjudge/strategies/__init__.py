"""Strategies for ranking N responses to one prompt, one per module. Other packages register theirs under
`tirjudge.strategies`.

    pointwise       N judgments; score: the number that the judge wrote
    expected_score  N judgments; score: the sum of score x P(score)
    circular        N comparisons, each response with its neighbors; score: mean P(it is better)
    all_pairs       N(N-1)/2 comparisons; score: mean P(it is better); alias: `round_robin`
    knockout        N-1 comparisons in ceil(log2 N) rounds; score: share of rounds survived
    listwise        one judgment over all responses, or over groups and then their winners
    verified_vote   N judgments; a vote over answers in which responses verified by a program weigh more (T3RL)
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
"""Installed strategies, by name."""


def names_of_strategies(*, fits: Callable[[Strategy], bool] = lambda strategy: True) -> list[str]:
    """Return the names of the installed strategies for which `fits` is true."""
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
"""Name of a strategy that compares responses with each other."""

RankingStrategy = Annotated[
    str,
    AfterValidator(partial(_check, fits=_without_answers)),
    Field(json_schema_extra=partial(_schema, fits=_without_answers)),
]
"""Name of a strategy that needs only the responses, not their final answers."""
