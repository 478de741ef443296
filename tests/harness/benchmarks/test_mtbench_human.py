from __future__ import annotations

import pytest

from tirjudge_harness.benchmarks.mtbench_human import BENCHMARK


def conversation(model: str) -> list[dict[str, str]]:
    return [
        {"role": "user", "content": "First question"},
        {"role": "assistant", "content": f"{model} one"},
        {"role": "user", "content": "Second question"},
        {"role": "assistant", "content": f"{model} two"},
    ]


def vote(winner: str, *, models: str = "ab", turn: object = 1, judge: str = "expert_1", question: int = 81) -> dict:
    first, second = models
    return {
        "question_id": question,
        "model_a": first,
        "model_b": second,
        "winner": winner,
        "judge": judge,
        "conversation_a": conversation(first),
        "conversation_b": conversation(second),
        "turn": turn,
    }


def test_the_votes_on_a_pair_are_one_example_with_the_models_in_order(load, bad) -> None:
    rows = [
        vote("model_a"),
        vote("model_a", models="ba"),
        vote("model_a"),
        vote("tie"),
        vote("model_b", judge="author_1"),
    ]
    (example,) = load(BENCHMARK, rows)
    assert (example.outline.id, example.responses) == ("81/a/b/turn-1", ("a one", "b one"))
    assert example.prompt == "First question"
    facts = {"votes": [0, 1, 0, -1], "model_a": "a", "model_b": "b"}
    assert (example.outline.facts, example.outline.correct) == (facts, (0,))
    assert bad == []


def test_the_second_turn_shows_both_questions_and_both_answers(load) -> None:
    (example,) = load(BENCHMARK, [vote("tie", turn=2)])
    assert "First question" in example.prompt
    assert example.prompt.endswith("Second question")
    assert example.responses[1].startswith("b one")
    assert example.responses[1].endswith("b two")
    assert example.outline.correct == (0, 1)


def test_agreement_counts_votes_with_and_without_ties(load, named, figures) -> None:
    rows = [
        *[vote(winner, question=1) for winner in ("model_a", "model_a", "model_b")],
        *[vote(winner, question=2) for winner in ("tie", "model_b")],
        *[vote(winner, question=3) for winner in ("model_b", "tie")],
    ]
    examples = load(BENCHMARK, rows)
    # The judge says: a in both orders; a tie, because the orders disagree; b in both orders.
    judged = [named(one, *both) for one, both in zip(examples, [(0, 0), (0, 1), (1, 1)], strict=True)]
    values = figures(BENCHMARK, judged)
    # Equal votes: 2 of 3, the tie of 2, and the b of 2.
    assert values["agreement, turn 1, with ties"] == pytest.approx(4 / 7)
    # Without ties: a, a, b against a; nothing for the second pair; b against b.
    assert values["agreement, turn 1, without ties"] == pytest.approx(3 / 4)
    # Pairs of votes: a-a, a-b, a-b; tie-b; b-tie.
    assert values["experts, turn 1, with ties"] == pytest.approx(1 / 5)
    assert values["experts, turn 1, without ties"] == pytest.approx(1 / 3)
    assert values["agreement, turn 2, with ties"] is None


def test_scores_and_missing_verdicts(load, rated, figures) -> None:
    rows = [vote("model_a", question=1), vote("tie", question=2), vote("tie", question=3)]
    examples = load(BENCHMARK, rows)
    judged = [rated(one, *scores) for one, scores in zip(examples, [(3, 9), (5, 5), (5, None)], strict=True)]
    values = figures(BENCHMARK, judged)
    assert values["agreement, turn 1, with ties"] == pytest.approx(1 / 3)
    assert values["agreement, turn 1, without ties"] == 0.0


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ({"winner": "model_c"}, "winner: expected model_a, model_b or tie, got 'model_c'"),
        ({"judge": "gpt-4"}, "judge: 'gpt-4' does not start with one of expert, author"),
        ({"turn": 3}, "turn: expected 1 or 2, got 3"),
        (
            {"turn": 2, "conversation_b": conversation("b")[:2]},
            "conversation_b: expected 2 questions and answers, got 1 and 1",
        ),
    ],
)
def test_an_invalid_row_is_reported(load, bad, broken: dict[str, object], problem: str) -> None:
    assert len(load(BENCHMARK, [vote("tie"), vote("tie", question=2) | broken])) == 1
    assert [report.problem for report in bad] == [problem]
