from __future__ import annotations

from collections.abc import Sequence

import pytest

from tirjudge.right import Decision, decisions_of
from tirjudge.types import Judgment, Mode, Outcome, RolloutRecord, RolloutVerdict, StopReason, TurnRecord
from tirjudge_harness.scoring import correctness


def rollout(
    *order: int, label: str | None, best: int | None = None, score: float | None = None, ran: Sequence[Outcome] = ()
) -> RolloutRecord:
    verdict = None
    if label is not None:
        verdict = RolloutVerdict(
            label=label, best=best, score=score, probabilities={label: 0.75, "Z": 0.25}, label_mass=1.0, forced=False
        )
    return RolloutRecord(
        order=list(order),
        turns=[TurnRecord(text="", code="1", output="", outcome=outcome) for outcome in ran],
        stop_reason=StopReason.VERDICT,
        verdict=verdict,
    )


def with_rollouts(judgment: Judgment, *rollouts: RolloutRecord) -> Judgment:
    return judgment.model_copy(update={"rollouts": list(rollouts)})


def test_decisions_use_the_indexes_of_the_example(make_judgment) -> None:
    judgment = with_rollouts(make_judgment(), rollout(1, 0, label="A", best=1), rollout(0, 1, label=None))
    assert decisions_of(judgment, asked=(2, 5)) == [
        Decision(shown=(5, 2), best=5, probabilities=(0.75, 0.25)),
        Decision(shown=(2, 5)),
    ]


def test_a_decision_has_the_written_and_the_expected_score(make_judgment) -> None:
    judgment = with_rollouts(make_judgment(mode=Mode.POINTWISE), rollout(0, label="7", score=6.5))
    (decision,) = decisions_of(judgment, asked=(3,))
    assert (decision.shown, decision.score, decision.expected_score) == ((3,), 7.0, 6.5)


@pytest.mark.parametrize("ran", [(), (Outcome.REFUSED,)])
def test_a_verdict_without_a_required_program_does_not_count(make_judgment, ran: Sequence[Outcome]) -> None:
    judgment = with_rollouts(
        make_judgment(),
        rollout(0, 1, label="A", best=0, ran=ran),
        rollout(0, 1, label="A", best=0, ran=[Outcome.ERROR]),
    )
    needing = decisions_of(judgment, asked=(0, 1), needs_program=True)
    assert [decision.has_verdict for decision in needing] == [False, True]
    assert all(decision.has_verdict for decision in decisions_of(judgment, asked=(0, 1)))


def test_a_judgment_in_groups_is_one_decision(make_judgment) -> None:
    judgment = with_rollouts(
        make_judgment(mode=Mode.LISTWISE, best=1), rollout(0, 2, label="A", best=0), rollout(0, 1, label="B", best=1)
    )
    assert decisions_of(judgment, asked=(4, 5, 6)) == [Decision(shown=(4, 5, 6), best=5, whole=True)]


def test_a_labeled_response_that_was_not_compared_is_not_right(make_judgment) -> None:
    judgment = with_rollouts(
        make_judgment(mode=Mode.LISTWISE, status="abstained", best=None), rollout(0, 1, label=None)
    )
    assert correctness(judgment, label=2) == 0.0


def test_a_single_response_is_not_scored_even_without_a_verdict(make_judgment) -> None:
    judgment = make_judgment(mode=Mode.POINTWISE, status="abstained", best=None)
    assert correctness(with_rollouts(judgment, rollout(0, label=None)), label=0) is None
    assert correctness(with_rollouts(judgment, rollout(0, label=None), rollout(1, label=None)), label=0) == 0.0


def test_a_response_without_a_score_leaves_the_others_undecided(make_judgment) -> None:
    judgment = make_judgment(mode=Mode.POINTWISE, status="abstained", best=None, scores=[7.0, None])
    assert correctness(judgment, label=0) == 0.0
