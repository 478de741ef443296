from __future__ import annotations

import io

import pytest
from rich.console import Console

from tirjudge.types import Mode, Outcome, StopReason
from tirjudge_harness.output import OutputRecord
from tirjudge_harness.scoring import correctness
from tirjudge_harness.summary import summarize, summary_table


def test_choosing_the_labeled_response_is_right(make_judgment) -> None:
    assert correctness(make_judgment(best=1), label=1) == 1.0
    assert correctness(make_judgment(best=1), label=0) == 0.0


def test_without_a_label_nothing_is_scored(make_judgment) -> None:
    assert correctness(make_judgment(best=1), label=None) is None
    alone = make_judgment(mode=Mode.POINTWISE, best=None, scores=[7.0])
    assert correctness(alone, label=0) is None


@pytest.mark.parametrize(
    ("scores", "label", "correct"),
    [([7.0, 7.0], 0, 1 / 2), ([7.0, 3.0, 7.0, 7.0], 2, 1 / 3), ([7.0, 3.0, 7.0], 1, 0.0)],
)
def test_pointwise_a_tie_for_the_best_score_gets_partial_credit(
    make_judgment, scores, label: int, correct: float
) -> None:
    tie = make_judgment(mode=Mode.POINTWISE, status="tie", best=None, scores=scores)
    assert correctness(tie, label=label) == correct


@pytest.mark.parametrize("status", ["tie", "abstained"])
def test_a_tie_or_an_abstention_is_not_right(make_judgment, status: str) -> None:
    assert correctness(make_judgment(status=status, best=None), label=0) == 0.0


def test_the_summary_has_the_expected_rates(make_judgment) -> None:
    verdict, ok, error, timeout = StopReason.VERDICT, Outcome.OK, Outcome.ERROR, Outcome.TIMEOUT
    judgments = [
        (1.0, make_judgment(rollouts=[(verdict, [ok, error])])),
        (1.0, make_judgment(rollouts=[(verdict, [ok]), (StopReason.LENGTH, [])])),
        (0.0, make_judgment(best=1, rollouts=[(StopReason.TOOL_BUDGET, [ok, timeout, ok])])),
        (0.0, make_judgment(status="tie", best=None)),
        (0.0, make_judgment(status="abstained", best=None, rollouts=[(StopReason.NO_VERDICT, [])])),
        (None, make_judgment(rollouts=[(verdict, [])])),
    ]
    records = [
        OutputRecord(id=str(n), correct=correct, judgment=judgment, item_sha256="", configuration={})
        for n, (correct, judgment) in enumerate(judgments)
    ]
    summary = summarize(records, num_failed=2, num_malformed=3, num_new=3, elapsed_s=1.5)
    assert (summary.num_judged, summary.num_failed, summary.num_malformed, summary.num_scored) == (6, 2, 3, 5)
    assert summary.accuracy == 2 / 5
    assert summary.interval == (pytest.approx(0.1176, abs=1e-3), pytest.approx(0.7693, abs=1e-3))
    assert (summary.num_ties, summary.num_abstentions) == (1, 1)
    assert summary.tool_use_rate == 3 / 7
    assert summary.code_error_rate == 2 / 6
    assert summary.no_verdict_rate == 3 / 7
    assert summary.mean_tool_calls == 1.0
    assert (summary.input_tokens, summary.output_tokens) == (600, 60)
    assert summary.judgments_per_s == 2.0


def test_rates_without_data_are_none() -> None:
    summary = summarize([], num_failed=0, num_malformed=0, num_new=0, elapsed_s=0.0)
    assert (summary.accuracy, summary.interval, summary.judgments_per_s, summary.mean_tool_calls) == (None,) * 4
    console = Console(file=io.StringIO(), width=80)
    console.print(summary_table(summary))
