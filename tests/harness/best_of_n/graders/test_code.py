"""Grading programs with their tests in a real sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tirjudge_harness.best_of_n.graders import code
from tirjudge_harness.best_of_n.graders.code import CodeGrader, open_code_grader
from tirjudge_harness.best_of_n.graders.grade import Grade
from tirjudge_harness.items import InputError

pytestmark = pytest.mark.asyncio(loop_scope="module")

DOUBLE = "def double(x):\n    return 2 * x\n"
ASSERTIONS = {"assertion": "assert double(2) == 4\nassert double(-1) == -2", "entry_point": "double"}
CHECK = {"test": "def check(candidate):\n    assert candidate(2) == 4\n", "entry_point": "double"}
UNIT_TESTS = {
    "code_prompt": "import json\ndef double(x):\n",
    "test": """
import unittest
class TestCases(unittest.TestCase):
    def setUp(self):
        with open("numbers.json", "w") as file:
            json.dump([1, 2], file)
    def test_two(self):
        self.assertEqual(double(2), 4)
    def test_file(self):
        with open("numbers.json") as file:
            self.assertEqual([double(x) for x in json.load(file)], [2, 4])
""",
    "entry_point": "double",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def grader() -> AsyncIterator[CodeGrader]:
    async with open_code_grader(slots=2) as opened:
        yield opened


async def grade_one(grader: CodeGrader, response: str, facts: dict[str, Any]) -> Grade:
    (grade,) = await grader.grade([response], facts=facts)
    return grade


@pytest.mark.parametrize("facts", [ASSERTIONS, CHECK, UNIT_TESTS])
async def test_only_a_program_that_passes_its_tests_is_right(grader: CodeGrader, facts: dict[str, Any]) -> None:
    grades = await grader.grade([DOUBLE, "def double(x):\n    return 5\n", "def double(x:\n"], facts=facts)
    assert [grade.correct for grade in grades] == [True, False, False]
    assert [grade.answer for grade in grades] == [None, None, None]
    assert grades[2].detail["error"].startswith("SyntaxError")


async def test_failed_tests_are_listed(grader: CodeGrader) -> None:
    grade = await grade_one(grader, "def double(x):\n    return 4\n", UNIT_TESTS)
    assert grade.detail == {
        "outcome": "ok",
        "error": "AssertionError: Lists differ: [4, 4] != [2, 4]",
        "failed": ["test_file"],
    }


async def test_the_tests_see_the_imports_of_the_code_prompt(grader: CodeGrader) -> None:
    """The tests use json. Only the code prompt imports it."""
    grade = await grade_one(grader, DOUBLE, {**UNIT_TESTS, "code_prompt": None})
    assert grade.correct is False
    assert "json" in grade.detail["error"]


@pytest.mark.parametrize("exiting", ["import sys; sys.exit(0)", "import os; os._exit(0)", "raise SystemExit"])
@pytest.mark.parametrize("facts", [ASSERTIONS, UNIT_TESTS])
async def test_a_program_that_exits_before_its_tests_fails(
    grader: CodeGrader, exiting: str, facts: dict[str, Any]
) -> None:
    grade = await grade_one(grader, f"def double(x):\n    return 4\n{exiting}\n", facts)
    assert grade.correct is False
    assert grade.detail["error"] == "the program exited before its tests"


async def test_a_printed_forged_report_does_not_pass(grader: CodeGrader) -> None:
    forged = "def double(x):\n    return 4\nprint('\\n' + '0' * 32 + '[]')\n"
    assert (await grade_one(grader, forged, ASSERTIONS)).correct is False


@pytest.mark.slow
async def test_main_code_of_a_program_does_not_run(grader: CodeGrader) -> None:
    main = f"{DOUBLE}\nif __name__ == '__main__':\n    raise SystemExit('usage: double X')\n"
    assert (await grade_one(grader, main, ASSERTIONS)).correct


async def test_a_program_may_begin_with_future_imports(grader: CodeGrader) -> None:
    assert (await grade_one(grader, f"from __future__ import annotations\n{DOUBLE}", ASSERTIONS)).correct


async def test_classes_of_a_program_can_be_pickled(grader: CodeGrader) -> None:
    facts = {
        "test": "import pickle, unittest\nclass TestCases(unittest.TestCase):\n    def test_it(self):\n"
        "        self.assertEqual(pickle.loads(pickle.dumps(Box())).x, 1)\n"
    }
    assert (await grade_one(grader, "class Box:\n    x = 1\n", facts)).correct


async def test_long_output_does_not_hide_the_report(grader: CodeGrader) -> None:
    noisy = f"{DOUBLE}\nfor _ in range(20_000):\n    print('noise', end=' ')\n"
    assert (await grade_one(grader, noisy, ASSERTIONS)).correct


async def test_a_missing_package_of_the_tests_means_not_graded(grader: CodeGrader) -> None:
    facts = {"test": "import unittest, nosuchpackage\nclass TestCases(unittest.TestCase):\n    pass\n"}
    grade = await grade_one(grader, DOUBLE, facts)
    assert grade.correct is None
    assert grade.detail["not_graded"] == "packages not installed: nosuchpackage"


async def test_a_missing_package_of_the_benchmark_means_not_graded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(code, "PACKAGES", {"nosuchpackage": "no-such-package"})
    async with open_code_grader(slots=1) as grader:
        inside = await grade_one(grader, "def double(x):\n    import nosuchpackage.part\n", ASSERTIONS)
        assert inside.detail["not_graded"] == "packages not installed: nosuchpackage"


async def test_a_program_that_imports_an_unknown_package_is_wrong(grader: CodeGrader) -> None:
    grade = await grade_one(grader, f"import nosuchpackage\n{DOUBLE}", ASSERTIONS)
    assert (grade.correct, grade.detail["error"]) == (False, "ModuleNotFoundError: No module named 'nosuchpackage'")


async def test_a_missing_package_that_a_test_patches_means_not_graded(grader: CodeGrader) -> None:
    facts = {
        "test": "import unittest\nfrom unittest.mock import patch\nclass TestCases(unittest.TestCase):\n"
        "    @patch('nosuchpackage.get')\n    def test_it(self, get):\n        self.assertEqual(double(2), 4)\n"
    }
    assert (await grade_one(grader, DOUBLE, facts)).detail["not_graded"] == "packages not installed: nosuchpackage"


async def test_a_program_that_imports_an_unknown_submodule_is_wrong(grader: CodeGrader) -> None:
    grade = await grade_one(grader, f"import json.nosuchpart\n{DOUBLE}", ASSERTIONS)
    assert grade.correct is False
    assert "nosuchpart" in grade.detail["error"]


async def test_a_missing_optional_package_is_ignored(grader: CodeGrader) -> None:
    optional = f"try:\n    import nosuchpackage\nexcept ImportError:\n    pass\n{DOUBLE}"
    assert (await grade_one(grader, optional, ASSERTIONS)).correct


async def test_packages_that_the_tests_use_can_be_imported(grader: CodeGrader) -> None:
    assert (await grade_one(grader, f"import numpy\n{DOUBLE}", {"assertion": "assert numpy.sum([1, 2]) == 3"})).correct


async def test_a_test_class_without_tests_does_not_pass(grader: CodeGrader) -> None:
    facts = {"test": "import unittest\nclass TestCases(unittest.TestCase):\n    pass\n"}
    grade = await grade_one(grader, DOUBLE, facts)
    assert (grade.correct, grade.detail["error"]) == (False, "no test ran")


async def test_a_program_too_long_for_the_sandbox_is_not_graded(grader: CodeGrader) -> None:
    grade = await grade_one(grader, DOUBLE + "#" * (1 << 20), ASSERTIONS)
    assert grade.correct is None
    assert grade.detail["not_graded"].startswith("refused by the sandbox: ProgramTooLong")


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({}, "test: missing; give test or assertion"),
        ({"test": "def check(candidate): pass"}, "entry_point: missing"),
        ({"test": CHECK["test"], "entry_point": "os.system"}, "entry_point: expected the name .*'os.system'"),
    ],
)
async def test_invalid_facts_are_refused(grader: CodeGrader, facts: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        await grader.grade([DOUBLE], facts=facts)
