"""The gate rejects stages that lost accuracy or tool use."""

from dataclasses import replace

import pytest

from tirjudge.selective import GradedItem, selective_accuracy
from tirjudge_training.gate import GateRule, ValidationScore, compare


def score(right: str, *, tool_use: float | None = 1.0) -> ValidationScore:
    """A score from one letter per item: r is right, w is wrong."""
    results = {str(place): letter == "r" for place, letter in enumerate(right)}
    return ValidationScore(accuracy=right.count("r") / len(right), tool_use=tool_use, right=results)


def test_better_stage_is_accepted() -> None:
    decided = compare(score("rrrrwwww"), score("rrrrrrww"), rule=GateRule())
    assert decided.accepted
    assert decided.complaints == ()


def test_stage_that_lost_items_is_rejected() -> None:
    # 2 lost, 0 gained, accuracy .75 -> .5: 2 > 1 * sqrt(2)
    decided = compare(score("rrrrrrww"), score("wwrrrrww"), rule=GateRule())
    assert not decided.accepted
    assert decided.complaints == ("accuracy fell from 75.0% to 50.0%: 2 held-out items lost, 0 gained",)


def test_a_complaint_says_whether_coverage_or_the_verdicts_became_worse() -> None:
    before, after = score("rrrrrrww"), score("wwrrrrww")
    items = [GradedItem(credit=float(letter == "r"), has_verdict=True, basis="reasoned") for letter in "rrrrrrww"]
    unknown = [replace(item, has_verdict=False) for item in items[:2]] + items[2:]
    decided = compare(
        replace(before, selective=selective_accuracy(items)),
        replace(after, selective=selective_accuracy(unknown)),
        rule=GateRule(),
    )
    (complaint,) = decided.complaints
    assert complaint.endswith("coverage from 100.0% to 75.0%, accuracy of the verdicts from 75.0% to 66.7%")


def test_drop_within_the_noise_is_accepted() -> None:
    # 3 lost, 2 gained: 1 is not above sqrt(5) = 2.24, though accuracy fell by 12.5 points
    before, after = score("rrrrrwww"), score("wwwrrrrw")
    assert compare(before, after, rule=GateRule()).accepted
    assert not compare(before, after, rule=GateRule(z=0.0)).accepted


def test_drop_within_the_margin_is_accepted() -> None:
    before, after = score("r" * 10), score("w" + "r" * 9)
    assert compare(before, after, rule=GateRule(z=0.0, margin=0.1)).accepted
    assert not compare(before, after, rule=GateRule(z=0.0, margin=0.09)).accepted


@pytest.mark.parametrize(("after", "accepted"), [(0.76, True), (0.75, False)])
def test_stage_with_less_tool_use_is_rejected(after: float, accepted: bool) -> None:
    # 95 % of .8 is .76
    decided = compare(score("rw", tool_use=0.8), score("rw", tool_use=after), rule=GateRule())
    assert decided.accepted is accepted


def test_tool_use_is_not_checked_without_verifiable_items() -> None:
    assert compare(score("rw", tool_use=None), score("rw", tool_use=None), rule=GateRule()).accepted


def test_warn_records_complaints_and_accepts_the_stage() -> None:
    worse = replace(score("wwrrrrww"), tool_use=0.0)
    decided = compare(score("rrrrrrww"), worse, rule=GateRule(mode="warn"))
    assert decided.accepted
    assert len(decided.complaints) == 2
    assert compare(score("rrrrrrww"), worse, rule=GateRule(mode="off")).complaints == ()
