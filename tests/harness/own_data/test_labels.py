from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from tirjudge.verdict import TIED
from tirjudge_harness.items import InputError
from tirjudge_harness.own_data.labels import label_value, majority, meanings_of, rating_of
from tirjudge_harness.own_data.mapping import label_values_of

PAIR = ("response_a", "response_b")


def meanings(
    values: Sequence[str],
    *,
    columns: Sequence[str] = PAIR,
    num: int = 2,
    column: str = "winner",
    given: dict[str, str] | None = None,
) -> dict[str, str]:
    return meanings_of(Counter(values), columns=columns, num_responses=num, label_column=column, given=given or {})


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        (" Model_A ", "model_a"), ("[[A]]", "a"), (1, "1"), (2.0, "2"), ("2.0", "2"), (-3, "-3"), (True, "true"),
        (0.5, "0.5"), (None, None), ("", None), ("NaN", None), (float("nan"), None), ("N/A", None), ("none", None),
    ],
)  # fmt: skip
def test_labels_are_normalized(cell: object, value: str | None) -> None:
    assert label_value(cell) == value


@pytest.mark.parametrize("cell", [["A"], {"label": "A"}, "x" * 81])
def test_a_list_or_a_long_text_is_not_a_label(cell: object) -> None:
    with pytest.raises(ValueError, match="expected a label, got"):
        label_value(cell)


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        ("a", "A"), ("b", "B"), ("model_b", "B"), ("response a", "A"), ("response_b", "B"), ("a>b", "A"), ("b>>a", "B"),
        ("a << b", "B"), ("a=b", "tie"), ("b = a", "tie"), ("tie (bothbad)", "tie"), ("both", "tie"), ("second", "B"),
    ],
)  # fmt: skip
def test_words_and_letters_name_a_response(value: str, meaning: str) -> None:
    assert meanings([value]) == {value: meaning}


@pytest.mark.parametrize("value", ["c", "model_c", "a>a", "gpt-4", "better", "0.5", "true", "a_b"])
def test_other_words_have_no_meaning(value: str) -> None:
    assert meanings([value]) == {}


@pytest.mark.parametrize(
    ("values", "num", "expected"),
    [
        (["0", "1"], 2, {"0": "A", "1": "B"}),
        (["0"], 2, {"0": "A"}),
        (["1", "2"], 2, {"1": "A", "2": "B"}),
        (["2"], 2, {"2": "B"}),
        (["1"], 2, {}),  # the second response counted from 0, or the first one counted from 1
        (["0", "1", "2"], 2, {}),  # 0 may mean a tie
        (["1", "3"], 4, {}),
        (["1", "4"], 4, {"1": "A", "4": "D"}),
        (["0", "3"], 4, {"0": "A", "3": "D"}),
        (["1", "2", "tie"], 2, {"tie": "tie", "1": "A", "2": "B"}),
    ],
)
def test_numbers_are_counted_from_zero_or_one_only_if_that_is_certain(
    values: list[str], num: int, expected: dict[str, str]
) -> None:
    assert meanings(values, num=num) == expected


def test_numbers_in_the_names_of_the_columns_decide() -> None:
    columns = ("output_1", "output_2")
    assert meanings(["1"], columns=columns) == {"1": "A"}
    assert meanings(["model_2", "output_1"], columns=columns) == {"model_2": "B", "output_1": "A"}
    assert meanings(["1"], columns=("output_0", "output_1")) == {"1": "B"}


def test_booleans_need_a_column_that_says_what_is_true() -> None:
    assert meanings(["true", "false"], column="label") == {}
    assert meanings(["true", "false"], column="A is better") == {"true": "A", "false": "B"}


def test_signed_preferences_are_those_of_helpsteer() -> None:
    assert meanings(["-3", "0", "1"], column="overall_preference") == {"-3": "A", "0": "tie", "1": "B"}
    assert meanings(["-3", "1"], column="margin") == {}


def test_given_meanings_win() -> None:
    assert meanings(["left", "a"], given={"left": "B", "a": "tie"}) == {"left": "B", "a": "tie"}


def test_ratings_are_finite_numbers_or_truth() -> None:
    assert [rating_of(value, given={}) for value in ("4.5", "-1", "true", "incorrect", "inf", "good")] == [
        4.5, -1.0, 1.0, 0.0, None, None,
    ]  # fmt: skip
    assert rating_of("good", given={"good": "3"}) == 3.0


def test_the_majority_of_the_raters_counts() -> None:
    assert majority([0, 0, 1]) == 0
    assert majority([0, 1, None]) == TIED
    assert majority([TIED, TIED, 1]) == TIED
    assert majority([1, 1, TIED, None]) == 1
    assert majority([None, None]) is None


def test_options_of_label_values() -> None:
    assert label_values_of(["left=A", "a=b=tie", "good=1.5"]) == {"left": "A", "a=b": "tie", "good": "1.5"}
    assert label_values_of([]) is None
    for wrong in ("left", "=A", "left=a", "left=nan", "left="):
        with pytest.raises(InputError, match="--label-value: expected VALUE=A"):
            label_values_of([wrong])


@pytest.mark.parametrize(
    ("values", "column", "expected"),
    [
        (["1", "2"], "overall_preference", {"1": "A", "2": "B"}),
        (["0", "1"], "overall_preference", {}),
        (["0", "1", "2", "3"], "preference_strength", {}),
        (["0", "0.5", "1"], "label", {}),
        (["-1", "0", "1"], "label", {}),
        (["0.5", "a", "b"], "label", {"a": "A", "b": "B"}),
    ],
)
def test_codes_whose_direction_is_not_certain_are_refused(
    values: list[str], column: str, expected: dict[str, str]
) -> None:
    assert meanings(values, column=column) == expected
