"""Word problems: the writers' files and the drawn numbers."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest

from tirjudge_training.instructions import word_problems as module
from tirjudge_training.instructions.word_problems import (
    HELD_OUT_PROBLEM_WRITERS,
    TRAINING_PROBLEM_WRITERS,
    filled_problem,
    result,
    word_problems,
)
from tirjudge_training.instructions.written import normalized


@pytest.mark.parametrize("writers", [TRAINING_PROBLEM_WRITERS, HELD_OUT_PROBLEM_WRITERS])
def test_each_problem_can_be_drawn(writers: tuple[str, ...]) -> None:
    rng = Random(3)
    problems = word_problems(writers)
    assert len(problems) >= 80
    for one in problems:
        text, _ = filled_problem(one, rng=rng)
        assert not re.search(r"\{\w\}", text), text


def test_numbers_are_those_of_the_ranges_and_have_a_short_result(monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "xia").mkdir()
    (tmp_path / "xia" / "problems.txt").write_text("n / m ; n=2..40, m=2..9 | {n} by {m}")
    monkeypatch.setattr(module, "WRITERS", tmp_path)
    (problem,) = word_problems(("xia",))
    rng = Random(2)
    for _ in range(30):
        text, formula = filled_problem(problem, rng=rng)
        if found := re.fullmatch(r"(\d+) by (\d+)", text):
            first, second = map(int, found.groups())
            assert 2 <= first <= 40
            assert first % second == 0
            assert formula == f"{first} / {second}"
    assert result("(n - 1) / (m - m)", {"n": Fraction(3), "m": Fraction(2)}) is None


def test_no_problem_for_training_is_one_of_the_held_out_writer() -> None:
    training, held_out = (
        {normalized(one.text) for one in word_problems(writers)}
        for writers in (TRAINING_PROBLEM_WRITERS, HELD_OUT_PROBLEM_WRITERS)
    )
    assert training & held_out == set()


@pytest.mark.parametrize(
    "line",
    [
        "n + m ; n=2..9 | {n} and {m}?",
        "n + m ; n=2..9, m=1..3 | {n}?",
        "n + m ; n=2-9, m=1..3 | {n} and {m}?",
        "print(n) ; n=2..9 | {n}?",
        "n ; n=2..9 |",
    ],
)
def test_invalid_lines_are_refused(monkeypatch, tmp_path: Path, line: str) -> None:
    (tmp_path / "zoe").mkdir()
    (tmp_path / "zoe" / "problems.txt").write_text(line)
    monkeypatch.setattr(module, "WRITERS", tmp_path)
    with pytest.raises(ValueError, match="writers: "):
        word_problems(("zoe",))


def test_a_problem_without_a_positive_result_is_refused(monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "yan").mkdir()
    (tmp_path / "yan" / "problems.txt").write_text("n - m ; n=2..9, m=10..30 | {n} less {m}?")
    monkeypatch.setattr(module, "WRITERS", tmp_path)
    with pytest.raises(ValueError, match="no result above zero"):
        filled_problem(word_problems(("yan",))[0], rng=Random(1))
