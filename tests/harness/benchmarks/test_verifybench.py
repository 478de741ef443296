from __future__ import annotations

import pytest

from tirjudge.right import Decision, ScoringRule, credit
from tirjudge.types import Mode
from tirjudge_harness.benchmarks.verifybench import BENCHMARK
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.evaluation import evaluate
from tirjudge_harness.protocols import OFFICIAL, PAPER


def row(number: int, *, right: object = True, **more: object) -> dict[str, object]:
    return {
        "question": f"What is {number} + 1?",
        "answer": f"{number + 1}",
        "completion": f"It is {number + bool(right)}.",
        "gold_correct": right,
        "answer_type": "kind",
        "answer_subtype": "kind of number",
        **more,
    }


def test_the_judge_sees_the_reference_and_one_answer(load) -> None:
    right, wrong = load(BENCHMARK, [row(0), row(1, right=False)], part="verify_bench")
    assert (right.reference, right.responses, right.outline.correct) == ("1", ("It is 1.",), (0,))
    assert wrong.outline.correct == ()
    assert wrong.outline.tags == {"type": "VerifyBench, kind", "subtype": "VerifyBench, kind of number"}
    assert BENCHMARK.asked(wrong.outline, mode=Mode.POINTWISE) == [(0,)]


def test_a_score_in_the_upper_half_accepts_and_no_verdict_is_wrong(load, rated) -> None:
    labels, scores = [True, True, False, False, False], [6, 5, 6, 5, None]
    examples = load(BENCHMARK, [row(n, right=label) for n, label in enumerate(labels)], part="verify_bench_hard")
    judged = [rated(example, score) for example, score in zip(examples, scores, strict=True)]
    for protocol in (PAPER, OFFICIAL):
        evaluation = evaluate(BENCHMARK, judged, mode=Mode.POINTWISE, protocol=protocol)
        values = {figure.name: figure.value for figure in evaluation.figures}
        assert values["VerifyBench-Hard"] == pytest.approx(2 / 5)
        # Right answers have 6 and 5; wrong ones 6, 5 and none. 6 > 5 > none: wins 0.5 + 1 + 1 and 0 + 0.5 + 1.
        assert values["VerifyBench-Hard, area under ROC"] == pytest.approx(4 / 6)
        assert values["VerifyBench"] is None
        assert values["type: VerifyBench-Hard, kind"] == pytest.approx(2 / 5)
        counts = evaluation.counts
        assert (counts.right, counts.wrong, counts.no_verdict, counts.missing) == (2, 2, 1, 0)


def test_an_example_without_a_judgment_is_missing(load, rated) -> None:
    first, second = load(BENCHMARK, [row(0), row(1, right=False)], part="verify_bench")
    unjudged = rated(second, 1)
    judged = [rated(first, 9), type(unjudged)(outline=second.outline, mode=Mode.POINTWISE, decisions=())]
    evaluation = evaluate(BENCHMARK, judged, mode=Mode.POINTWISE, protocol=PAPER)
    assert (evaluation.counts.marks, evaluation.counts.missing) == (1, 1)


@pytest.mark.parametrize(
    ("score", "right", "accept_from", "result"),
    [
        (7.0, {0}, 6, ("right", 1.0)),
        (7.0, set(), 6, ("wrong", 0.0)),
        (5.9, set(), 6, ("right", 1.0)),
        (7.0, {0}, 8, ("wrong", 0.0)),
    ],
)
def test_a_single_response_is_accepted_from_a_threshold(
    score: float, right: set[int], accept_from: float, result: tuple[str, float]
) -> None:
    decisions = [Decision(shown=(0,), score=score)]
    rule = ScoringRule(accept_from=accept_from)
    assert credit(decisions, (0,), right=frozenset(right), mode=Mode.POINTWISE, counting=rule) == result


def test_an_invalid_row_is_reported(load, bad) -> None:
    assert len(load(BENCHMARK, [row(0), row(1, right="yes")], part="verify_bench")) == 1
    assert [report.problem for report in bad] == ["gold_correct: expected a boolean, got 'yes'"]


def test_raw_scores_accept_nothing_but_are_ordered(load) -> None:
    labels, scores = [True, False, True], [2.5, -2.5, 1.0]
    examples = load(BENCHMARK, [row(n, right=label) for n, label in enumerate(labels)], part="verify_bench")
    judged = [
        JudgedExample(
            outline=example.outline, mode=Mode.POINTWISE, decisions=(Decision(shown=(0,), score=score, scalar=True),)
        )
        for example, score in zip(examples, scores, strict=True)
    ]
    evaluation = evaluate(BENCHMARK, judged, mode=Mode.POINTWISE, protocol=OFFICIAL)
    values = {figure.name: figure.value for figure in evaluation.figures}
    assert (values["VerifyBench"], values["VerifyBench, area under ROC"]) == (None, 1.0)
