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


def test_decisions_speak_of_the_example_and_not_of_what_was_sent(make_judgment) -> None:
    judgment = with_rollouts(make_judgment(), rollout(1, 0, label="A", best=1), rollout(0, 1, label=None))
    assert decisions_of(judgment, asked=(2, 5)) == [
        Decision(shown=(5, 2), best=5, probabilities=(0.75, 0.25)),
        Decision(shown=(2, 5)),
    ]


def test_a_score_is_kept_as_written_and_as_expected(make_judgment) -> None:
    judgment = with_rollouts(make_judgment(mode=Mode.POINTWISE), rollout(0, label="7", score=6.5))
    (decision,) = decisions_of(judgment, asked=(3,))
    assert (decision.shown, decision.score, decision.expected_score) == ((3,), 7.0, 6.5)


@pytest.mark.parametrize("ran", [(), (Outcome.REFUSED,)])
def test_a_verdict_that_needs_a_program_and_has_none_does_not_count(make_judgment, ran: Sequence[Outcome]) -> None:
    judgment = with_rollouts(
        make_judgment(),
        rollout(0, 1, label="A", best=0, ran=ran),
        rollout(0, 1, label="A", best=0, ran=[Outcome.ERROR]),
    )
    needing = decisions_of(judgment, asked=(0, 1), needs_program=True)
    assert [decision.has_verdict for decision in needing] == [False, True]
    assert all(decision.has_verdict for decision in decisions_of(judgment, asked=(0, 1)))


def test_a_judgment_in_groups_is_one_decision_over_all(make_judgment) -> None:
    judgment = with_rollouts(
        make_judgment(mode=Mode.LISTWISE, best=1), rollout(0, 2, label="A", best=0), rollout(0, 1, label="B", best=1)
    )
    assert decisions_of(judgment, asked=(4, 5, 6)) == [Decision(shown=(4, 5, 6), best=5, whole=True)]


def test_a_labelled_response_that_met_nobody_was_not_named(make_judgment) -> None:
    judgment = with_rollouts(
        make_judgment(mode=Mode.LISTWISE, status="abstained", best=None), rollout(0, 1, label=None)
    )
    assert correctness(judgment, label=2) == 0.0


def test_one_response_alone_has_nothing_to_be_right_about_even_without_a_verdict(make_judgment) -> None:
    judgment = make_judgment(mode=Mode.POINTWISE, status="abstained", best=None)
    assert correctness(with_rollouts(judgment, rollout(0, label=None)), label=0) is None
    assert correctness(with_rollouts(judgment, rollout(0, label=None), rollout(1, label=None)), label=0) == 0.0


def test_a_response_without_a_score_leaves_the_others_undecided(make_judgment) -> None:
    judgment = make_judgment(mode=Mode.POINTWISE, status="abstained", best=None, scores=[7.0, None])
    assert correctness(judgment, label=0) == 0.0
