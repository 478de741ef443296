"""Limits of keys on requests and tokens per minute, with a fake clock."""

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


def test_requests_beyond_the_limit_are_refused() -> None:
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


def test_unused_requests_accumulate_for_at_most_one_minute() -> None:
    clock = Clock()
    limits = KeyLimits(key_with(rpm=2), clock=clock)
    clock.now += 3600
    limits.admit()
    limits.admit()
    with pytest.raises(Refused):
        limits.admit()


def test_tokens_of_a_judgment_delay_later_requests() -> None:
    clock = Clock()
    limits = KeyLimits(key_with(tpm=600), clock=clock)
    limits.admit()
    limits.spend(900)  # 300 tokens of debt, repaid at 10 per second; a request needs one token
    with pytest.raises(Refused) as refused:
        limits.admit()
    assert refused.value.headers["retry-after-ms"] == "30100"
    clock.now += 30.2
    limits.admit()


def test_a_refused_request_is_not_counted() -> None:
    clock = Clock()
    limits = KeyLimits(key_with(rpm=1, tpm=1), clock=clock)
    limits.spend(1)
    for _ in range(5):
        with pytest.raises(Refused, match="1 tokens per minute"):
            limits.admit()
    clock.now += 60
    limits.admit()


def test_a_key_without_limits_is_never_refused() -> None:
    limits = KeyLimits(key_with())
    limits.spend(10**9)
    for _ in range(1000):
        limits.admit()
