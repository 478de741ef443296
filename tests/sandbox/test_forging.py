"""Forging candidates never change the verdict of a program that runs them in slots of their own, and a program that executes
them in its own process is always reported."""

import pytest

from tests.sandbox.level_sampling import STRONGEST, at_levels, at_strongest_level
from tirjudge.basis import parse_check
from tirjudge.tools.functions import Offer
from tirjudge.types import Outcome
from tirjudge_harness.forging.techniques import every_technique
from tirjudge_sandbox import Limits
from tirjudge_sandbox.candidates import FUNCTIONS

WRONG = """\
import sys

def solve(n):
    return -1

if (text := sys.stdin.read()).strip():
    print(-1)
"""
RIGHT = """\
import sys

def solve(n):
    return n * n / 8

if (text := sys.stdin.read()).strip():
    print(solve(int(text)))
"""
SHORT = Limits(cpu_s=0.3, wall_s=0.6, memory_mb=128)
TECHNIQUES = {technique.name: technique for technique in every_technique()}

RUN = """\
passed = 0
for n, expected in [(3, 1.125), (4, 2)]:
    called = run(response, call="solve", args=[n], timeout_s=0.25)
    passed += called.ok and called.value == expected
printed = run(response, stdin="4", timeout_s=0.25)
passed += printed.ok and printed.stdout.strip() == "2.0"
print("CHECK", 10 if passed == 3 else 1 + passed)
"""
TESTS = """\
report = tests(response, [
    {"call": "solve", "args": [3], "returns": 1.125},
    {"call": "solve", "args": [4], "returns": 2},
    {"stdin": "4", "stdout": "2.0\\n"},
], timeout_s=0.25)
print(report)
print("CHECK", 10 if report.all_passed else 1 + report.passed)
"""
EXECUTED = """\
import traceback
cases = [(3, 1.125), (4, 2)]
def code_of(text):
    return text
namespace = {}
try:
    STYLE
    passed = all(namespace["solve"](n) == expected for n, expected in cases)
except Exception:
    passed = False
print("CHECK", 10 if passed else 1)
"""
STYLES = {
    "exec": "exec(response, namespace)",
    "compile": "exec(compile(response, 'candidate.py', 'exec'), namespace)",
    "eval": "eval(compile(response, '<string>', 'exec'), namespace)",
    "syntax-tree": "import ast; exec(compile(ast.parse(response), '<ast>', 'exec'), namespace)",
    "import": "import sys; open('sol.py', 'w').write(response); sys.path.insert(0, '.'); import sol; namespace = vars(sol)",
    "run-path": "import runpy; open('s.py', 'w').write(response); namespace = runpy.run_path('s.py')",
    "function": "import types; types.FunctionType(compile(response, 's', 'exec'), namespace)()",
    "alias": "import builtins; getattr(builtins, 'ex' + 'ec')(response, namespace)",
    "decoded": "import base64; exec(base64.b64decode(base64.b64encode(response.encode())), namespace)",
}
"""Ways in which a judge's program executes a response in its own process."""

