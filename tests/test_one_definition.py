"""Rewards, validation, the bundled judge's card, benchmarks and `tirjudge judge` share one definition of a right judgment."""

from __future__ import annotations

import math

import pytest

from tests.judgments import build_judgment, build_rollout, build_rollout_verdict, build_verdict
from tirjudge.right import ScoringRule, credit, decisions_of
from tirjudge.types import Judgment, Mode, Rollout, StopReason
from tirjudge_harness.scoring import correctness as credit_of_file
from tirjudge_training.items import TrainingItem
from tirjudge_training.rewards import correctness as reward_correctness
from tirjudge_training.validation import names_best


def judged(*written: tuple[str, dict[str, float]]) -> Judgment:
    """A pointwise judgment. `written`: for each response, the score that the judge wrote, and score -> probability."""
    rollouts, scores = [], []
    for index, (label, chances) in enumerate(written):
        score = sum(int(name) * p for name, p in chances.items())
        verdict = build_rollout_verdict(label, score=score, probabilities=chances)
        rollouts.append(build_rollout([index], verdict=verdict))
        scores.append(score)
    best = max(range(len(scores)), key=scores.__getitem__)
    return build_judgment(build_verdict(best=best, label="A", scores=scores), mode=Mode.POINTWISE, rollouts=rollouts)


def rolled(label: str) -> Rollout:
    return Rollout(prompt_ids=(1,), turns=(), stop_reason=StopReason.VERDICT, model="m", label=label)


@pytest.mark.parametrize(
    ("written", "right"),
    [
        (("8", "3"), True),
        (("3", "8"), False),
        # Both responses got the score 7, so no response wins, although the first has the higher expected score.
        (("7", "7"), False),
    ],
)
def test_all_users_of_the_definition_agree_on_a_pair_of_scores(written: tuple[str, str], right: bool) -> None:
    first, second = written
    judgment = judged((first, {first: 0.9, "9": 0.1}), (second, {second: 1.0}))
    item = TrainingItem(
        id="i", mode=Mode.POINTWISE, prompt="p", responses=("a", "b"), best=0, task="t", source="s", verifiable=True,
        order=(0, 1),
    )  # fmt: skip
    rewards = reward_correctness(item, {(0,): [rolled(first)], (1,): [rolled(second)]})
    assert rewards == {(0,): [float(right)], (1,): [float(right)]}
    assert names_best(judgment, 0) is right
    counted = credit(
        decisions_of(judgment, asked=(0, 1)), (0, 1), right=frozenset({0}), mode=Mode.POINTWISE, counting=ScoringRule()
    )
    assert counted is not None
    assert (counted[0] == "right") is right
    of_file = credit_of_file(judgment, label=0)
    assert of_file is not None
    assert math.isclose(of_file, 1.0) is right
    assert (counted[0] == "tie") is (first == second) is (of_file == 0.5)
