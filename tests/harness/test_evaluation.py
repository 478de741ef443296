from __future__ import annotations

from dataclasses import replace

import pytest

from tirjudge.right import Decision, ScoringRule, over_orders
from tirjudge.types import Mode
from tirjudge_harness.benchmark import Benchmark, every_pair
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.evaluation import evaluate, marks_of
from tirjudge_harness.examples import ExampleMetadata
from tirjudge_harness.metric_tree import MAX_BREAKDOWN, FormulaMetric, Mean, MeanMetric, cells_by
from tirjudge_harness.protocols import BOTH_ORDERS, OFFICIAL, PAPER, Official, find_protocol

FORTH, BACK = (0, 1), (1, 0)


def outline(
    id: str = "x", *, num_responses: int = 2, correct: tuple[int, ...] = (0,), subset: str = "s"
) -> ExampleMetadata:
    return ExampleMetadata(id=id, subset=subset, num_responses=num_responses, correct=correct, cluster=id)


def pair(*given: tuple[tuple[int, int], int | str | None], **of: object) -> JudgedExample:
    """Return an example with two responses and one decision per order: an index, `tie` or None."""
    decisions = tuple(
        Decision(shown=shown, tied=True) if best == "tie" else Decision(shown=shown, best=best)  # type: ignore[arg-type]
        for shown, best in given
    )
    return JudgedExample(outline=outline(**of), mode=Mode.PAIRWISE, decisions=decisions)  # type: ignore[arg-type]


def scored(*scores: float | None, correct: tuple[int, ...] = (0,)) -> JudgedExample:
    decisions = tuple(Decision(shown=(index,), score=score) for index, score in enumerate(scores))
    about = outline(num_responses=len(scores), correct=correct)
    return JudgedExample(outline=about, mode=Mode.POINTWISE, decisions=decisions)


def earned(judged: JudgedExample, counting: ScoringRule, *compared: tuple[int, ...]) -> list[tuple[str, float]]:
    marks = marks_of(judged, compared=compared or [(0, 1)], counting=counting)
    return [(mark.result, mark.credit) for mark in marks]


@pytest.mark.parametrize(
    ("results", "first", "mean", "net", "every"),
    [
        (["right", "right"], ("right", 1.0), ("right", 1.0), ("right", 1.0), ("right", 1.0)),
        (["right", "wrong"], ("right", 1.0), ("tie", 0.5), ("tie", 0.0), ("tie", 0.0)),
        (["wrong", "right"], ("wrong", 0.0), ("tie", 0.5), ("tie", 0.0), ("tie", 0.0)),
        (["right", "tie"], ("right", 1.0), ("tie", 0.75), ("right", 1.0), ("tie", 0.0)),
        (["tie", "tie"], ("tie", 0.5), ("tie", 0.5), ("tie", 0.0), ("tie", 0.0)),
        (["tie", "wrong"], ("tie", 0.5), ("tie", 0.25), ("wrong", 0.0), ("tie", 0.0)),
        (["none", "right"], ("none", 0.2), ("none", 0.6), ("right", 1.0), ("none", 0.0)),
        (["none", "tie"], ("none", 0.2), ("none", 0.35), ("none", 0.0), ("none", 0.0)),
        (["none", "none"], ("none", 0.2), ("none", 0.2), ("none", 0.0), ("none", 0.0)),
    ],
)
def test_each_rule_combines_the_results_of_the_orders(results, first, mean, net, every) -> None:
    for orders, expected in (("first", first), ("mean", mean), ("net", net), ("all", every)):
        result, credit = over_orders(results, counting=ScoringRule(orders=orders, tie=0.5, no_verdict=0.2))
        assert (result, credit) == (expected[0], pytest.approx(expected[1]))


def test_votes_in_one_order_give_one_majority_decision() -> None:
    two_of_three = pair((FORTH, 1), (FORTH, 0), (FORTH, 0), (BACK, 1))
    assert earned(two_of_three, ScoringRule()) == [("right", 1.0)]
    assert earned(two_of_three, ScoringRule(orders="mean")) == [("tie", 0.5)]


