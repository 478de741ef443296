"""The built-in benchmark `selfcheck`: its items are correct, balanced, small and its own."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.harness.commands import run_command
from tirjudge.judge import content_order
from tirjudge.types import JudgeRequest, Mode
from tirjudge_harness import selfcheck_rows as module
from tirjudge_harness.benchmarks.selfcheck import BENCHMARK
from tirjudge_harness.run import sha256_of
from tirjudge_harness.selfcheck_rows import KINDS, selfcheck_rows, written_questions
from tirjudge_harness.sources import load_examples

ROWS = selfcheck_rows()
PHRASINGS = Path(__file__).parents[3] / "training" / "tirjudge_training" / "synthetic" / "phrasings.toml"

TRIED: dict[str, tuple[tuple[Any, ...], ...]] = {
    "median": (([3, 1, 2], 2), ([4, 1, 9, 2], 3)),
    "is_palindrome": (("Anna", True), ("abc", False)),
    "is_leap": ((2000, True), (1900, False), (2024, True), (2023, False)),
    "second_largest": (([5, 5, 3], 3), ([1, 2, 3], 2)),
    "vowels": (("An Apple", 3), ("aa", 2)),
}
"""Name of a function -> arguments and the value that a right program returns."""


def of_kind(kind: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the request, the right response and the wrong responses of each item of a kind."""
    for row in ROWS:
        if row["kind"] == kind:
            wrong = [text for index, text in enumerate(row["responses"]) if index != row["label"]]
            yield row["request"], row["responses"][row["label"]], wrong


def first_number(text: str) -> int:
    found = re.search(r"\d+", text)
    assert found is not None, text
    return int(found[0])


def spelled_dates(text: str) -> list[date]:
    return [datetime.strptime(found, "%d %B %Y").date() for found in re.findall(r"\d+ [A-Z][a-z]+ \d{4}", text)]


def is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def passes_tests(program: str) -> bool:
    names: dict[str, Callable[..., Any]] = {}
    exec(program, names)  # noqa: S102 (the programs of the benchmark)
    name = next(name for name in TRIED if name in names)
    return all(names[name](argument) == value for argument, value in TRIED[name])


def has_words(text: str, words: list[str]) -> bool:
    return any(re.search(rf"\b{word}", text, re.IGNORECASE) for word in words)


def test_there_are_sixty_items_of_three_modes_and_twelve_kinds() -> None:
    assert len(ROWS) == 60
    assert Counter(row["mode"] for row in ROWS) == {"pairwise": 24, "listwise": 24, "pointwise": 12}
    assert set(Counter(row["kind"] for row in ROWS).values()) == {5}
    assert len({row["id"] for row in ROWS}) == 60


def test_the_items_are_always_the_same() -> None:
    examples = load_examples(BENCHMARK, data=None, on_bad=lambda row: pytest.fail(str(row)))
    assert sha256_of(examples) == "1047654aeac8c669758dd2d78402a26b12807cb3a2c647e7fc245d1b7029ae3a"


def test_a_label_is_right_equally_often() -> None:
    labels = Counter((row["mode"], row["label"]) for row in ROWS)
    assert {labels["pairwise", 0], labels["pairwise", 1]} == {12}
    assert {labels["pointwise", 0], labels["pointwise", 1]} == {6}
    assert {labels["listwise", index] for index in range(3)} == {8}


def test_the_right_response_is_shown_equally_often_in_every_position() -> None:
    shown: Counter[tuple[str, int]] = Counter()
    for row in ROWS:
        if row["mode"] != "pointwise":
            request = JudgeRequest(mode=Mode(row["mode"]), prompt=row["request"], responses=row["responses"])
            shown[row["mode"], content_order(request).index(row["label"])] += 1
    assert set(shown.values()) == {12, 8}
    assert len(shown) == 5


def test_the_right_one_of_two_responses_is_as_often_longer_as_shorter() -> None:
    gains = Counter[int]()
    for row in ROWS:
        if row["mode"] != "listwise":
            right, wrong = len(row["responses"][row["label"]]), len(row["responses"][1 - row["label"]])
            gains[(right > wrong) - (right < wrong)] += 1
    assert gains[1] == gains[-1]


def test_counts_of_words_letters_and_sentences_are_right() -> None:
    for request, right, wrong in of_kind("words"):
        assert len(right.split()) == first_number(request)
        assert all(len(text.split()) != first_number(request) for text in wrong)
    for request, right, wrong in of_kind("sentences"):
        assert right.count(".") == first_number(request)
        assert all(text.count(".") != first_number(request) for text in wrong)
    letters = {line: letter for letter, line, _ in module.LETTERS}
    for request, right, wrong in of_kind("letters"):
        line = next(line for line in letters if line in request)
        assert first_number(right) == sum(character == letters[line] for character in line)
        assert all(first_number(text) != first_number(right) for text in wrong)


