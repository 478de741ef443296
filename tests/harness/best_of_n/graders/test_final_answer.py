"""Finding boxes and numbers in responses."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirjudge_harness.best_of_n.graders.final_answer import last_boxed, last_number, number_text


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"so \boxed{5}.", "5"),
        (r"\boxed{1} or \boxed{ 2 }", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\fbox{7}", "7"),
        (r"\boxed 8.", "8"),
        (r"\boxed{3} and then \boxed{4", "3"),
        (r"\boxed{\boxed{6}}", "6"),
        ("no box {5}", None),
        (r"a } \boxed{9}", "9"),
    ],
)
def test_the_last_closed_box_counts(text: str, content: str | None) -> None:
    assert last_boxed(text) == content


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("A: 26", "26"),
        ("it costs $1,234.50.", "1234.5"),
        ("from 5 to -3", "-3"),
        ("7-4=3", "3"),
        ("10-4", "4"),
        ("x2 is 5, so y3", "5"),
        ("1,2,3", "3"),
        ("about .5", "0.5"),
        ("in 12,3456 ways", "3456"),
        ("18.0", "18"),
        ("0070", "70"),
        ("none", None),
    ],
)
def test_the_last_number_counts(text: str, number: str | None) -> None:
    found = last_number(text)
    assert (None if found is None else number_text(found)) == number


def test_a_number_with_too_many_digits_is_not_an_answer() -> None:
    assert last_number("0." + "3" * 1000) is None


@given(number=st.decimals(min_value=-(10**9), max_value=10**9, places=3, allow_nan=False))
def test_a_written_number_is_found(number: Decimal) -> None:
    for written in (f"{number}", f"{number:,}", f"the answer is {number} dollars."):
        found = last_number(written)
        assert found == number
        assert found is not None
        assert Decimal(number_text(found)) == number


@given(content=st.text(alphabet="ab1 ", min_size=1, max_size=10), around=st.text(alphabet="ab {}", max_size=10))
def test_a_box_is_found_after_any_text(content: str, around: str) -> None:
    assert last_boxed(f"{around}\\boxed{{{content}}}") == content.strip()


def test_many_unclosed_boxes_take_linear_time() -> None:
    """With a scan per box, this test would take hours."""
    assert last_boxed(r"\boxed{" * 100_000) is None
