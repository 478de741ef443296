"""The table of one run; expected values computed manually."""

from __future__ import annotations

import pytest

from tests.harness.reports.conftest import MakeRun, Pair
from tirjudge.prices import Prices
from tirjudge.types import Outcome
from tirjudge_harness.reports.formats import ReportFormat, render
from tirjudge_harness.reports.run_table import run_table
from tirjudge_harness.reports.scored import score_run
from tirjudge_harness.reports.tables import ReportTable


def values(table: ReportTable) -> dict[str, object]:
    """Return name in the first column -> value in the second column. For repeated names, the first row counts."""
    found: dict[str, object] = {}
    for row in table.rows:
        found.setdefault(str(row.entries[0].value), row.entries[1].value)
    return found


@pytest.fixture
def table(make_run: MakeRun) -> ReportTable:
    """The table of ten pairs in both orders: six right, two flipped, one wrong, one without a verdict in the second
    order. A program ran for five of the first six pairs, and failed for one of these."""
    named: list[tuple[int | None, ...]] = [(0, 0)] * 6 + [(0, 1)] * 2 + [(1, 1), (0, None)]
    outcomes = [Outcome.OK] * 4 + [Outcome.TIMEOUT, None] + [None] * 4
    pairs = [
        Pair(id=f"p{n}", named=each, outcome=outcome)
        for n, (each, outcome) in enumerate(zip(named, outcomes, strict=True))
    ]
    run = score_run(make_run(pairs, unjudged=[], data={"num_bad_rows": 3}))
    return run_table(run, prices=Prices(input=1.0, output=10.0))


def test_ties_and_missing_verdicts_are_not_counted_as_wrong(table: ReportTable) -> None:
    found = values(table)
    assert found["overall"] == pytest.approx(60.0)
    names = ("comparisons", "right", "wrong", "ties", "no verdict", "comparisons missing", "decisions")
    assert [found[name] for name in names] == [10, 6, 1, 2, 1, 0, 20]
    assert found["invalid rows of the data"] == 3


def test_the_table_shows_rates_of_verdicts_and_programs(table: ReportTable) -> None:
    found = values(table)
    assert found["decisions without a verdict"] == pytest.approx(5.0)  # 1 of 20
    assert found["rollouts that ran a program"] == pytest.approx(50.0)  # 10 of 20
    assert found["accuracy with programs"] == 100.0
    assert found["accuracy without programs"] == pytest.approx(20.0)  # 1 of 5
    assert found["programs that failed: timeout"] == pytest.approx(20.0)  # 2 of 10
    assert found["programs that failed: syntax"] == 0.0
    assert "programs that failed: oom" not in found


def test_the_table_shows_bias_and_calibration(table: ReportTable) -> None:
    found = values(table)
    assert found["verdicts that flip with the order"] == pytest.approx(100 * 2 / 9)
    assert found["to the first shown, both times"] == 2
    assert found["first of 2 shown is chosen"] == pytest.approx(100 * 12 / 19)
    assert found["mean confidence"] == pytest.approx(90.0)
    # Of 19 choices, 6 · 2 + 2 · 1 + 0 + 1 are right.
    assert found["expected calibration error"] == pytest.approx(90 - 100 * 15 / 19)


def test_costs_are_totals_over_judgments(table: ReportTable) -> None:
    found = values(table)
    assert (found["input tokens, all judgments"], found["output tokens, all judgments"]) == (1000.0, 200.0)
    assert found["latency under the load of the run, all judgments"] == 20.0
    assert found["sandbox, all judgments"] == 2.5
    assert found["cost, all judgments"] == pytest.approx((1000 * 1 + 200 * 10) / 1e6)


def test_quantiles_of_zeros_and_shares_without_such_a_verdict_are_left_out(
    table: ReportTable, make_run: MakeRun
) -> None:
    rows = [row.entries[0].value for row in table.rows]
    queue = rows.index("queue, all judgments")
    assert rows[queue + 1] == "engine, all judgments"
    assert "judgments that abstain" in rows  # one decision has no verdict
    assert "judgments that abstain" not in values(run_table(score_run(make_run([Pair(id="a")]))))


@pytest.mark.parametrize(
    ("num_pairs", "shown"),
    [(1, []), (9, ["mean", "median"]), (10, ["mean", "median", "p90"]), (100, ["mean", "median", "p90", "p99"])],
)
def test_percentiles_of_too_few_judgments_are_left_out(make_run: MakeRun, num_pairs: int, shown: list[str]) -> None:
    run = make_run([Pair(id=f"p{n}") for n in range(num_pairs)])
    rows = [str(row.entries[0].value) for row in run_table(score_run(run)).rows]
    tokens = rows.index("input tokens, all judgments")
    assert rows[tokens + 1 : rows.index("output tokens, all judgments")] == shown


def test_accuracies_over_nothing_are_left_out(make_run: MakeRun) -> None:
    found = values(run_table(score_run(make_run([Pair(id="a", outcome=Outcome.OK)]))))
    assert found["accuracy with programs"] == 100.0
    assert "accuracy without programs" not in found


def test_money_is_left_out_without_prices(make_run: MakeRun) -> None:
    table = run_table(score_run(make_run([Pair(id="a")])), prices=Prices())
    assert "cost, all judgments" not in values(table)


def test_a_run_without_judgments_has_a_table(make_run: MakeRun) -> None:
    table = run_table(score_run(make_run([Pair(id="a")], unjudged=["a"])))
    assert values(table)["overall"] is None
    assert values(table)["comparisons missing"] == 1
    for format in ReportFormat:
        assert render(table, format)


def test_the_text_shows_both_ends_of_intervals_and_the_settings(table: ReportTable) -> None:
    text = " ".join(render(table, ReportFormat.TERMINAL).decode().split())
    # Wilson for 6 of 10: (0.6 + 0.192) / 1.384 = 0.572, ± 0.260
    assert "overall 60.0 (31.3 to 83.2) % 10" in text
    assert "Judge: tiny (0123456789abcdef); pairwise, both orders, tools auto, seed 0." in text
    assert "Protocol: both_orders. Examples: rows.jsonl, 10 of them." in text
