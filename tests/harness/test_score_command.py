from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tirjudge_harness.external import read_decisions
from tirjudge_harness.external_cli import score
from tirjudge_harness.items import InputError
from tirjudge_harness.labelled import add_up

app = typer.Typer()
app.command()(score)

FIVE = [
    {"id": 1, "label": "A>B", "decisions": ["A>B", "B>A"], "subset": "m"},
    {"id": 2, "label": "A>B", "decisions": ["A>B", "A>B"], "subset": "m"},
    {"id": 3, "label": "B>A", "decisions": ["A>B", "B>>A"], "subset": "n"},
    {"id": 4, "label": "B>A", "decisions": ["A=B", "A>B"], "subset": "n"},
    {"id": 5, "label": "A=B", "decisions": ["A=B", None], "subset": "n"},
]
"""Five pairs. The results in the first and the second order are: right and right; right and wrong; wrong and wrong; tie
and right. The label of the last pair is a tie."""


def printed(*arguments: str | Path) -> Any:
    result = CliRunner().invoke(app, [str(argument) for argument in (*arguments, "--json")], catch_exceptions=False)
    assert result.exit_code == 0
    return json.loads(result.stdout)


def test_a_labeled_file_is_scored_by_every_rule(write_lines) -> None:
    found = printed("--decisions", write_lines(FIVE))
    values = {
        rule: {figure["name"]: figure["value"] for figure in one["figures"]} for rule, one in found["rules"].items()
    }
    assert values == {
        "first": {"all": 2.5 / 4, "m": 1.0, "n": 0.25},
        "mean": {"all": 2.25 / 4, "m": 0.75, "n": 0.375},
        "net": {"all": 2 / 4, "m": 0.5, "n": 0.5},
        "all": {"all": 1 / 4, "m": 0.5, "n": 0.0},
    }
    assert found["num_unlabelled"] == 1
    assert found["rules"]["first"]["counts"]["ties"] == 1


def test_both_orders_have_agreement_and_flips(write_lines) -> None:
    labelled = add_up(read_decisions(write_lines(FIVE), None))
    agreement, both = labelled.agreement, labelled.both_orders
    assert agreement is not None
    assert both is not None
    # Labels A A B B tie, first decisions A A A tie tie: 3 of 5 agree. By chance: (2*3 + 2*0 + 1*2) / 25.
    assert agreement.same.value == 3 / 5
    assert agreement.kappa == pytest.approx((3 / 5 - 8 / 25) / (1 - 8 / 25))
    # Responses chosen in the two orders, for the pairs that were decided in both: A A, A B, A A.
    assert both.flips.rate.value == pytest.approx(1 / 3)
    assert both.flips.num_undecided == 2
    # First order: A A A tie. Second order: A B A B. 2 of 4 agree. By chance: (3*2 + 0*2 + 1*0) / 16.
    assert both.agreement.kappa == pytest.approx((2 / 4 - 6 / 16) / (1 - 6 / 16))


def test_one_order_has_one_rule_and_scores_have_no_agreement(write_lines) -> None:
    once = add_up(read_decisions(write_lines([{"id": 1, "label": 0, "decisions": ["A>B"]}]), None))
    assert list(once.by_rule) == ["first"]
    assert once.both_orders is None
    scored = add_up(read_decisions(write_lines([{"id": 1, "label": 0, "scores": [3, 3]}]), None))
    assert scored.by_rule["first"].figures[0].value == 0.5
    assert scored.agreement is None


def test_tables_name_every_rule(write_lines) -> None:
    result = CliRunner().invoke(app, ["--decisions", str(write_lines(FIVE))], catch_exceptions=False)
    assert result.exit_code == 0
    head = result.stdout.splitlines()[1].split()
    assert head == ["first", "mean", "net", "all", "n"]
    assert (
        "first: 4 comparisons of 5 examples: 2 right, 1 wrong, 1 ties, 0 without a verdict; 0 missing" in result.stdout
    )


@pytest.fixture
def three_pairs(write_lines) -> Path:
    """Rows with the columns of JudgeBench."""
    sources = {"p": ("mmlu-pro-law", "A>B"), "q": ("livecodebench", "B>A"), "r": ("livebench-math-comp", "A>B")}
    texts = {"question": "?", "response_A": "a", "response_B": "b"}
    rows = [{"pair_id": id, "source": source, "label": label, **texts} for id, (source, label) in sources.items()]
    return write_lines(rows, name="gpt.jsonl")


def test_verdicts_are_scored_by_the_official_rule_or_a_different_one(write_lines, three_pairs: Path) -> None:
    verdicts = write_lines([{"id": "p", "decisions": ["A>B", "A=B"]}, {"id": "q", "decisions": ["A>B", "A>>B"]}])
    arguments = ("judgebench", "--decisions", verdicts, "--data", three_pairs)
    official = printed(*arguments)
    assert official["protocol"] == "official"
    assert official["figures"][0]["name"] == "overall"
    assert [figure["value"] for figure in official["figures"]] == [0.5, 1.0, None, None, 0.0]
    assert official["counts"]["missing"] == 1
    assert printed(*arguments, "--protocol", "both_orders")["figures"][0]["value"] == 0.0
    assert printed(*arguments, "--protocol", "paper")["figures"][0]["value"] == 0.5
    # With --flipped, both decisions about q name the first response.
    assert printed(*arguments, "--flipped", "--protocol", "both_orders")["figures"][0]["value"] == 0.0
    assert printed(*arguments, "--flipped")["counts"]["wrong"] == 1


def test_equal_scores_are_wrong_by_the_official_rule(write_lines, three_pairs: Path) -> None:
    verdicts = write_lines(
        [{"id": "p", "scores": [5, 5]}, {"id": "q", "scores": [1, 2.5]}, {"id": "r", "scores": [1, 2]}]
    )
    arguments = ("judgebench", "--decisions", verdicts, "--data", three_pairs)
    assert printed(*arguments)["figures"][0]["value"] == pytest.approx(1 / 3)
    assert printed(*arguments, "--protocol", "paper")["figures"][0]["value"] == pytest.approx(1.5 / 3)


def test_invalid_requests_for_a_score_are_reported_in_one_line(write_lines, three_pairs: Path) -> None:
    verdicts = write_lines([{"id": "p", "decisions": ["A>B"]}])
    with pytest.raises(InputError, match=r"official needs two opposite orders for each comparison"):
        printed("judgebench", "--decisions", verdicts, "--data", three_pairs)
    with pytest.raises(InputError, match="unknown benchmark 'judgebunch'; installed:"):
        printed("judgebunch", "--decisions", verdicts)
    with pytest.raises(InputError, match="protocol: unknown protocol 'mine'"):
        printed("judgebench", "--decisions", verdicts, "--data", three_pairs, "--protocol", "mine")
    with pytest.raises(InputError, match="--data and --part need a benchmark"):
        printed("--decisions", verdicts, "--data", three_pairs)
    with pytest.raises(InputError, match="'listwise' is not a mode of judgebench; choose pairwise, pointwise"):
        printed("judgebench", "--decisions", verdicts, "--data", three_pairs, "--mode", "listwise")


def test_decisions_are_read_before_examples_are_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tirjudge_harness.bench_run.load", lambda *_, **__: pytest.fail("examples were loaded"))
    arguments = ["--decisions", str(tmp_path / "none.jsonl"), "judgebench"]
    with pytest.raises(InputError, match=r"none.jsonl: cannot be read: No such file"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
