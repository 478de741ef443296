from __future__ import annotations

import pytest

from tirjudge.types import Mode
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import ExampleMetadata
from tirjudge_harness.external import read_decisions
from tirjudge_harness.items import InputError


def outline(id: str, *, num_responses: int = 2, correct: tuple[int, ...] = (0,)) -> ExampleMetadata:
    return ExampleMetadata(id=id, subset="", num_responses=num_responses, correct=correct, cluster=id)


def looks(judged: JudgedExample) -> list[tuple[tuple[int, ...], int | str | None]]:
    return [(decision.shown, "tie" if decision.tied else decision.best) for decision in judged.decisions]


def test_labels_refer_to_the_order_of_each_presentation(write_lines) -> None:
    path = write_lines([{"id": "x", "decisions": ["A>B", "B>A", None, "A=B"]}])
    (judged,) = read_decisions(path, [outline("x")])
    assert judged.mode is Mode.PAIRWISE
    assert looks(judged) == [((0, 1), 0), ((1, 0), 0), ((0, 1), None), ((1, 0), "tie")]


def test_flipped_decisions_use_the_labels_of_the_first_presentation(write_lines) -> None:
    path = write_lines([{"id": "x", "decisions": ["A>B", "B>A", "A=B"]}])
    (judged,) = read_decisions(path, [outline("x")], flipped=True)
    assert looks(judged) == [((0, 1), 0), ((1, 0), 1), ((0, 1), "tie")]


@pytest.mark.parametrize("text", ["B>A", "B>>A", "[[B>>A]]", " B > A ", "B"])
def test_double_greater_than_equals_greater_than(write_lines, text: str) -> None:
    (judged,) = read_decisions(write_lines([{"id": "x", "decisions": [text]}]), [outline("x")])
    assert looks(judged) == [((0, 1), 1)]


def test_a_letter_names_one_response_and_the_second_presentation_is_reversed(write_lines) -> None:
    path = write_lines([{"id": "x", "decisions": ["C", "A"]}], name="in.jsonl.gz")
    (judged,) = read_decisions(path, [outline("x", num_responses=4)])
    assert judged.mode is Mode.LISTWISE
    assert looks(judged) == [((0, 1, 2, 3), 2), ((3, 2, 1, 0), 3)]


def test_shown_sets_the_order(write_lines) -> None:
    lines = [
        {"id": "x", "decisions": ["A>B", "A>B"], "shown": [[0, 4], [4, 0]]},
        {"id": "x", "decisions": ["B>A"], "shown": [[1, 5]]},
    ]
    (judged,) = read_decisions(write_lines(lines), [outline("x", num_responses=6, correct=(0, 1, 2))])
    assert judged.mode is Mode.PAIRWISE
    assert looks(judged) == [((0, 4), 0), ((4, 0), 4), ((1, 5), 5)]


def test_there_is_one_score_per_response_and_null_is_no_verdict(write_lines) -> None:
    path = write_lines([{"id": 7, "scores": [7, None, 3.5]}])
    (judged,) = read_decisions(path, [outline("7", num_responses=3)])
    assert judged.mode is Mode.POINTWISE
    assert [(decision.shown, decision.score) for decision in judged.decisions] == [
        ((0,), 7.0),
        ((1,), None),
        ((2,), 3.5),
    ]
    assert [decision.has_verdict for decision in judged.decisions] == [True, False, True]


def test_examples_without_a_line_have_no_decisions(write_lines) -> None:
    path = write_lines([{"id": "y", "decisions": ["A>B"]}])
    judged = read_decisions(path, [outline("x"), outline("y")])
    assert [(one.outline.id, len(one.decisions)) for one in judged] == [("x", 0), ("y", 1)]


