"""The load during a run; expected values computed manually."""

from __future__ import annotations

import pytest

from tests.judgments import build_judgment
from tirjudge.types import Mode
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import ExampleMetadata
from tirjudge_harness.statistics.load import load_of


def judged(*timings: tuple[int, float]) -> list[JudgedExample]:
    """Examples with one judgment each. `timings`: Unix time of the end, and seconds."""
    outline = ExampleMetadata(id="a", subset="", num_responses=2, correct=(0,), cluster="a")
    return [
        JudgedExample(
            outline=outline,
            mode=Mode.PAIRWISE,
            decisions=(),
            judgments=(build_judgment(id=f"j{n}", created=end, total_s=seconds),),
        )
        for n, (end, seconds) in enumerate(timings)
    ]


def test_judgments_at_once_are_seconds_of_judgments_per_second() -> None:
    # From 90 to 110, 40 seconds of judgments.
    assert load_of(judged((100, 10.0), (110, 10.0), (105, 15.0), (95, 5.0))).at_once == pytest.approx(40 / 20)


def test_only_judgments_without_overlap_are_alone() -> None:
    # 90 to 100 and 95 to 105 overlap; 110 to 120 is alone, and so is 130 to 133.
    found = load_of(judged((100, 10.0), (105, 10.0), (120, 10.0), (133, 3.0)))
    assert found.num_alone == 2
    assert found.alone_s is not None
    assert (found.alone_s.median, found.alone_s.p90) == (3.0, 10.0)


def test_a_judgment_that_contains_another_is_not_alone() -> None:
    assert load_of(judged((200, 100.0), (130, 5.0), (150, 5.0))).num_alone == 0


def test_ends_are_known_to_a_second_so_that_a_close_neighbor_counts_as_overlap() -> None:
    assert load_of(judged((100, 5.0), (106, 5.5))).num_alone == 0
    assert load_of(judged((100, 5.0), (107, 5.5))).num_alone == 2


def test_a_run_without_judgments_has_no_load() -> None:
    found = load_of([])
    assert (found.at_once, found.alone_s, found.num_alone) == (None, None, 0)
