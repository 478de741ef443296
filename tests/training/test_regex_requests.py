"""Requests for a regular expression: the writers' files, other examples in place of theirs, and the drawn prompts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random

import pytest

from tirjudge_training.instructions import regex_requests as module
from tirjudge_training.instructions.composing import composer_of
from tirjudge_training.instructions.notation import Check
from tirjudge_training.instructions.regex_requests import (
    TRAINING_REGEX_WRITERS,
    draw_regex_request,
    regex_requests,
    with_other_examples,
)
from tirjudge_training.instructions.responses import holds
from tirjudge_training.instructions.written import ANSWERED_REGEX_WRITER, TRAINING_WRITERS, WRITERS, Instruction


def request_of(line: str, *, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Instruction:
    """Return the request of a writer with one line."""
    (folder / "one").mkdir()
    (folder / "one" / "regexes.txt").write_text(f"{line}\n", encoding="utf-8")
    monkeypatch.setattr(module, "WRITERS", folder)
    regex_requests.cache_clear()
    try:
        return regex_requests(("one",))[0]
    finally:
        regex_requests.cache_clear()


def expressions(one: Instruction) -> list[str]:
    return [check.expression for check in one.checks]


@pytest.mark.parametrize("writer", TRAINING_REGEX_WRITERS)
def test_writers_wrote_enough(writer: str) -> None:
    requests = regex_requests((writer,))
    names = [{check.name for check in one.checks} for one in requests]
    assert sum({"matches", "no_match"} <= each for each in names) >= 70
    assert sum(not each for each in names) >= 9


def test_checks_are_in_the_order_of_the_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = r'matches "x1" "AB-1" ; no_match "ab-1" "B-1" | ids: AB-1 yes,\nab-1 no, B-1 no, x1 yes'
    one = request_of(line, folder=tmp_path, monkeypatch=monkeypatch)
    assert one.text == "ids: AB-1 yes,\nab-1 no, B-1 no, x1 yes"
    assert expressions(one) == ['matches(r, "AB-1")', 'no_match(r, "ab-1", "B-1")', 'matches(r, "x1")']


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('matches "AB" | ab only', "has all their values"),
        ('matches "AB"', "a bar"),
        ("words >= 3 | at least 3 words", "words is not one of is_regex"),
        ("match | a", "match"),
    ],
)
def test_lines_that_are_not_valid_are_named(
    line: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=re.escape(expected)):
        request_of(line, folder=tmp_path, monkeypatch=monkeypatch)


def test_other_examples_have_the_shape_of_the_old_ones_and_stand_in_their_places() -> None:
    rng = Random(1)
    changed = 0
    for one in regex_requests(TRAINING_REGEX_WRITERS):
        other = with_other_examples(one, rng=rng)
        changed += other != one
        before, after = ([value for check in each.checks for value in check.texts] for each in (one, other))
        assert len(set(after)) == len(set(before))
        assert all(value in other.text for value in after), other
        shapes = [[re.sub(r"\d", "0", re.sub("[A-Za-z]", "a", value)) for value in each] for each in (before, after)]
        assert shapes[0] == shapes[1]
        assert [check.name for check in one.checks] == [check.name for check in other.checks]
    assert changed > 300


def test_drawn_requests_have_the_examples_that_their_checks_try() -> None:
    composer, rng = composer_of(TRAINING_WRITERS), Random(2)
    drawn = [draw_regex_request(rng, composer) for _ in range(600)]
    for text, checks in drawn:
        for check in checks:
            values = re.findall(r'"(?:[^"\\]|\\.)*"', check)
            assert all(json.loads(value) in text for value in values), (text, check)
    assert {re.sub(r"\(.*", "", check) for _, checks in drawn for check in checks} == {
        "is_regex",
        "matches",
        "no_match",
    }
    assert 20 < sum(not checks for _, checks in drawn) < 150


def test_the_examples_decide_the_answers_of_the_held_out_writer() -> None:
    text = (WRITERS / ANSWERED_REGEX_WRITER / "regexes.jsonl").read_text(encoding="utf-8")
    requests = [json.loads(line) for line in text.splitlines()]
    undecided = []
    for one in requests:
        checks = [Check(name=name, texts=tuple(one[name])) for name in ("matches", "no_match") if one[name]]
        passed = [
            all(holds(check.expression, one[answer], prompt=one["prompt"]) for check in checks)
            for answer in ("right", "wrong")
        ]
        if passed != [True, False]:
            undecided.append(one["prompt"])
    assert len(requests) == 60
    assert len(undecided) <= 1, undecided
