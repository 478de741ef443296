"""What a key may, to the second, on a clock that the test winds."""

from __future__ import annotations

import pytest

from tirjudge_server.access.keys import Key
from tirjudge_server.access.limits import KeyLimits
from tirjudge_web.errors import Refused


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def key_with(**limits: int) -> Key:
    return Key(name="k", prefix="tj_", digest="", scopes=frozenset({"judge"}), created_ms=0, **limits)


def test_a_minute_has_as_many_requests_as_the_key_may() -> None:
    clock = Clock()
    limits = KeyLimits(key_with(rpm=3), clock=clock)
    for _ in range(3):
        limits.admit()
    with pytest.raises(Refused) as refused:
        limits.admit()
    assert (refused.value.status, refused.value.problem.code) == (429, "rate_limit_exceeded")
    assert refused.value.headers == {"retry-after": "20", "retry-after-ms": "20000"}
    clock.now += 19.9
    with pytest.raises(Refused):
        limits.admit()
    clock.now += 0.2
    limits.admit()


def test_a_long_pause_saves_up_one_minute_and_no_more() -> None:
    clock = Clock()
    limits = KeyLimits(key_with(rpm=2), clock=clock)
    clock.now += 3600
    limits.admit()
    limits.admit()
    with pytest.raises(Refused):
        limits.admit()


def test_tokens_are_paid_for_by_the_requests_after() -> None:
    clock = Clock()
    limits = KeyLimits(key_with(tpm=600), clock=clock)
    limits.admit()
    limits.spend(900)  # 300 are owed, at 10 a second; one more than none is needed
    with pytest.raises(Refused) as refused:
        limits.admit()
    assert refused.value.headers["retry-after-ms"] == "30100"
    clock.now += 30.2
    limits.admit()


def test_a_refused_request_costs_nothing() -> None:
    clock = Clock()
    limits = KeyLimits(key_with(rpm=1, tpm=1), clock=clock)
    limits.spend(1)
    for _ in range(5):
        with pytest.raises(Refused, match="1 tokens a minute"):
            limits.admit()
    clock.now += 60
    limits.admit()


def test_a_key_without_limits_may_as_much_as_it_likes() -> None:
    limits = KeyLimits(key_with())
    limits.spend(10**9)
    for _ in range(1000):
        limits.admit()
