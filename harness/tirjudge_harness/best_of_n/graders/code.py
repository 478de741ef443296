"""Grades programs by running them with their tests in the sandbox.

Three kinds of tests are known by their facts: `assertion`, statements that follow the program; `test` with a function
`check`, which is given the function `entry_point` (HumanEval); and `test` with unittest's `TestCases` (BigCodeBench), where
`code_prompt` is put before the program as its calibrated figures want it.

A program passes if the line that stands after all of its tests was reached, so one that leaves early has not passed. Not
protected against: programs that are written to deceive the grader, for they share an interpreter with their tests.
"""

from __future__ import annotations

import ast
import asyncio
import json
import re
import secrets
import sys
import warnings
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import resources
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from tirjudge.types import ExecResult, Outcome
from tirjudge_harness.best_of_n.graders.grade import Grade, read_facts
from tirjudge_sandbox import Limits, SandboxPool
from tirjudge_sandbox.packages import find_packages

LIMITS = Limits(
    cpu_s=30.0, wall_s=300.0, memory_mb=2048, file_mb=16, scratch_mb=128, source_bytes=1 << 20, error_chars=500
)
"""Of one program with its tests; wide, as those of the benchmarks' own evaluations are."""

PACKAGES: Mapping[str, str] = MappingProxyType(
    dict(
        line.split()
        for line in resources.files(__package__ or "").joinpath("code_packages.txt").read_text().splitlines()
    )
)
"""Import name -> distribution of what BigCodeBench's programs and tests use. Those that are not installed are missing."""

_FENCED = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_LACKS = re.compile(r"(?:No module named|Missing optional dependency) ['\"]([\w.]+)")
_BINDINGS = {"__name__": "__test__", "__file__": "__test__.py"}
"""Programs are imported by their tests, not run: what stands under `if __name__ == "__main__"` stays undone."""

_REACHED_END = """
__import__("os").write(1, b"\\n{token}[]\\n")
"""
_UNIT_TESTS = """
def _run_unit_tests():
    import json, os, sys, unittest

    def complaint_of(trace):
        raised = trace.rpartition("  File ")[2].splitlines()
        return next((line for line in raised[1:] if line[:1].strip()), "failed")

    sys.modules[__name__] = sys.modules["__main__"]
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(TestCases).run(result)
    failed = [(test.id(), complaint_of(trace)) for test, trace in result.failures + result.errors]
    if not result.testsRun:
        failed = [("TestCases", "no test ran")]
    report = json.dumps([(name[-200:], line[:300]) for name, line in failed[:10]])
    os.write(1, b"\\n{token}" + report.encode() + b"\\n")

_run_unit_tests()
"""