def test_split_votes_are_a_tie_and_missing_verdicts_do_not_count() -> None:
    assert earned(pair((FORTH, 1), (FORTH, 0)), ScoringRule(tie=0.4)) == [("tie", 0.4)]
    assert earned(pair((FORTH, None), (FORTH, None), (FORTH, 1)), ScoringRule()) == [("wrong", 0.0)]
    assert earned(pair((FORTH, "tie"), (FORTH, "tie"), (FORTH, 0)), ScoringRule()) == [("tie", 0.5)]
    assert earned(pair((FORTH, "tie"), (FORTH, 0)), ScoringRule()) == [("tie", 0.5)]


def test_the_first_order_is_the_order_of_the_first_decision() -> None:
    assert earned(pair((BACK, 1), (FORTH, 0), (FORTH, 0)), ScoringRule()) == [("wrong", 0.0)]


def test_no_verdict_is_not_a_tie() -> None:
    assert earned(pair((FORTH, None)), ScoringRule(tie=0.5, no_verdict=0.25)) == [("none", 0.25)]


def test_a_decision_counts_only_for_the_shown_responses() -> None:
    judged = JudgedExample(
        outline=outline(num_responses=4, correct=(0, 1)),
        mode=Mode.PAIRWISE,
        decisions=(
            Decision(shown=(2, 0), best=0),
            Decision(shown=(1, 2), best=2),
            Decision(shown=(3, 1), tied=True),
        ),
    )
    compared = every_pair(judged.outline, Mode.PAIRWISE)
    assert compared == [(0, 2), (0, 3), (1, 2), (1, 3)]
    assert earned(judged, ScoringRule(), *compared) == [("right", 1.0), ("wrong", 0.0), ("tie", 0.5)]


def test_a_pair_that_is_compared_twice_has_two_scores() -> None:
    assert len(earned(pair((FORTH, 0)), ScoringRule(), (0, 1), (1, 0))) == 2


def test_listwise_any_right_response_is_right() -> None:
    def picked(best: int) -> JudgedExample:
        about = outline(num_responses=4, correct=(1, 3))
        return JudgedExample(outline=about, mode=Mode.LISTWISE, decisions=(Decision(shown=(2, 0, 3, 1), best=best),))

    assert earned(picked(3), ScoringRule(), (0, 1, 2, 3)) == [("right", 1.0)]
    assert earned(picked(2), ScoringRule(), (0, 1, 2, 3)) == [("wrong", 0.0)]


def test_a_comparison_without_right_and_wrong_response_has_no_score() -> None:
    assert earned(pair((FORTH, 0), correct=()), ScoringRule()) == []
    assert earned(pair((FORTH, 0), correct=(0, 1)), ScoringRule()) == []


def test_the_strictly_higher_score_wins_and_equal_scores_tie() -> None:
    assert earned(scored(7.0, 6.0), ScoringRule()) == [("right", 1.0)]
    assert earned(scored(6.0, 7.0), ScoringRule()) == [("wrong", 0.0)]
    assert earned(scored(7.0, 7.0), ScoringRule(tie=0.5)) == [("tie", 0.5)]
    assert earned(scored(7.0, 7.0), ScoringRule(tie=0.0)) == [("tie", 0.0)]
    assert earned(scored(7.0, None), ScoringRule(no_verdict=0.1)) == [("none", 0.1)]


def test_scores_of_several_votes_are_averaged_over_those_with_one() -> None:
    decisions = [((0,), 5.0), ((0,), 8.0), ((1,), 6.0), ((1,), None)]
    judged = JudgedExample(
        outline=outline(),
        mode=Mode.POINTWISE,
        decisions=tuple(Decision(shown=shown, score=score) for shown, score in decisions),
    )
    assert earned(judged, ScoringRule()) == [("right", 1.0)]


