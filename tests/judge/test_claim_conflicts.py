"""Contradictory claims are decided by the validity, the authority and the date of their stores."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from tirjudge.claims import MAX_COMPARED, is_valid, resolved
from tirjudge.types import CitedCall, ClaimRecord, StoreCard

DAY = datetime.date(2026, 6, 1)


def card(name: str, **fields: Any) -> StoreCard:
    return StoreCard(name=name, kind="table", sha256="0" * 64, num_bytes=1, **fields)


def said(status: Any, *stores: str, start: int = 0, end: int = 5, response: int = 0) -> ClaimRecord:
    return ClaimRecord(
        response=response,
        start=start,
        end=end,
        text="x" * (end - start),
        status=status,
        made=CitedCall(rollout=0, turn=0, call=1),
        sources=dict.fromkeys(stores, "0" * 64),
    )


def date(text: str) -> datetime.date:
    return datetime.date.fromisoformat(text)


@pytest.mark.parametrize(
    ("first", "second", "overruled"),
    [
        ({}, {"authority": 1}, [(1, "authority"), (None, None)]),
        ({"valid_until": date("2026-05-31"), "authority": 9}, {}, [(1, "validity"), (None, None)]),
        ({}, {"valid_from": date("2026-06-02"), "authority": 9}, [(None, None), (0, "validity")]),
        ({"valid_from": date("2026-01-01")}, {"valid_from": date("2025-01-01")}, [(None, None), (0, "date")]),
        ({"valid_from": date("2026-01-01")}, {"authority": 1}, [(1, "authority"), (None, None)]),
    ],
)
def test_validity_goes_before_authority_and_authority_before_the_date(first, second, overruled) -> None:
    cards = {"a": card("a", **first), "b": card("b", **second)}
    decided, conflicts = resolved([said("supported", "a"), said("contradicted", "b")], stores=cards, day=DAY)
    assert [(claim.overruled_by, claim.overruled_for) for claim in decided] == overruled
    assert conflicts == []


def test_equal_stores_leave_a_conflict() -> None:
    cards = {"a": card("a"), "b": card("b")}
    claims = [said("violates_rule", "a"), said("supported", "b", start=4, end=9)]
    decided, (conflict,) = resolved(claims, stores=cards, day=DAY)
    assert decided == claims
    assert (conflict.claims, conflict.stores) == ([0, 1], ["a", "b"])


@pytest.mark.parametrize(
    "other",
    [
        said("contradicted", "b", start=5, end=9),
        said("contradicted", "b", response=1),
        said("supported", "b"),
        said("contradicted", "a"),
        said("not_in_evidence", "b"),
        said("contradicted"),
    ],
)
def test_claims_that_do_not_contradict_are_left_alone(other) -> None:
    cards = {"a": card("a"), "b": card("b", authority=1)}
    claims = [said("supported", "a"), other]
    assert resolved(claims, stores=cards, day=DAY) == (claims, [])


def test_a_claim_on_several_stores_has_the_rank_of_the_weakest() -> None:
    cards = {"a": card("a", authority=1), "b": card("b", authority=2), "c": card("c")}
    decided, _ = resolved([said("supported", "a"), said("contradicted", "b", "c")], stores=cards, day=DAY)
    assert [claim.overruled_by for claim in decided] == [None, 0]


def test_the_number_of_compared_claims_is_bounded() -> None:
    cards = {"a": card("a"), "b": card("b")}
    claims = [said("supported", "a")] * MAX_COMPARED + [said("contradicted", "b")]
    assert resolved(claims, stores=cards, day=DAY)[1] == []


def test_the_first_and_the_last_day_are_valid() -> None:
    store = card("a", valid_from=DAY, valid_until=DAY)
    assert [is_valid(store, day=DAY + datetime.timedelta(days=n)) for n in (-1, 0, 1)] == [False, True, False]
