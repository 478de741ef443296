"""Grade programs by running them with their tests in the sandbox.

The facts determine the kind of test:

- `assertion`: statements that run after the program.
- `test` with a function `check` (HumanEval): `check` is called with the function named by `entry_point`.
- `test` with a unittest class `TestCases` (BigCodeBench): `code_prompt` precedes the program, as in BigCodeBench's
  calibrated figures.

A program passes if the line after all of its tests is reached, so a program that exits early does not pass. There is no
protection against programs that are written to deceive the grader, because they share an interpreter with their tests.
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
"""Limits of one program with its tests. They are as high as in the benchmarks' own evaluations."""

PACKAGES: Mapping[str, str] = MappingProxyType(
    dict(
        line.split()
        for line in resources.files(__package__ or "").joinpath("code_packages.txt").read_text().splitlines()
    )
)
"""Import name -> distribution of the packages that BigCodeBench uses. The sandbox offers the installed ones."""

_FENCED = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_MISSING_MODULE = re.compile(r"(?:No module named|Missing optional dependency) ['\"]([\w.]+)")
_BINDINGS = {"__name__": "__test__", "__file__": "__test__.py"}
"""Tests import a program instead of running it, so code under `if __name__ == "__main__"` does not run."""

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
    """The tests of a program. At least one of `assertion` and `test` is given."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    entry_point: str | None = None
    """Name of the requested function. It is required if `test` has a function `check`; it also helps to find the
    program in a response with several code blocks."""
    assertion: str | None = None
    """Statements to run after the program."""
    test: str | None = None
    """Source with a function `check` or a unittest class `TestCases`."""
    code_prompt: str | None = None
    """Source to put before the program, up to the body of a function; used with `TestCases` only."""

    @model_validator(mode="after")
    def _has_tests(self) -> Tests:
        if self.assertion is None and self.test is None:
            raise ValueError("test: missing; give test or assertion")
        if self.entry_point is not None and not self.entry_point.isidentifier():
            raise ValueError(f"entry_point: expected the name of a function, got {self.entry_point!r}")
        if self.assertion is None and not self.is_unit_test and self.entry_point is None:
            raise ValueError("entry_point: missing; a test without a class TestCases needs the name of a function")
        return self

    @property
    def is_unit_test(self) -> bool:
        """Whether `test` has a unittest class `TestCases`."""
        return self.test is not None and re.search(r"^class TestCases\b", self.test, re.MULTILINE) is not None

    def mention(self, name: str) -> bool:
        """Whether the tests or the code prompt contain the name of a module."""
        given = "\n".join(filter(None, (self.code_prompt, self.test, self.assertion)))
        return re.search(rf"\b{re.escape(name)}\b", given) is not None

    def program(self, solution: str, *, token: str) -> str:
        """Return a program that runs a solution and its tests, then prints the token and the failed tests as JSON."""
        if self.assertion is not None:
            return f"{solution}\n{self.assertion}\n{_REACHED_END.format(token=token)}"
        if not self.is_unit_test:
            return f"{solution}\n{self.test}\ncheck({self.entry_point})\n{_REACHED_END.format(token=token)}"
        stub = "" if self.code_prompt is None else f"{self.code_prompt}\n    pass\n"
        return f"{stub}{solution}\n{self.test}\n{_UNIT_TESTS.format(token=token)}"


class CodeGrader:
    """Facts: the fields of `Tests`. Grades have no answers, so majority votes over programs are not possible.

    async with open_code_grader() as grader:
        grades = await grader.grade(["def one(): return 1"], facts={"assertion": "assert one() == 1"})
    """

    def __init__(self, pool: SandboxPool, *, concurrency: int) -> None:
        """Create a grader that runs programs in an open pool.

        Args:
            pool: sandbox pool with the installed packages of `PACKAGES`.
            concurrency: maximum number of concurrent programs, at most the number of slots of the pool.
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
            "error": complaints[0] if complaints else "the program exited before its tests",
        }
        if failed:
            detail["failed"] = [name.rpartition(".")[2] for name, _ in failed]
        reason = self._not_graded(result, complaints=complaints, tests=tests)
        if reason is not None:
            return Grade(correct=None, detail={**detail, "not_graded": reason})
        return Grade(correct=False, detail=detail)

    def _not_graded(self, result: ExecResult, *, complaints: Sequence[str], tests: Tests) -> str | None:
        """Return why a failed program cannot be graded on this machine; None if it can.

        A program is not graded if a package is missing that is in `PACKAGES` or that its tests mention. A missing
        package that only the program imports is an error of the program.
        """
        if result.outcome is Outcome.REFUSED:
            return f"refused by the sandbox: {result.error}"
        missing = {
            match[1].partition(".")[0] for complaint in complaints for match in _MISSING_MODULE.finditer(complaint)
        }
        expected = {name for name in missing - self._modules if name in PACKAGES or tests.mention(name)}
        return f"packages not installed: {', '.join(sorted(expected))}" if expected else None


@asynccontextmanager
async def open_code_grader(*, slots: int | None = None, allow_unsafe: bool = False) -> AsyncIterator[CodeGrader]:
    """Open a grader with a new sandbox pool.

    Args:
        slots: maximum number of concurrent programs. None: one per core.
        allow_unsafe: run programs without isolation if the machine offers no isolation.

    Raises:
        SandboxUnavailable: none of the allowed isolation levels works on this machine.
    """
    packages = [*PACKAGES.values()]
    async with SandboxPool(slots=slots, limits=LIMITS, packages=packages, allow_unsafe=allow_unsafe) as pool:
        yield CodeGrader(pool, concurrency=pool.stats().num_slots)


def program_of(response: str, *, entry_point: str | None) -> str:
    """Return the program in a response.

    A response that is valid Python is the program. Otherwise it is the first code block that defines `entry_point`, or
    the longest code block if none does.
    """
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
    """Return the name and the error line of each failed test; None if the end of the tests was not reached."""
    line = result.stdout.rpartition(token)[2].partition("\n")[0] if token in result.stdout else ""
    try:
        return [(name, complaint) for name, complaint in json.loads(line)]
    except (ValueError, TypeError):
        return None