def test_responses_with_the_same_highest_score_share_the_point() -> None:
    everything = (0, 1, 2, 3)
    counting = ScoringRule(share_ties=True, no_verdict=0.25)
    assert earned(scored(9.0, 3.0, 4.0, 5.0), counting, everything) == [("right", 1.0)]
    assert earned(scored(9.0, 9.0, 9.0, 1.0), counting, everything) == [("tie", pytest.approx(1 / 3))]
    assert earned(scored(8.0, 9.0, 9.0, 1.0), counting, everything) == [("wrong", 0.0)]
    two_right = scored(9.0, 9.0, 9.0, 1.0, correct=(0, 1))
    assert earned(two_right, counting, everything) == [("tie", pytest.approx(2 / 3))]


def test_an_unscored_response_can_rank_below_the_others() -> None:
    counting = ScoringRule(share_ties=True, unscored_loses=True, no_verdict=0.25)
    assert earned(scored(2.0, None, None, None), counting, (0, 1, 2, 3)) == [("right", 1.0)]
    assert earned(scored(None, 2.0, None, None), counting, (0, 1, 2, 3)) == [("wrong", 0.0)]
    assert earned(scored(None, None, None, None), counting, (0, 1, 2, 3)) == [("none", 0.25)]


def test_the_rule_selects_written_or_expected_scores() -> None:
    decisions = (
        Decision(shown=(0,), score=7.0, expected_score=6.5),
        Decision(shown=(1,), score=7.0, expected_score=6.9),
    )
    judged = JudgedExample(outline=outline(), mode=Mode.POINTWISE, decisions=decisions)
    assert earned(judged, ScoringRule()) == [("tie", 0.5)]
    assert earned(judged, ScoringRule(expected=True)) == [("wrong", 0.0)]
    with pytest.raises(ValueError, match="expected scores: not known"):
        earned(scored(7.0, 6.0), ScoringRule(expected=True))


def test_a_comparison_with_an_unjudged_response_has_no_score() -> None:
    half = JudgedExample(outline=outline(), mode=Mode.POINTWISE, decisions=(Decision(shown=(0,), score=7.0),))
    assert earned(half, ScoringRule()) == []


SHEET = (
    Mean(name="overall", parts=(*cells_by("subset", ["a", "b", "c"]),), weights=(3.0, 1.0, 6.0)),
    MeanMetric(name="all", holds=lambda mark: True),
    FormulaMetric(name="examples", compute=lambda judged: float(len(judged)), bounded=False),
)
TOY = Benchmark(
    name="toy",
    title="Toy",
    citation="",
    sources={},
    columns=(),
    examples=lambda row, part: (),
    sheet=SHEET,
    official={Mode.PAIRWISE: Official(orders="both", counting=ScoringRule(orders="net"))},
)


def test_a_mean_leaves_out_parts_without_scores_and_their_weight() -> None:
    judged = [
        pair((FORTH, 0), id="1", subset="a"),
        pair((FORTH, 1), id="2", subset="a"),
        pair((FORTH, 0), id="3", subset="b"),
    ]
    figures = evaluate(TOY, judged, mode=Mode.PAIRWISE, protocol=PAPER).figures
    assert figures[0].value == pytest.approx((3 * 0.5 + 1 * 1.0) / 4)
    assert figures[4].value == pytest.approx(2 / 3)


def test_the_protocol_selects_the_official_or_another_rule() -> None:
    judged = [
        pair((FORTH, 0), (BACK, "tie"), id="1", subset="a"),
        pair((FORTH, 0), (BACK, 1), id="2", subset="a"),
        pair((FORTH, None), (BACK, None), id="3", subset="b"),
        pair((FORTH, 1), (BACK, 1), id="4", subset="b"),
    ]
    values = {
        protocol.name: evaluate(TOY, judged, mode=Mode.PAIRWISE, protocol=protocol).figures[4].value
        for protocol in (OFFICIAL, PAPER, BOTH_ORDERS)
    }
    assert values == {"official": 1 / 4, "paper": 2 / 4, "both_orders": 0.0}
    counts = evaluate(TOY, judged, mode=Mode.PAIRWISE, protocol=OFFICIAL).counts
    assert (counts.examples, counts.marks, counts.missing) == (4, 4, 0)
    assert (counts.right, counts.wrong, counts.ties, counts.no_verdict) == (1, 1, 1, 1)
    assert (counts.decisions, counts.undecided, counts.forced) == (8, 2, 0)


