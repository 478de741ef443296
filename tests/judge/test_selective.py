"""Coverage and selective accuracy. The expected values were computed by hand."""

from __future__ import annotations

import pytest

from tests.judgments import build_judgment, build_rollout, build_rollout_verdict, build_verdict
from tirjudge.right import Decision, ScoringRule, basis_of_counted, decisions_of, is_right
from tirjudge.selective import GradedItem, selective_accuracy
from tirjudge.types import Basis, Judgment, Mode


def item(credit: float, basis: Basis | None, *, has_verdict: bool = True) -> GradedItem:
    return GradedItem(credit=credit, has_verdict=has_verdict, basis=basis)


ITEMS = [
    *[item(1.0, "checked")] * 3,
    item(0.0, "checked"),
    item(1.0, "reasoned"),
    item(0.5, "reasoned"),  # a tie
    item(0.0, "guessed"),
    *[item(0.0, None, has_verdict=False)] * 3,
]


def test_coverage_is_the_share_of_the_items_with_a_verdict() -> None:
    found = selective_accuracy(ITEMS)
    assert (found.coverage, found.accuracy) == (0.7, pytest.approx(4.5 / 7))
    shares = {name: (group.share, group.accuracy) for name, group in found.by_basis.items()}
    assert shares == {"checked": (0.4, 0.75), "reasoned": (0.2, 0.75), "guessed": (0.1, 0.0)}
    assert sum(group.num for group in found.by_basis.values()) == found.verdicts.num


def test_verdicts_without_a_recorded_basis_are_counted_as_unknown() -> None:
    found = selective_accuracy([item(1.0, None), item(0.0, "guessed")])
    assert (found.by_basis["unknown"].share, found.by_basis["unknown"].accuracy) == (0.5, 1.0)
    assert found.coverage == 1.0


def test_without_items_nothing_is_known() -> None:
    found = selective_accuracy([])
    assert (found.coverage, found.accuracy, found.verdicts.interval) == (None, None, None)


def test_a_credit_without_a_verdict_is_ignored() -> None:
    assert selective_accuracy([item(1.0, None, has_verdict=False), item(0.0, "guessed")]).accuracy == 0.0


FIRST, SECOND = (0, 1), (1, 0)
DECISIONS = [Decision(shown=FIRST, best=0, basis="checked"), Decision(shown=SECOND, best=0, basis="reasoned")]


def test_only_the_orders_that_count_have_a_basis() -> None:
    assert basis_of_counted(DECISIONS, (0, 1), counting=ScoringRule()) == "checked"
    assert basis_of_counted(DECISIONS, (0, 1), counting=ScoringRule(orders="mean")) == "reasoned"


def test_scores_of_single_responses_have_a_basis_together() -> None:
    alone = [Decision(shown=(0,), score=7.0, basis="checked"), Decision(shown=(1,), score=3.0, basis="guessed")]
    assert basis_of_counted(alone, (0, 1), counting=ScoringRule()) == "guessed"
    assert basis_of_counted(alone, (0,), counting=ScoringRule()) == "checked"


def withheld(mode: Mode, *, num_shown: int) -> Judgment:
    """A judgment with a right verdict in its rollouts that does not meet the requirements of its request."""
    verdict = build_verdict("abstained", reason="low_confidence")
    if mode is Mode.POINTWISE:
        rollouts = [build_rollout([i], verdict=build_rollout_verdict(str(9 - i))) for i in range(num_shown)]
    else:
        rollouts = [build_rollout(list(range(num_shown)), verdict=build_rollout_verdict("A", best=0))]
    return build_judgment(verdict, mode=mode, rollouts=rollouts)


@pytest.mark.parametrize("mode", [Mode.PAIRWISE, Mode.LISTWISE, Mode.POINTWISE])
def test_a_withheld_verdict_is_no_decision_and_not_right(mode: Mode) -> None:
    judgment = withheld(mode, num_shown=2)
    assert [each.has_verdict for each in decisions_of(judgment, asked=(0, 1))] == [False] * len(judgment.rollouts)
    assert is_right(judgment, 0) == ("none", 0.0)
    decided = judgment.model_copy(update={"verdict": build_verdict(best=0, label="A", scores=[9.0, 8.0])})
    assert is_right(decided, 0) == ("right", 1.0)