def test_sums_are_right() -> None:
    for request, right, wrong in of_kind("arithmetic"):
        numbers = [int(found) for found in re.findall(r"\d+", request)]
        match numbers:
            case [a, b] if "times" in request:
                expected = a * b
            case [price, people, 2] if "seat" in request:
                expected = price * (people + 1)
            case [pages, days, total] if "pages" in request:
                expected = total - pages * days
            case [c, d, 3, e]:
                expected = c - d + 3 * e
            case [total, 12]:
                expected = total // 12
            case _:
                pytest.fail(request)
        assert first_number(right) == expected
        assert all(first_number(text) != expected for text in wrong)


def test_dates_are_right() -> None:
    for request, right, wrong in of_kind("dates"):
        found = spelled_dates(request)
        if len(found) == 2:
            assert right == f"{(found[1] - found[0]).days} nights"
        elif "warranty" in request:
            assert spelled_dates(right) == [found[0] + timedelta(days=100)]
        else:
            assert right == found[0].strftime("%A")
        assert right not in wrong


def test_words_are_included_and_excluded_as_asked() -> None:
    needed = {request: words.split() for request, words, _, _ in module.NOTES}
    for request, right, wrong in of_kind("included"):
        assert all(word in request.lower() for word in needed[request])
        assert all(has_words(right, [word]) for word in needed[request])
        assert not any(all(has_words(text, [word]) for word in needed[request]) for text in wrong)
    banned = ["sand", "sun", "cup", "morning", "book", "cute", "fluffy", "snow", "cold"]
    for request, right, wrong in of_kind("excluded"):
        words = [word for word in banned if word in request]
        assert not has_words(right, words)
        assert all(has_words(text, words) for text in wrong)


def test_json_and_code_are_right() -> None:
    for _, right, wrong in of_kind("json"):
        assert is_json(right)
        assert not any(map(is_json, wrong))
    for one in written_questions()["code"]:
        assert passes_tests(one["right"])
        assert not any(map(passes_tests, one["wrong"]))


def test_the_generator_is_small() -> None:
    for file in Path(module.__file__).parent.glob("selfcheck_*"):
        assert file.stat().st_size < 50_000


def test_no_request_shares_six_words_in_a_row_with_the_training_templates_of_the_bundled_judge() -> None:
    def grams(text: str) -> set[tuple[str, ...]]:
        words = re.findall(r"[a-z0-9']+", text.lower())
        return {tuple(words[start : start + 6]) for start in range(len(words) - 5)}

    def strings(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        else:
            for part in value.values() if isinstance(value, dict) else value:
                yield from strings(part)

    trained = [grams(text) for text in strings(tomllib.loads(PHRASINGS.read_text(encoding="utf-8")))]
    assert sum(map(len, trained)) > 1000
    of_templates = set[tuple[str, ...]]().union(*trained)
    assert not [row["request"] for row in ROWS if grams(row["request"]) & of_templates]


@pytest.mark.slow
def test_a_run_judges_each_item_in_its_own_mode_and_is_resumed(random_checkpoint: Path, tmp_path: Path) -> None:
    command = ["bench", "run", "selfcheck", "--out", str(tmp_path), "--model", str(random_checkpoint)]
    command += ["--tools", "off", "--limit", "12", "--json"]
    first, again = run_command(command), run_command(command)
    assert first.status == again.status == 0, first.stderr
    (result,) = json.loads(first.stdout)
    assert result["manifest"]["mode"] is None
    assert result["counts"]["examples"] == 12
    assert {figure["name"] for figure in result["figures"]} >= {"all items", "to read", "pointwise", *KINDS}
    num_lines = (tmp_path / "journal.jsonl").read_bytes().count(b"\n")
    asked = [json.loads(line) for line in (tmp_path / "outlines.jsonl").read_text().splitlines()]
    assert num_lines == sum(len(one["asked"]) for one in asked)  # the second run sent nothing
    modes = {one["outline"]["mode"]: len(one["asked"]) for one in asked}
    assert modes == {"pairwise": 1, "listwise": 1, "pointwise": 2}
    report = run_command(["bench", "report", str(tmp_path)])
    assert report.status == 0, report.stderr
    assert "mixed modes" in report.stdout


def test_a_mode_for_the_whole_run_is_rejected(random_checkpoint: Path, tmp_path: Path) -> None:
    command = ["bench", "run", "selfcheck", "--out", str(tmp_path), "--model", str(random_checkpoint)]
    done = run_command([*command, "--tools", "off", "--mode", "pairwise"])
    assert done.status == 2
    assert "each item of selfcheck has its own mode" in done.stderr