@pytest.mark.parametrize(("label", "correct"), [(1, (1,)), ("A>B", (0,)), ("B>>A", (1,)), ("A=B", ()), (None, ())])
def test_without_a_benchmark_lines_carry_the_label(write_lines, label, correct: tuple[int, ...]) -> None:
    path = write_lines([{"id": "x", "label": label, "decisions": ["A>B"], "subset": "math"}])
    (judged,) = read_decisions(path, None)
    assert (judged.outline.correct, judged.outline.num_responses, judged.outline.subset) == (correct, 2, "math")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{\n", "line 2: not a JSON object"),
        (b"[1]\n", r"line 2: not a JSON object: got '\[1\]'"),
        ({"id": "x"}, "line 2: decisions, scores: give exactly one of the two"),
        ({"decisions": ["A>B"]}, "line 2: id"),
        ({"id": "x", "decisions": ["A?B"]}, r"line 2: decisions\[0\]: expected .*; got 'A\?B'"),
        ({"id": "x", "decisions": ["A>B", "A>C"]}, r"line 2: decisions\[1\]: expected the labels A and B; got 'A>C'"),
        ({"id": "x", "decisions": ["C"]}, r"line 2: decisions\[0\]: expected a label from A to B, got 'C'"),
        ({"id": "x", "decisions": [1]}, r"line 2: decisions.0: 1 given"),
        ({"id": "x", "decisions": ["A>B"], "shown": []}, "line 2: shown: expected 1 lists, one per decision, got 0"),
        ({"id": "x", "decisions": ["A>B"], "shown": [[0, 0]]}, "line 2: shown: a list contains a response twice"),
        ({"id": "x", "decisions": ["A>B"], "shown": [[0, 2]]}, "line 2: shown: 2 is not an index of the 2 responses"),
        ({"id": "x", "scores": [1, 2, 3]}, "line 2: scores: expected 2, one per response, got 3"),
        ({"id": "q", "decisions": ["A>B"]}, r"line 2: unknown id 'q' .* look like 'w', 'x'"),
        ({"id": "w", "decisions": ["A>B"]}, "lines 1 and 2 have the same id, 'w'"),
        ({"id": "x", "scores": [1, 2]}, "line 1 has decisions and line 2 has scores"),
    ],
)
def test_an_invalid_line_is_reported_with_its_number(write_lines, line, message: str) -> None:
    path = write_lines([{"id": "w", "decisions": ["A>B"]}, line])
    with pytest.raises(InputError, match=message) as refused:
        read_decisions(path, [outline("w"), outline("x")])
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"id": "x", "label": 2, "decisions": ["A>B"]}, "label: 2 is not an index of the 2 responses"),
        ({"id": "x", "label": -1, "decisions": ["A>B"]}, "label: -1 is not an index of the 2 responses"),
        ({"id": "x", "label": "C>A", "decisions": ["A>B"]}, "label: expected the labels A and B; got 'C>A'"),
        (
            {"id": "x", "decisions": ["A>B"], "shown": [[0, 10**12]]},
            "shown: index 1000000000000 is too large; .* 1023",
        ),
    ],
)
def test_an_invalid_label_is_rejected(write_lines, line, message: str) -> None:
    with pytest.raises(InputError, match=f"line 1: {message}"):
        read_decisions(write_lines([line]), None)


def test_empty_and_missing_files_are_rejected(write_lines, tmp_path) -> None:
    with pytest.raises(InputError, match="is empty"):
        read_decisions(write_lines([b"\n"]), None)
    with pytest.raises(InputError, match="cannot be read"):
        read_decisions(tmp_path / "none.jsonl", None)


def test_a_mode_that_does_not_match_the_file_is_rejected(write_lines) -> None:
    path = write_lines([{"id": "x", "decisions": ["A>B"]}])
    with pytest.raises(InputError, match="has decisions, which do not match --mode pointwise"):
        read_decisions(path, [outline("x")], mode=Mode.POINTWISE)
    (judged,) = read_decisions(path, [outline("x")], mode=Mode.LISTWISE)
    assert judged.mode is Mode.LISTWISE


def test_a_pair_decision_about_six_responses_is_rejected(write_lines) -> None:
    path = write_lines([{"id": "x", "decisions": ["A>B"]}])
    with pytest.raises(InputError, match='6 were shown; name one, or list the two in "shown"'):
        read_decisions(path, [outline("x", num_responses=6)])
