from __future__ import annotations

import json
from pathlib import Path

import pytest

from tirjudge.right import Decision
from tirjudge.types import Mode
from tirjudge_harness.benchmarks.rmb import BENCHMARK
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.protocols import PAPER
from tirjudge_harness.sources import load_examples


def said(number: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"Question {number}", "language": "English"}]


def answer(content: str) -> dict[str, str]:
    return {"llm_name": "m", "answer": content}


def pair(number: int, *, path: str = "Harmlessness/S1") -> dict[str, object]:
    return {
        "pair_uid": str(number),
        "conversation_input": said(number),
        "chosen": answer(f"good {number}"),
        "reject": answer(f"bad {number}"),
        "category_path": f"Pairwise_set/{path}",
    }


def best_of(number: int, *, losers: int = 2, path: str = "Helpfulness/Chat/Discussion") -> dict[str, object]:
    return {
        "bon_uid": number,
        "conversation_input": said(number),
        "bon_best": answer(f"best {number}"),
        "loser_list": [answer(f"loser {place} of {number}") for place in range(losers)],
        "category_path": f"BoN_set/{path}",
    }


def test_a_checkout_of_the_repository_is_read_with_its_folders(tmp_path: Path) -> None:
    for rows in ([pair(1)], [best_of(2, losers=3)]):
        path = tmp_path / f"{rows[0]['category_path']}.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(rows))
    first, second = load_examples(BENCHMARK, data=tmp_path, on_bad=lambda row: pytest.fail(str(row)))
    assert (first.outline.id, first.outline.subset) == ("Pairwise_set/1", "Pairwise_set/Harmlessness")
    assert (first.prompt, first.responses, first.outline.correct) == ("Question 1", ("good 1", "bad 1"), (0,))
    assert (second.outline.id, second.outline.subset) == ("BoN_set/2", "BoN_set/Helpfulness")
    assert (len(second.responses), second.outline.tags) == (4, {"scenario": "Chat"})


def test_a_conversation_stays_a_list_of_messages(load) -> None:
    turns = [*said(1), {"role": "assistant", "content": "Yes", "language": None}, *said(2)]
    (example,) = load(BENCHMARK, [pair(1) | {"conversation_input": turns}], part="Pairwise_set")
    assert [message.role for message in example.prompt] == ["user", "assistant", "user"]


def test_the_winner_must_beat_every_loser_and_a_tie_fails(load, rated, figures) -> None:
    examples = load(BENCHMARK, [best_of(number) for number in range(4)], part="BoN_set")
    scores = [(9, 8, 7), (9, 9, 7), (9, 3, 10), (9, None, 3)]
    judged = [rated(example, *given) for example, given in zip(examples, scores, strict=True)]
    for protocol in (PAPER, None):
        values = figures(BENCHMARK, judged, **({"protocol": protocol} if protocol else {}))
        assert values["Helpfulness best of N"] == values["Chat best of N"] == 0.25
        assert values["Harmlessness best of N"] is None


def test_pairwise_verdicts_compare_the_winner_with_each_loser(load, compared, figures) -> None:
    examples = load(BENCHMARK, [best_of(number) for number in range(2)], part="BoN_set")
    assert BENCHMARK.asked(examples[0].outline, mode=Mode.PAIRWISE) == [(0, 1), (0, 2)]
    judged = [
        compared(examples[0], {(0, 1): 0, (2, 0): 0}),
        compared(examples[1], {(0, 1): 0, (2, 0): 2}),
    ]
    assert figures(BENCHMARK, judged)["Helpfulness best of N"] == 0.5


def test_a_list_with_a_missing_comparison_is_not_won(load, figures) -> None:
    (example,) = load(BENCHMARK, [best_of(1)], part="BoN_set")
    judged = JudgedExample(outline=example.outline, mode=Mode.PAIRWISE, decisions=(Decision(shown=(0, 1), best=0),))
    assert figures(BENCHMARK, [judged])["Helpfulness best of N"] == 0.0


def test_average_is_the_mean_of_two_goals_and_two_kinds_and_an_equal_score_of_a_pair_is_wrong(
    load, rated, figures
) -> None:
    pairs = [pair(0), pair(1), pair(2, path="Helpfulness/Code/Documentation"), pair(3, path="Harmlessness/multi")]
    lists = [best_of(0), best_of(1, path="Harmlessness/S2")]
    judged = [
        rated(example, *scores)
        for example, scores in zip(
            load(BENCHMARK, pairs, part="Pairwise_set"), [(9, 1), (5, 5), (2, 8), (9, 1)], strict=True
        )
    ]
    judged += [rated(example, 9, 1, 2) for example in load(BENCHMARK, lists, part="BoN_set")]
    values = figures(BENCHMARK, judged)
    assert values["Harmlessness pairs"] == pytest.approx(2 / 3)
    assert (values["S1 pairs"], values["multi pairs"], values["Helpfulness pairs"]) == (0.5, 1.0, 0.0)
    assert values["average"] == pytest.approx((2 / 3 + 0 + 1 + 1) / 4)
    assert figures(BENCHMARK, judged, protocol=PAPER)["Harmlessness pairs"] == pytest.approx(2.5 / 3)


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ({"category_path": "Pairwise_set/Harmlessness/S99"}, "category_path: 'Pairwise_set/Harmlessness/S99' is not"),
        ({"conversation_input": []}, "conversation_input: expected at least one message, got none"),
        ({"conversation_input": ["x"]}, "conversation_input: not valid JSON: 'x'"),
        ({"chosen": None}, "chosen: expected an object, got null"),
        ({"category_path": "BoN_set/Harmlessness/S1", "loser_list": []}, "loser_list: expected at least one answer"),
    ],
)
def test_an_invalid_row_is_reported(load, bad, broken: dict[str, object], problem: str) -> None:
    assert len(load(BENCHMARK, [pair(0), pair(1) | broken], part="Pairwise_set")) == 1
    (report,) = bad
    assert report.problem.startswith(problem)


def test_each_part_has_one_url_per_file() -> None:
    for part, source in BENCHMARK.sources.items():
        assert len(source.files) == 49  # type: ignore[union-attr, arg-type]
        assert all(f"/{part}/" in url and " " not in url for url in source.files)  # type: ignore[union-attr]
