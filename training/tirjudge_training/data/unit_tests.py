"""Runs a program against unit tests in the sandbox.

A program can manipulate its tests, because both run in the same interpreter.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence

from tirjudge.types import Outcome
from tirjudge_sandbox import Limits, SandboxPool

LIMITS = Limits(cpu_s=5.0, wall_s=30.0, memory_mb=1024, output_bytes=1 << 20, source_bytes=1 << 20)
"""Limits for one program with all its tests."""

_FENCED = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)

_PROGRAM = """
import json, os, types, unittest

def passed(solution, test):
    # Each test runs in a new module with a fresh copy of the solution.
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
    """Run a program against its tests.

    Args:
        solution: Python source, or a text whose longest code block is the program.
        tests: Python sources, each with at least one unittest class. The names of the program are defined in it.
        pool: Sandbox. All tests of a program run in one process. If a test ends the process (endless loop, crash), this
            test and all later ones count as failed.
        limits: Limits for all tests together.

    Returns:
        Whether the program passes each test.

    Raises:
        SandboxUnavailable: the pool does not work.
    """
    token = secrets.token_hex(16)
    bindings = {"solution": program_of(solution), "tests": json.dumps(list(tests)), "token": token}
    result = await pool.run(_PROGRAM, bindings=bindings, limits=limits)
    if result.outcome is Outcome.REFUSED:
        return (False,) * len(tests)
    results = dict(re.findall(rf"^{token} (\d+) ([01])$", result.stdout, re.MULTILINE))
    return tuple(results.get(str(number)) == "1" for number in range(len(tests)))


def program_of(text: str) -> str:
    """Return the longest fenced code block of a text, or the whole text if it has no code block."""
    return max(_FENCED.findall(text), key=len, default=text)
