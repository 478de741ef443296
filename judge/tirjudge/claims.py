"""The claims of a judgment: what programs claimed about parts of responses, and which claims contradict each other.

A program makes a claim with the function `claim`. The host checks it, and its answer says which part of which response the
claim is about and which calls it rests on. The claims of a judgment are read from the recorded calls.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tirjudge.types import (
    CallRecord,
    CitedCall,
    ClaimConflict,
    ClaimRecord,
    ClaimStatus,
    JudgeRequest,
    RolloutRecord,
    StoreCard,
    TurnRecord,
    label_of,
)

CLAIM = "claim"
"""Name of the function that makes a claim."""


class CitedRows(BaseModel):
    """A call of the same program that a claim rests on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    call: int = Field(ge=1)
    """Number of the call in the program, from 1."""
    rows: list[int] = Field(default_factory=list)
    """Indexes of the cited items of the result. Empty: the whole result."""


class Claimed(BaseModel):
    """The host's answer to a call of `claim`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    claim: int
    """Number of the claim in the program, from 1."""
    response: str
    """Label of the response as the model saw it. Empty: the only one."""
    start: int = Field(ge=0)
    """Start of the part in the response, in characters."""
    end: int
    """End of the part in the response, in characters."""
    status: ClaimStatus
    """What the evidence says about the part."""
    rule: str | None = None
    """Name of the violated rule. None: no rule."""
    calls: list[CitedRows]
    """Calls that the claim rests on."""


def claimed(call: CallRecord) -> Claimed | None:
    """Return the claim that a call made. None: a call of another function, or it failed."""
    if call.function != CLAIM or call.error is not None:
        return None
    try:
        return Claimed.model_validate(call.result)
    except ValidationError:  # a function of the same name from another tool
        return None


def claims_of(
    rollouts: Sequence[RolloutRecord], *, request: JudgeRequest, stores: Sequence[StoreCard], day: datetime.date
) -> tuple[list[ClaimRecord], list[ClaimConflict]]:
    """Return the claims of a judgment, and the conflicts that nothing decides.

    Args:
        rollouts: rollouts with their calls.
        request: the judged request.
        stores: cards of the stores that the calls queried.
        day: day of the judgment. Stores that are not valid on it are overruled by those that are.
    """
    claims = [
        claim
        for number, rollout in enumerate(rollouts)
        for place, turn in enumerate(rollout.turns)
        for claim in _of_turn(turn, rollout=number, place=place, order=rollout.order, request=request)
    ]
    return resolved(claims, stores={card.name: card for card in stores}, day=day)


def _of_turn(
    turn: TurnRecord, *, rollout: int, place: int, order: Sequence[int], request: JudgeRequest
) -> Iterator[ClaimRecord]:
    shown = {label_of(index): response for index, response in enumerate(order)} | {"": order[0]}
    for number, call in enumerate(turn.calls):
        said = claimed(call)
        if said is None or said.response not in shown:
            continue
        cited = [
            CitedCall(rollout=rollout, turn=place, call=each.call - 1, rows=each.rows)
            for each in said.calls
            if each.call <= number
        ]
        response = shown[said.response]
        sources: dict[str, str] = {}
        for each in cited:
            sources |= turn.calls[each.call].sources
        yield ClaimRecord(
            response=response,
            start=said.start,
            end=said.end,
            text=request.responses[response][said.start : said.end],
            status=said.status,
            rule=said.rule,
            made=CitedCall(rollout=rollout, turn=place, call=number),
            calls=cited,
            sources=sources,
        )


def resolved(
    claims: Sequence[ClaimRecord], *, stores: Mapping[str, StoreCard], day: datetime.date
) -> tuple[list[ClaimRecord], list[ClaimConflict]]:
    """Decide between contradictory claims that rest on different stores. An overruled claim is kept and names the other one.

    A store that is not valid on the day loses, then one of lower authority, then one whose validity begins earlier. A claim
    that rests on several stores has the rank of its weakest one.

    Returns:
        The claims, and the pairs of claims of equal rank.
    """
    decided = list(claims)
    conflicts: list[ClaimConflict] = []
    ranks = [_rank(claim, stores=stores, day=day) for claim in claims]
    for i, k in _contradictory(claims):
        winner, loser = (i, k) if ranks[i] > ranks[k] else (k, i)
        if ranks[i] == ranks[k]:
            conflicts.append(ClaimConflict(claims=[i, k], stores=sorted(claims[i].sources | claims[k].sources)))
        elif decided[loser].overruled_by is None:
            why = _deciding(ranks[winner], ranks[loser])
            decided[loser] = decided[loser].model_copy(update={"overruled_by": winner, "overruled_for": why})
    return decided, conflicts


_Rank = tuple[bool, int, datetime.date]


def _rank(claim: ClaimRecord, *, stores: Mapping[str, StoreCard], day: datetime.date) -> _Rank:
    cards = [stores[name] for name in claim.sources if name in stores]
    return min(
        ((is_valid(card, day=day), card.authority, card.valid_from or datetime.date.min) for card in cards),
        default=(False, 0, datetime.date.min),
    )


def is_valid(card: StoreCard, *, day: datetime.date) -> bool:
    """Whether the contents of a store are valid on a day."""
    return (card.valid_from or day) <= day <= (card.valid_until or day)


def _deciding(winner: _Rank, loser: _Rank) -> Literal["validity", "authority", "date"]:
    if winner[0] != loser[0]:
        return "validity"
    return "authority" if winner[1] != loser[1] else "date"


MAX_COMPARED = 300
"""Maximum number of claims of a judgment that are compared with one another."""


def _contradictory(claims: Sequence[ClaimRecord]) -> Iterator[tuple[int, int]]:
    """Yield pairs of claims on overlapping parts of one response, from different stores: one supports, the other does not.
    Where nothing was found, there is nothing to contradict."""
    compared = [n for n, claim in enumerate(claims) if claim.status != "not_in_evidence" and claim.sources]
    for i, k in combinations(compared[:MAX_COMPARED], 2):
        first, second = claims[i], claims[k]
        if (
            first.response == second.response
            and (first.status == "supported") != (second.status == "supported")
            and first.start < second.end
            and second.start < first.end
            and first.sources.keys() != second.sources.keys()
        ):
            yield i, k