REPORTED = {
    **STYLES,
    "lines": "exec('\\n'.join(line.rstrip() for line in response.splitlines()), namespace)",
    "wrapped": "import textwrap; exec('def f():\\n' + textwrap.indent(response, '  ') + '\\nf()', namespace)",
    "rot13": "import codecs; exec(codecs.decode(codecs.encode(response, 'rot13'), 'rot13'), namespace)",
    "utf-16": "exec(('# coding: utf-7\\n' + response).encode('utf-7').replace(b'+AAo-', b'\\n'), namespace)",
    "long": "exec('\\n' * (1 << 21) + response, namespace)",
    "block": "import re; exec(re.search(r'```python\\n(.*)```', f'```python\\n{response}```', re.S)[1], namespace)",
    "set-code": "exec.__call__\ndef f(): pass\nf.__code__ = compile(response, 's', 'exec'); f()",
    "replaced-code": "exec(compile(response, 's', 'exec').replace(co_filename='program.py'), namespace)",
    "replaced-and-set": "def f(): pass\nf.__code__ = compile(response, 's', 'exec').replace(co_filename='program.py'); f()",
    "marshal": "import marshal; exec(marshal.loads(marshal.dumps(compile(response, 's', 'exec'))), namespace)",
    "pickle": "import pickle\nclass P:\n    def __reduce__(self): return exec, (response,)\npickle.loads(pickle.dumps(P()))",
    "pickled-exit": "import pickle; pickle.loads(b'cos\\n_exit\\n(I0\\ntR.')",
    "spec": "import importlib.util as u; open('s.py', 'w').write(response); s = u.spec_from_file_location('s', 's.py'); "
    "m = u.module_from_spec(s); s.loader.exec_module(m)",
    "zip": "import sys, zipfile\nwith zipfile.ZipFile('s.zip', 'w') as z: z.writestr('s.py', response)\n"
    "sys.path.insert(0, '/tmp/s.zip'); import s",
    "loader": "import importlib.abc, importlib.util as u\nclass L(importlib.abc.InspectLoader):\n"
    "    def get_source(self, name): return response\ns = u.spec_from_loader('s', L()); "
    "s.loader.exec_module(u.module_from_spec(s))",
    "run-module": "import runpy, sys; open('s.py', 'w').write(response); sys.path.insert(0, ''); runpy.run_module('s')",
    "interpreter": "import code; code.InteractiveInterpreter().runsource(response, symbol='exec')",
    "console": "import code; c = code.InteractiveConsole(); [c.push(line) for line in response.splitlines()]",
    "decoded-runner": "import cProfile, codecs; cProfile.run(codecs.decode(codecs.encode(response, 'rot13'), 'rot13'))",
    "timeit": "import timeit; timeit.timeit(response, number=1)",
    "profile": "import cProfile; cProfile.run(response)",
    "debugger": "import bdb; bdb.Bdb().run(response)",
    "trace": "import trace; trace.Trace(trace=0, count=0).run(response)",
    "doctest": "import doctest; t = doctest.DocTestParser().get_doctest("
    "'>>> exec(response)\\n>>> ' + response.split('\\n')[0] + '\\n', {}, 's', 's', 0); doctest.DocTestRunner().run(t)",
    "thread": "import threading; t = threading.Thread(target=exec, args=(response,)); t.start(); t.join()",
    "executor": "from concurrent.futures import ThreadPoolExecutor as E\nwith E() as e: e.submit(exec, response).result()",
    "coroutine": "import asyncio\nasync def main(): exec(response)\nasyncio.run(main())",
    "ctypes": "import ctypes; ctypes.pythonapi.PyRun_SimpleString(response.encode())",
    "ctypes-index": "import ctypes; ctypes.pythonapi['PyRun_SimpleString'](response.encode())",
    "test-loader": "import sys, unittest; open('test_s.py', 'w').write(response); sys.path.insert(0, '/tmp'); "
    "unittest.defaultTestLoader.loadTestsFromName('test_s')",
}
"""Further ways. Some need the working directory, which only the levels with namespaces have."""

_FILES = ("import", "run-path", "spec", "zip", "run-module", "test-loader")

HARMLESS = {
    "parse": "import ast; print(len(ast.parse(response).body))",
    "syntax check": "compile(response, 'response', 'exec'); print(eval('1 + int(2)'))",
    "literal": "import ast; print(ast.literal_eval('[1, 2, {3: 4}]'))",
    "namedtuple": "from collections import namedtuple; print(namedtuple('Point', 'x y')(1, 2))",
    "typed namedtuple": "from typing import NamedTuple\nclass P(NamedTuple):\n    x: int\n    n: 'int' = 1\nprint(P(1))",
    "dataclass": "from dataclasses import dataclass, field\n@dataclass(frozen=True, order=True)\nclass P:\n    n: int\n"
    "    x: 'list[int]' = field(default_factory=list)\nprint(P(1) < P(2))",
    "enum": "import enum\nclass Colour(enum.Enum):\n    RED = 1\nprint(Colour['RED'])",
    "hints": "from typing import Optional, get_type_hints\ndef f(x: 'Optional[int]', y: 'list[str]') -> 'dict': pass\n"
    "print(get_type_hints(f))",
    "re": "import re; print(re.findall(r'def (\\w+)', response))",
    "json": "import json; print(json.loads('{\"a\": [1, 2]}'))",
    "arithmetic": "print(eval('3 * (4 + 5) ** 2'), eval(' 12/4 '), eval('[1, 2]'))",
    "own expression": "print(eval('len(words) * 2', {'words': [1, 2]}))",
    "own code": "exec('''\ntotal = 0\nfor value in range(4):\n    total += value\n'''); print(total)",
    "imports": "import argparse, asyncio, csv, decimal, email.message, http.client, logging, sqlite3, unittest, "
    "xml.etree.ElementTree, zoneinfo; print('imported')",
    "pickle": "import collections, copy, datetime, pickle\n"
    "value = {'a': datetime.date(2020, 1, 2), 'b': collections.Counter('aab'), 'c': {1, 2}}\n"
    "print(pickle.loads(pickle.dumps(value)) == copy.deepcopy(value))",
    "timeit": "import timeit; print(timeit.timeit('sum(range(9))', number=2) >= 0)",
    "functions": "print(tests(response, [{'call': 'solve', 'args': [4], 'returns': 2}]).all_passed)",
    "partial": "import functools, operator; print(functools.reduce(operator.add, [1, 2]))",
}
WITH_PACKAGES = {
    "numpy": "import numpy as np; print(np.linalg.det(np.eye(2)), np.vectorize(lambda x: x + 1)([1]))",
    "pandas": "import pandas; d = pandas.DataFrame({'x': [1, 2], 'y': [3, 4]}); print(d.query('x > 1'), d.eval('x + y'))",
    "scipy": "import scipy.signal, scipy.sparse.linalg, numpy.testing; print(scipy.signal.convolve([1, 2], [3, 4]))",
    "sympify": "import sympy; print(sympy.sympify('2*x + sin(y)**2/3'), sympy.sympify(answer))",
    "parse_expr": "from sympy.parsing.sympy_parser import parse_expr; print(parse_expr('factorial(4) + sqrt(2)*max(1, 2)'))",
    "lambdify": "import sympy as s; x = s.Symbol('x'); print(s.lambdify(x, s.sympify(answer), 'math')(3))",
    "sympy modules": "import sympy.stats, sympy.physics.units, sympy.combinatorics; print(1)",
}
IN_SYMPY = {
    "print": "print('CHECK 10')",
    "import": "__import__('os')._exit(0)",
    "attribute": "Integer(1).__class__.__mro__",
    "nested": "S('pri' + 'nt(17)')",
    "printing function": "pprint('CHECK 10')",
}


