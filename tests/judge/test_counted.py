"""Numbers with their nouns."""

from __future__ import annotations

import pytest

from tirjudge.counted import counted


@pytest.mark.parametrize(("num", "text"), [(0, "0 items"), (1, "1 item"), (2500, "2,500 items")])
def test_noun_is_plural_unless_the_number_is_one(num: int, text: str) -> None:
    assert counted(num, "item") == text
