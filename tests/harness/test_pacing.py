from __future__ import annotations

import pytest

from tirjudge_harness.pacing import PATIENCE, Pace


def answers(pace: Pace, latency_s: float, *, num: int | None = None) -> None:
    """Start and answer `num` requests. None: as many as the current limit."""
    stage = pace.begin()
    for _ in range(pace.limit if num is None else num):
        pace.answered(latency_s, stage=stage)


def test_the_limit_doubles_from_32_while_latency_stays() -> None:
    pace = Pace(most=200)
    limits = []
    for _ in range(5):
        limits.append(pace.limit)
        answers(pace, 2.0)
    assert limits == [32, 64, 128, 200, 200]


def test_the_limit_never_exceeds_the_maximum() -> None:
    pace = Pace(most=3)
    assert pace.limit == 3
    answers(pace, 1.0)
    assert pace.limit == 3


def test_a_refusal_halves_the_limit_once_per_stage() -> None:
    pace = Pace(most=64, first=64)
    stage = pace.begin()
    for _ in range(10):
        pace.refused(stage=stage)
    assert (pace.limit, pace.num_refusals) == (32, 1)
    pace.refused(stage=pace.begin())
    assert (pace.limit, pace.num_refusals) == (16, 2)


def test_the_limit_is_at_least_one() -> None:
    pace = Pace(most=64, first=3)
    for _ in range(5):
        pace.refused(stage=pace.begin())
    assert pace.limit == 1
    answers(pace, 1.0)
    assert pace.limit == 2


def test_after_a_refusal_the_limit_grows_by_one() -> None:
    pace = Pace(most=64, first=16)
    pace.refused(stage=pace.begin())
    limits = []
    for _ in range(4):
        limits.append(pace.limit)
        answers(pace, 1.0)
    assert limits == [8, 9, 10, 11]


def test_the_limit_stays_while_requests_are_queued() -> None:
    """A server with 16 slots and 1 s per request: with 32 concurrent requests, each takes 2 s."""
    pace = Pace(most=64, first=16)
    answers(pace, 1.0)
    assert pace.limit == 32
    answers(pace, 2.0)
    assert pace.limit == 32
    answers(pace, 2.0)
    assert pace.limit == 32


def test_latency_may_grow_with_the_square_root_of_the_limit() -> None:
    """An engine that batches: twice the requests in 1.4 times the time is a gain; 2.3 / 1.4 times the time is not."""
    pace = Pace(most=1000, first=16)
    answers(pace, 1.0)
    answers(pace, 1.4)
    assert pace.limit == 64
    answers(pace, 2.3)
    assert pace.limit == 64


def test_requests_of_an_earlier_stage_do_not_count() -> None:
    pace = Pace(most=64, first=16)
    old = pace.begin()
    answers(pace, 1.0)
    for _ in range(64):
        pace.answered(100.0, stage=old)
    pace.refused(stage=old)
    assert (pace.limit, pace.num_refusals) == (32, 0)


def test_higher_latency_becomes_the_reference_after_a_while() -> None:
    pace = Pace(most=64, first=16)
    answers(pace, 1.0)
    for _ in range(PATIENCE):
        assert pace.limit == 32
        answers(pace, 5.0)
    answers(pace, 5.0)
    assert pace.limit == 33


def test_the_limit_changes_only_after_enough_answers() -> None:
    pace = Pace(most=64, first=16)
    answers(pace, 1.0, num=15)
    assert pace.limit == 16
    answers(pace, 1.0, num=1)
    assert pace.limit == 32


def test_a_maximum_below_one_is_rejected() -> None:
    with pytest.raises(ValueError, match="concurrency: must be at least 1, got 0"):
        Pace(most=0)