async def run(pool, program, response, *, refuse=False, limits=None, **bindings):
    offer = Offer(functions=FUNCTIONS, watched=("response",), candidate_code="refuse" if refuse else "flag")
    return await pool.run(program, bindings={"response": response, **bindings}, limits=limits, offer=offer)


def score_of(result):
    """The score that a judge's program prints; None if it failed, as in `basis`."""
    if result.outcome is not Outcome.OK:
        return None
    found = parse_check(result.stdout, keys=("score",), allows_bare=True)
    return None if found is None else found["score"]


def test_there_are_many_techniques_of_all_kinds():
    assert len(TECHNIQUES) >= 45
    assert len({technique.kind for technique in TECHNIQUES.values()}) == 8


@pytest.mark.parametrize("program", [RUN, TESTS], ids=["run", "tests"])
async def test_a_right_candidate_passes_and_a_wrong_one_fails(pool, program):
    assert score_of(await run(pool, program, RIGHT)) == 10
    assert score_of(await run(pool, program, WRONG)) == 1


_ACT_ON_SURROUNDINGS = [
    technique.name
    for technique in TECHNIQUES.values()
    if technique.kind in ("inspection", "files", "process", "channel")
]
"""Techniques whose effect may depend on the level. The others act inside one process."""


@at_levels("name", TECHNIQUES, everywhere=_ACT_ON_SURROUNDINGS, slow_every=4)
async def test_forging_changes_no_verdict_with_run(pool, name):
    result = await run(pool, RUN, TECHNIQUES[name].candidate(WRONG, function="solve"))
    assert score_of(result) == 1, result
    assert result.in_process == ()


# Candidates run as in the previous test. Only the comparison differs, and the program of the judge makes it.
@at_levels("name", TECHNIQUES, slow_every=4)
async def test_forging_changes_no_verdict_with_tests(pool, name):
    result = await run(pool, TESTS, TECHNIQUES[name].candidate(WRONG, function="solve"))
    assert score_of(result) == 1, result
    assert result.in_process == ()
    assert result.stdout.count("CHECK") == 1 + str(result.stdout.split("\n")[0]).count("CHECK")


def _needs_files(style):
    return style in _FILES


DECEIVING = (
    "print-and-exit",
    "fake-report",
    "atexit",
    "always-equal",
    "equal-str",
    "patch-print",
    "setprofile",
    "frames",
    "every-descriptor",
)
"""Techniques that always change the verdict of a program that executes them. They need no time and end by themselves."""


