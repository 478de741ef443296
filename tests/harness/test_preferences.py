"""Preferences of people between two responses, from votes and labels."""

from __future__ import annotations

from typing import Any

import pytest

from tirjudge.verdict import TIED
from tirjudge_harness.benchmarks.human_votes import VOTES
from tirjudge_harness.examples import ExampleMetadata
from tirjudge_harness.external import EVEN
from tirjudge_harness.preferences import preference_of_people


@pytest.mark.parametrize(
    ("facts", "correct", "num_responses", "expected"),
    [
        ({VOTES: [0, 0, TIED, 1]}, (0,), 2, 0.625),
        ({VOTES: [TIED]}, (0, 1), 2, 0.5),
        ({EVEN: True}, (), 2, 0.5),
        ({}, (1,), 2, 0.0),
        ({}, (0,), 2, 1.0),
        ({}, (0, 1), 2, None),
        ({}, (), 2, None),
        ({}, (0,), 3, None),
    ],
)
def test_votes_and_labels_are_a_preference(
    facts: dict[str, Any], correct: tuple[int, ...], num_responses: int, expected: float | None
) -> None:
    outline = ExampleMetadata(id="1", subset="", num_responses=num_responses, correct=correct, cluster="1", facts=facts)
    assert preference_of_people(outline) == expected