def test_each_metric_comes_before_its_parts() -> None:
    judged = [pair((FORTH, 0), id="1", subset="a")]
    figures = evaluate(TOY, judged, mode=Mode.PAIRWISE, protocol=PAPER).figures
    assert [(figure.name, figure.depth) for figure in figures] == [
        ("overall", 0), ("a", 1), ("b", 1), ("c", 1), ("all", 0), ("examples", 0),
    ]  # fmt: skip
    assert [figure.num_marks for figure in figures] == [1, 1, 0, 0, 1, 1]
    assert [figure.value for figure in figures] == [1.0, 1.0, None, None, 1.0, 1.0]


def test_comparisons_without_enough_orders_are_missing_not_wrong() -> None:
    judged = [
        pair((FORTH, 0), (BACK, 0), id="1", subset="a"),
        pair((FORTH, 1), id="2", subset="a"),
        pair(id="3", subset="a"),
    ]
    evaluation = evaluate(TOY, judged, mode=Mode.PAIRWISE, protocol=BOTH_ORDERS)
    assert (evaluation.counts.marks, evaluation.counts.missing) == (1, 2)
    assert evaluation.figures[0].value == 1.0
    assert evaluate(TOY, judged, mode=Mode.PAIRWISE, protocol=PAPER).counts.missing == 1


def test_one_order_cannot_be_scored_by_a_rule_for_two_orders() -> None:
    with pytest.raises(ValueError, match=r"official needs two opposite orders .* none of the 1 comparisons has that"):
        evaluate(TOY, [pair((FORTH, 0))], mode=Mode.PAIRWISE, protocol=OFFICIAL)


def test_undecided_votes_are_missing() -> None:
    majority = find_protocol("votes=3")
    decided = pair((FORTH, 0), (FORTH, 0), id="1", subset="a")
    open_still = pair((FORTH, 0), (FORTH, 1), id="2", subset="a")
    counts = evaluate(TOY, [decided, open_still], mode=Mode.PAIRWISE, protocol=majority).counts
    assert (counts.right, counts.missing) == (1, 1)


def test_a_judgment_in_groups_counts_for_all_votes_and_orders() -> None:
    whole = JudgedExample(outline=outline(), mode=Mode.PAIRWISE, decisions=(Decision(shown=FORTH, best=0, whole=True),))
    assert evaluate(TOY, [whole], mode=Mode.PAIRWISE, protocol=BOTH_ORDERS).counts.right == 1


def test_an_unsupported_mode_is_rejected() -> None:
    with pytest.raises(ValueError, match="'listwise' is not a mode of toy; choose pairwise, pointwise"):
        evaluate(TOY, [], mode=Mode.LISTWISE, protocol=OFFICIAL)


def test_the_values_of_a_tag_become_metrics_and_of_many_the_most_frequent() -> None:
    languages = ["de"] * 3 + ["el"] * 2 + [f"x{number}" for number in range(60)]
    judged = [
        replace(one, outline=replace(one.outline, tags={"language": language}))
        for number, language in enumerate(languages)
        for one in (pair((FORTH, number % 2), id=str(number)),)
    ]
    judged.append(pair((FORTH, 0), id="without a language"))
    benchmark = Benchmark(
        name="quiz",
        title="Quiz",
        citation="none",
        sources={},
        columns=(),
        examples=lambda row, part: (),
        sheet=(MeanMetric(name="all", holds=lambda mark: True),),
        breakdown=("language",),
    )
    found = evaluate(benchmark, judged, mode=Mode.PAIRWISE, protocol=PAPER).figures
    values = {figure.name: (figure.value, figure.num_marks) for figure in found}
    assert len(values) == 1 + MAX_BREAKDOWN
    assert values["language: de"] == (pytest.approx(2 / 3), 3)
    assert values["language: el"] == (0.5, 2)