class Tests(BaseModel):
    """What a program is tested with."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    entry_point: str | None = None
    """The function that is asked for; needed where `test` has a `check`, and to find the program in prose."""
    assertion: str | None = None
    test: str | None = None
    code_prompt: str | None = None

    @model_validator(mode="after")
    def _has_tests(self) -> Tests:
        if self.assertion is None and self.test is None:
            raise ValueError("test: not given, and neither is assertion; one of them is needed")
        if self.entry_point is not None and not self.entry_point.isidentifier():
            raise ValueError(f"entry_point: {self.entry_point!r} given, the name of a function is needed")
        if self.assertion is None and not self.is_unit_test and self.entry_point is None:
            raise ValueError("entry_point: not given, the test has no class TestCases and needs a function to check")
        return self

    @property
    def is_unit_test(self) -> bool:
        return self.test is not None and re.search(r"^class TestCases\b", self.test, re.MULTILINE) is not None

    def mention(self, name: str) -> bool:
        """Whether the tests, or what the prompt begins with, speak of a module."""
        given = "\n".join(filter(None, (self.code_prompt, self.test, self.assertion)))
        return re.search(rf"\b{re.escape(name)}\b", given) is not None

    def program(self, solution: str, *, token: str) -> str:
        """A solution with its tests, which writes the token, and a list of failed tests, when all of them were run."""
        if self.assertion is not None:
            return f"{solution}\n{self.assertion}\n{_REACHED_END.format(token=token)}"
        if not self.is_unit_test:
            return f"{solution}\n{self.test}\ncheck({self.entry_point})\n{_REACHED_END.format(token=token)}"
        stub = "" if self.code_prompt is None else f"{self.code_prompt}\n    pass\n"
        return f"{stub}{solution}\n{self.test}\n{_UNIT_TESTS.format(token=token)}"


class CodeGrader:
    """Facts: those of `Tests`. Programs are not voted on.

    async with open_code_grader() as grader:
        grades = await grader.grade(["def one(): return 1"], facts={"assertion": "assert one() == 1"})
    """

    def __init__(self, pool: SandboxPool, *, concurrency: int) -> None:
        """Runs programs in a pool that is open.

        Args:
            pool: offers those of `PACKAGES` that are installed.
            concurrency: programs at a time, no more than its slots.
        """
        self._pool = pool
        self._free = asyncio.Semaphore(concurrency)
        self._modules = frozenset(find_packages([*PACKAGES.values()]).modules) | sys.stdlib_module_names

    async def grade(self, responses: Sequence[str], *, facts: Mapping[str, Any]) -> list[Grade]:
        tests = read_facts(Tests, facts)
        solutions = [program_of(response, entry_point=tests.entry_point) for response in responses]
        different = list(dict.fromkeys(solutions))
        grades = await asyncio.gather(*(self._grade(solution, tests=tests) for solution in different))
        grade_of = dict(zip(different, grades, strict=True))
        return [grade_of[solution] for solution in solutions]

    async def _grade(self, solution: str, *, tests: Tests) -> Grade:
        token = secrets.token_hex(16)
        async with self._free:
            result = await self._pool.run(tests.program(solution, token=token), bindings=_BINDINGS)
        failed = _failed_tests(result, token=token)
        if failed == [] and result.outcome is Outcome.OK:
            return Grade(correct=True, detail={"outcome": "ok"})
        complaints = [line for _, line in failed or []] + ([result.error] if result.error else [])
        detail: dict[str, Any] = {
            "outcome": str(result.outcome),
            "error": complaints[0] if complaints else "it left before its tests",
        }
        if failed:
            detail["failed"] = [name.rpartition(".")[2] for name, _ in failed]
        reason = self._not_graded(result, complaints=complaints, tests=tests)
        if reason is not None:
            return Grade(correct=None, detail={**detail, "not_graded": reason})
        return Grade(correct=False, detail=detail)

    def _not_graded(self, result: ExecResult, *, complaints: Sequence[str], tests: Tests) -> str | None:
        """Why a program that did not pass may still be right: a package that it may count on is not here. One that nobody but
        the program has heard of is its own fault."""
        if result.outcome is Outcome.REFUSED:
            return f"refused by the sandbox: {result.error}"
        lacking = {match[1].partition(".")[0] for complaint in complaints for match in _LACKS.finditer(complaint)}
        expected = {name for name in lacking - self._modules if name in PACKAGES or tests.mention(name)}
        return f"missing here: {', '.join(sorted(expected))}" if expected else None


@asynccontextmanager
async def open_code_grader(*, slots: int | None = None, allow_unsafe: bool = False) -> AsyncIterator[CodeGrader]:
    """A grader with a sandbox of its own.

    Args:
        slots: programs at a time; None: one a processor.
        allow_unsafe: run without isolation where nothing better works.

    Raises:
        SandboxUnavailable: no isolation that is allowed works here.
    """
    packages = [*PACKAGES.values()]
    async with SandboxPool(slots=slots, limits=LIMITS, packages=packages, allow_unsafe=allow_unsafe) as pool:
        yield CodeGrader(pool, concurrency=pool.stats().num_slots)


def program_of(response: str, *, entry_point: str | None) -> str:
    """The program in a response: all of it if that is Python; or else its first code block that defines the function, or its
    longest one."""
    blocks = _FENCED.findall(response)
    if not blocks or _is_python(response):
        return response
    defines = re.compile(rf"^[ \t]*(?:async[ \t]+)?(?:def[ \t]+{entry_point}\b|{entry_point}[ \t]*=)", re.MULTILINE)
    defining = [block for block in blocks if entry_point is not None and defines.search(block)]
    return defining[0] if defining else max(blocks, key=len)


def _is_python(text: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
    return True


def _failed_tests(result: ExecResult, *, token: str) -> list[tuple[str, str]] | None:
    """Name and last line of each test that failed; None if the end of the tests was not reached."""
    line = result.stdout.rpartition(token)[2].partition("\n")[0] if token in result.stdout else ""
    try:
        return [(name, complaint) for name, complaint in json.loads(line)]
    except (ValueError, TypeError):
        return None
