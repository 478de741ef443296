"""Checking answers with unit tests and math-verify in the real sandbox."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from tirjudge_sandbox import SandboxPool
from tirjudge_training.data.answers import AnswerQuestion, FinalAnswer, compare, last_boxed, open_checking_pool
from tirjudge_training.data.checking import checked
from tirjudge_training.data.problems import AnswerCheck, CandidateAnswer, TrainingProblem
from tirjudge_training.data.quality import Reason, Rejected
from tirjudge_training.data.unit_tests import LIMITS, program_of, run_tests

in_module_loop = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[SandboxPool]:
    async with open_checking_pool(slots=1) as opened:
        yield opened


def unit_test(expression: str) -> str:
    body = f"    def test_it(self):\n        self.assertTrue({expression})\n"
    return f"import unittest\nclass TestIt(unittest.TestCase):\n{body}"


def problem(check: AnswerCheck, reference: str, *texts: str, known: tuple[str, ...] = ()) -> TrainingProblem:
    candidates = [CandidateAnswer(text=text, right=True) for text in known] + [
        CandidateAnswer(text=text) for text in texts
    ]
    return TrainingProblem(
        id="p", prompt="?", check=check, reference=reference, candidates=tuple(candidates), task="code", source="ours",
        licence="", verifiable=True,
    )  # fmt: skip


def rights(found: TrainingProblem | Rejected) -> list[bool | None]:
    assert isinstance(found, TrainingProblem)
    return [candidate.right for candidate in found.candidates]


@in_module_loop
async def test_each_unit_test_is_counted_separately(pool: SandboxPool) -> None:
    solution = "Here it is:\n```python\ndef double(n):\n    return 2 * n\n```\nIt doubles."
    tests = [unit_test("double(2) == 4"), unit_test("double(2) == 5"), "broken (", unit_test("double('a') == 'aa'")]
    assert await run_tests(solution, tests=tests, pool=pool) == (True, False, False, True)


@in_module_loop
async def test_a_file_without_unit_tests_passes_nothing(pool: SandboxPool) -> None:
    assert await run_tests("x = 1", tests=["assert x == 1"], pool=pool) == (False,)


@in_module_loop
async def test_exiting_early_is_not_a_pass(pool: SandboxPool) -> None:
    tests = [unit_test("f() == 1")]
    for body in ("raise SystemExit(0)", "import os; os._exit(0)", "print('token 0 1')"):
        assert await run_tests(f"def f():\n    {body}", tests=tests, pool=pool) == (False,)


@pytest.mark.slow
@in_module_loop
async def test_endless_loop_fails_its_test_and_all_later_tests(pool: SandboxPool) -> None:
    solution = "def f(n):\n    while n == 1: pass\n    return n"
    tests = [unit_test(f"f({n}) == {n}") for n in (0, 1, 2)]
    limits = replace(LIMITS, cpu_s=1.0)
    assert await run_tests(solution, tests=tests, pool=pool, limits=limits) == (True, False, False)
    assert await run_tests("def f(n): return n", tests=tests, pool=pool) == (True, True, True)


@in_module_loop
async def test_tests_that_the_reference_fails_are_ignored(pool: SandboxPool) -> None:
    tests = json.dumps([unit_test("f() == 1"), unit_test("f() == 2")])
    one = problem(AnswerCheck.TESTS, tests, "def f(): return 1", "def f(): return 2", known=("def f():\n    return 1",))
    nonsense = problem(AnswerCheck.TESTS, tests, "def f(): return 1", known=("def f(): return 3",))
    found, none = await checked([one, nonsense], pool=pool)
    assert rights(found) == [True, True, False]
    assert isinstance(found, TrainingProblem)
    assert json.loads(found.reference) == [unit_test("f() == 1")]
    assert isinstance(none, Rejected)
    assert none.reason is Reason.UNVERIFIABLE_ANSWER


@pytest.mark.slow
@in_module_loop
async def test_equivalent_answers_are_equal(pool: SandboxPool) -> None:
    half = AnswerQuestion(
        gold=r"\frac{1}{2}",
        responses=(r"So \boxed{0.5}.", r"\boxed{2}", r"first \boxed{3}, no: \boxed{1/2}", r"\boxed{2.0}", "I give up."),
    )
    root = AnswerQuestion(gold=r"\sqrt{8}", responses=(r"\boxed{2\sqrt{2}}",))
    found = await compare([half, root], pool=pool)
    assert found[0] is not None
    assert [answer.right for answer in found[0]] == [True, False, True, False, False]
    assert found[0][0].text == found[0][2].text
    assert found[0][1].text == found[0][3].text != found[0][0].text
    assert found[0][4] == FinalAnswer(text=None, right=False)
    assert found[1] is not None
    assert found[1][0].right


@in_module_loop
async def test_choices_are_compared_as_text(pool: SandboxPool) -> None:
    texts = (r"\boxed{\text{B}}", "I think so.\n**(B)**", "B.", r"\boxed{C}", "Either A or B")
    (found,) = await checked([problem(AnswerCheck.TEXT, "(B)", *texts)], pool=pool)
    assert rights(found) == [True, True, True, False, False]


@in_module_loop
async def test_answers_to_instructions_are_rejected(pool: SandboxPool) -> None:
    (found,) = await checked([problem(AnswerCheck.INSTRUCTIONS, "{}", "text")], pool=pool)
    assert isinstance(found, Rejected)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{1} and \boxed{\frac{a}{b}}", r"\frac{a}{b}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\fbox{ 7 }", "7"),
        (r"\boxed{open", None),
        ("nothing", None),
    ],
)
def test_last_box_is_extracted(text: str, answer: str | None) -> None:
    assert last_boxed(text) == answer


def test_longest_code_block_is_the_program() -> None:
    assert program_of("```\na\n```\nthen\n```python\nlonger = 1\n```") == "longer = 1\n"
    assert program_of("x = 1") == "x = 1"
