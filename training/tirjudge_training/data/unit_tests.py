"""Runs a program with unit tests in the sandbox: which of them it passes.

Not protected against: programs that are written to deceive their tests, for they share an interpreter with them.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence

from tirjudge.types import Outcome
from tirjudge_sandbox import Limits, SandboxPool

LIMITS = Limits(cpu_s=5.0, wall_s=30.0, memory_mb=1024, output_bytes=1 << 20, source_bytes=1 << 20)
"""Of one program with all its tests."""

_FENCED = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)

_PROGRAM = """
import json, os, types, unittest

def passed(solution, test):
    # Each test gets the solution anew, in a module of its own.
    module = types.ModuleType("tested")
    exec(compile(solution, "solution.py", "exec"), module.__dict__)
    exec(compile(test, "test.py", "exec"), module.__dict__)
    suite = unittest.TestSuite(
        unittest.defaultTestLoader.loadTestsFromTestCase(value)
        for value in list(module.__dict__.values())
        if isinstance(value, type) and issubclass(value, unittest.TestCase)
    )
    result = unittest.TestResult()
    suite.run(result)
    return result.testsRun > 0 and result.wasSuccessful()

def write(text):
    os.write(1, text.encode())

for number, test in enumerate(json.loads(tests)):
    try:
        done = passed(solution, test)
    except BaseException:
        done = False
    write(f"\\n{token} {number} {int(done)}\\n")
"""


async def run_tests(
    solution: str, *, tests: Sequence[str], pool: SandboxPool, limits: Limits = LIMITS
) -> tuple[bool, ...]:
    """Whether a program passes each test.

    Args:
        solution: Python, or a text whose longest code block is.
        tests: Python sources, each with at least one class of unittest that finds the program's names defined.
        pool: where they run, all tests of a program in one process. A test that ends it (endless loop, crash) is not
            passed, and neither are those behind it.
        limits: of all tests together.

    Raises:
        SandboxUnavailable: the pool does not work.
    """
    token = secrets.token_hex(16)
    bindings = {"solution": program_of(solution), "tests": json.dumps(list(tests)), "token": token}
    result = await pool.run(_PROGRAM, bindings=bindings, limits=limits)
    if result.outcome is Outcome.REFUSED:
        return (False,) * len(tests)
    told = dict(re.findall(rf"^{token} (\d+) ([01])$", result.stdout, re.MULTILINE))
    return tuple(told.get(str(number)) == "1" for number in range(len(tests)))


def program_of(text: str) -> str:
    """The longest fenced block of a text; all of it if there is none."""
    return max(_FENCED.findall(text), key=len, default=text)
