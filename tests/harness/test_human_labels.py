"""Files of people's labels, of verdicts on named models, and of people's ratings of models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tirjudge_harness.human_labels import read_labels
from tirjudge_harness.items import InputError
from tirjudge_harness.model_battles import read_arena, read_battles
from tirjudge_harness.statistics.ratings import ArenaScore

WriteFile = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> WriteFile:
    def write_text(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return write_text


def test_preferences_have_several_spellings(write: WriteFile) -> None:
    labels = ["A>B", "[[B>>A]]", "A=B", "0", "1", "B"]
    found = read_labels(write("a.csv", "id,label\n" + "".join(f"{n},{label}\n" for n, label in enumerate(labels))))
    assert (found.kind, list(found.values.values())) == ("preference", [1.0, 0.0, 0.5, 1.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["model_a", "B", "first", "response_b", "tie", "Tie (bothbad)"], [1.0, 0.0, 1.0, 0.0, 0.5, 0.5]),
        (["B = A", "b << a", "[[ A>B ]]"], [0.5, 1.0, 1.0]),
        (["1", "2", "2.0"], [1.0, 0.0, 0.0]),
        (["0", "0"], [1.0, 1.0]),
        (["2", "A"], [0.0, 1.0]),
    ],
)
def test_preferences_have_the_words_of_own_rows(write: WriteFile, labels: list[str], expected: list[float]) -> None:
    found = read_labels(write("a.csv", "id,label\n" + "".join(f"{n},{label}\n" for n, label in enumerate(labels))))
    assert list(found.values.values()) == expected


@pytest.mark.parametrize("numbers", ["1", "012", "3"])
def test_numbers_without_a_clear_start_are_refused(write: WriteFile, numbers: str) -> None:
    lines = "".join(f"{n},{number}\n" for n, number in enumerate(numbers))
    with pytest.raises(
        InputError, match=f"row 1: expected .* got '{numbers[0]}'; the numbers do not show whether they"
    ):
        read_labels(write("a.csv", f"id,label\n{lines}"))


def test_rows_without_a_label_are_left_out(write: WriteFile) -> None:
    found = read_labels(write("a.csv", "id,label,score\na,A>B,\nb,,\nc,n/a,\n,,\nd,B,\n"))
    assert (found.values, found.num_rows) == ({("a", 0): 1.0, ("d", 0): 0.0}, 2)
    found = read_labels(write("a.jsonl", '{"id": "a", "score": 2}\n{"id": "b", "score": null}\n{"id": "c"}\n'))
    assert (found.values, found.num_rows) == ({("a", 0): 2.0}, 1)


def test_labels_of_several_people_are_averaged(write: WriteFile) -> None:
    lines = [{"id": 7, "label": "A>B"}, {"id": "7", "label": "B>A"}, {"id": "7", "label": 0}]
    found = read_labels(write("a.jsonl", "".join(json.dumps(line) + "\n" for line in lines)))
    assert (found.values, found.num_rows) == ({("7", 0): pytest.approx(2 / 3)}, 3)


def test_scores_may_name_a_response(write: WriteFile) -> None:
    found = read_labels(write("a.csv", "id,response,score\na,,3.5\na,1,-2\n"))
    assert (found.kind, found.values, found.responses) == ("score", {("a", 0): 3.5, ("a", 1): -2.0}, [0, 1])


def test_columns_of_labels_may_be_in_upper_case(write: WriteFile) -> None:
    found = read_labels(write("a.csv", "ID, Response ,Score\na,1,2\n"))
    assert found.values == {("a", 1): 2.0}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("id,label\na,C>A\n", r"row 1: .*C>A"),
        (
            "id,label\na,better\n",
            r'row 1: expected "A>B", "A=B", "B>A", "A", "model_a", "first", "tie", or an index from 0 \(0 and 1\) or from 1 '
            r"\(1 and 2\); got 'better'",
        ),
        ("id,label\na,C\n", "row 1: expected \"A>B\".*got 'C'$"),
        ("id,label\na,\nb,n/a\n", "a.csv: expected the columns id and label .*; no row has a value in label$"),
        ("id,label,score\na,,\n", "no row has a value in label or score"),
        ("id,verdict\na,A\n", "a.csv: expected the columns id and label .*; got id, verdict$"),
        ("id,label,score\na,A,3\n", "row 1: expected the columns .*; the row has a label and a score"),
        ("id,label\n,A>B\n", r"row 1: expected the columns id and label \(A>B, A=B, B>A\), or id, score.*no id"),
        ("id,label,score\na,A>B,\nb,,3\n", "row 2: expected the columns .*; the file has labels and scores"),
        ("id,score\na,high\n", "row 1: score: expected a number, got 'high'"),
        ("id,score\na,nan\n", "row 1: score: expected a number, got 'nan'"),
        ("id,response,score\na,first,1\n", "row 1: response: expected an index, counted from 0, got 'first'"),
        ("id,label\na\n", "row 1: expected 2 cells"),
    ],
)
def test_a_wrong_row_of_labels_is_named(write: WriteFile, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read_labels(write("a.csv", text))


def test_winners_have_the_spellings_of_arenas(write: WriteFile) -> None:
    winners = ["model_a", "model_b", "tie", "tie (bothbad)", "A>B", "B>A"]
    text = "model_a,model_b,winner,prompt\n" + "".join(f"x,y,{one},{n // 2}\n" for n, one in enumerate(winners))
    found = read_battles(write("a.csv", text)).found
    assert [one.credit for one in found] == [1.0, 0.0, 0.5, 0.5, 1.0, 0.0]
    assert len({one.cluster for one in found}) == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("model_a,model_b,winner\nx,y,x\n", r"row 1: winner: expected model_a, .*got 'x'"),
        ("model_a,model_b,winner\nx,y,1\n", "row 1: winner: expected model_a"),
        (
            "a,b,winner\nx,y,tie\n",
            "a.csv: no column model_a and no column model_b; the columns are 'a', 'b', 'winner'; rename the columns",
        ),
        ("model_a,model_b,verdict\nx,y,tie\n", "no column winner; the columns are 'model_a', 'model_b', 'verdict'"),
        ("model_a,model_b,winner\n,y,tie\n", "row 1: model_a: expected the name of a model, got ''"),
    ],
)
def test_a_wrong_row_of_verdicts_is_named(write: WriteFile, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read_battles(write("a.csv", text))


@pytest.mark.parametrize("header", ["Model_A,model-b,Winner", " MODEL A ,model_b,winner"])
def test_names_of_columns_are_read_in_upper_and_lower_case(write: WriteFile, header: str) -> None:
    (found,) = read_battles(write("a.csv", f"{header}\nx,y,A>B\n")).found
    assert (found.first, found.second, found.credit) == ("x", "y", 1.0)


def test_a_row_without_a_winner_is_a_comparison_without_a_verdict(write: WriteFile) -> None:
    lines = '{"model_a": "x", "model_b": "y", "winner": "tie"}\n{"model_a": "x", "model_b": "y"}\n'
    found = read_battles(write("a.jsonl", lines))
    assert (len(found.found), found.num_without) == (1, 1)


def test_people_s_ratings_may_have_intervals(write: WriteFile) -> None:
    found = read_arena(write("a.csv", "model,score,low,high\nx,1200,1190,1215\ny,1100,,\n"))
    assert found == {"x": ArenaScore(score=1200, interval=(1190, 1215)), "y": ArenaScore(score=1100)}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("model,score\nx,1\nx,2\n", "row 2: model: 'x' has two rows"),
        ("model,rating\nx,1\n", "no column score; the columns are 'model', 'rating'"),
        ("model,score\nx,best\n", "row 1: score: expected a number, got 'best'"),
        (
            "model,score,low,high\nx,5,6,7\n",
            r"row 1: low, high: expected both, with low <= score <= high, got 6.0, 5.0, 7.0",
        ),
        ("model,score,low,high\nx,5,4,\n", "row 1: low, high: expected both"),
    ],
)
def test_a_wrong_row_of_ratings_is_named(write: WriteFile, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read_arena(write("a.csv", text))