async def _flips(pool, style, names):
    """Run techniques in a program that executes them. Return the names of those that change the verdict, and the names of
    those whose execution was not reported."""
    flipped, unreported = [], []
    program = EXECUTED.replace("STYLE", STYLES[style])
    for name in names:
        technique = TECHNIQUES[name]
        candidate = technique.candidate(WRONG, function="solve")
        # Those in DECEIVING end by themselves. Some others do not, so their limits are short.
        result = await run(pool, program, candidate, limits=None if name in DECEIVING else SHORT)
        if result.outcome is Outcome.TIMEOUT and not result.in_process:  # on a busy machine, before the execution
            result = await run(pool, program, candidate, limits=Limits())
        if score_of(result) == 10:
            flipped.append(name)
        if technique.kind != "text" and not result.in_process:
            unreported.append(name)
    return flipped, unreported


def _techniques_of(style, *, level):
    """Return the techniques to execute in a style: those in DECEIVING, and at the strongest level others. The style `exec`
    has all, and each further style has a fourth."""
    if level is not STRONGEST:
        return DECEIVING
    others = [name for name in TECHNIQUES if name not in DECEIVING]
    return [*DECEIVING, *(others if style == "exec" else others[list(STYLES).index(style) % 4 :: 4])]


@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES)
async def test_a_program_that_executes_candidates_is_deceived_and_reported(pool, level, style):
    if _needs_files(style) and not level.has_namespaces:
        pytest.skip("programs have no private directory at this level")
    flipped, unreported = await _flips(pool, style, _techniques_of(style, level=level))
    assert set(DECEIVING) - set(flipped) == set()
    assert unreported == []


@at_strongest_level
@pytest.mark.parametrize("name", ["print-and-exit", "always-equal", "frames", "atexit", "patch-print"])
async def test_forging_deceives_a_program_that_executes_it_and_is_reported(pool, name):
    result = await run(
        pool, EXECUTED.replace("STYLE", STYLES["exec"]), TECHNIQUES[name].candidate(WRONG, function="solve")
    )
    assert score_of(result) == 10, result
    assert result.in_process == ("exec",)


_EXITS = TECHNIQUES["print-and-exit"].candidate(WRONG, function="solve")


@at_levels("name", REPORTED)
async def test_each_way_to_execute_a_response_is_reported_and_can_be_refused(pool, level, name):
    if _needs_files(name) and not level.has_namespaces:
        pytest.skip("programs have no private directory at this level")
    program = EXECUTED.replace("    STYLE", _indented(REPORTED[name]))
    result = await run(pool, program, _EXITS)
    assert result.in_process, result
    result = await run(pool, program, _EXITS, refuse=True)
    assert result.in_process
    assert score_of(result) != 10, result


def _indented(code):
    return "\n".join(f"    {line}" for line in code.split("\n"))


async def test_a_refused_execution_names_the_reason(pool):
    result = await run(pool, "exec(response)", _EXITS, refuse=True)
    assert result.outcome is Outcome.ERROR
    assert result.error == (
        "CandidateCodeRefused: exec of a response in this process is not allowed: the response could forge the output"
    )


async def test_a_forked_process_is_watched_too(pool):
    result = await run(pool, "import os\nif os.fork() == 0:\n    exec(response)\nos.wait()", _EXITS)
    assert result.in_process or "PermissionError" in result.stderr  # not all levels allow forks


async def test_a_second_interpreter_is_reported(pool):
    code = "import _xxsubinterpreters as i; i.run_string(i.create(), 'x = 1')"
    result = await run(
        pool, f"try:\n    {code}\nexcept ImportError:\n    import _interpreters as i; i.create()", _EXITS
    )
    assert result.in_process == ("interpreter",)


async def test_a_started_process_is_reported_although_it_cannot_start(pool):
    result = await run(pool, "import subprocess, sys; subprocess.run([sys.executable, '-c', response])", _EXITS)
    assert result.in_process == ("subprocess",)
    assert result.outcome is Outcome.ERROR


@at_levels("name", HARMLESS)
async def test_harmless_programs_are_not_reported(pool, name):
    result = await run(pool, HARMLESS[name], RIGHT)
    assert result.outcome is Outcome.OK, result
    assert result.in_process == ()


@pytest.mark.slow
@at_levels("name", WITH_PACKAGES)
async def test_harmless_programs_with_packages_are_not_reported(level, open_shared, name):
    result = await run(await open_shared(slots=1, level=level), WITH_PACKAGES[name], RIGHT, answer="3*x**2 + abs(x)/4")
    assert result.outcome is Outcome.OK, result
    assert result.in_process == ()


@pytest.mark.slow
@at_levels("name", IN_SYMPY)
async def test_effects_of_an_expression_in_sympy_are_reported(level, open_shared, name):
    program = "import sympy; print(sympy.sympify(response))"
    result = await run(await open_shared(slots=1, level=level), program, IN_SYMPY[name])
    assert result.in_process == ("exec",), result
