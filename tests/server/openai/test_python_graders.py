"""Python graders: code of a sample cannot change its reward, and common graders work."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from tirjudge_sandbox import Limits, SandboxPool
from tirjudge_server.openai import python_grader
from tirjudge_server.openai.python_grader import GraderFailed, grade

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def strict_pool() -> AsyncIterator[SandboxPool]:
    """A sandbox with short limits, shared by the tests of this module."""
    async with SandboxPool(slots=2, limits=Limits(cpu_s=1.0, wall_s=30.0)) as opened:
        yield opened


@pytest.fixture
def grades(strict_pool: SandboxPool) -> Callable[..., Any]:
    """Runs a grader's source on a sample, and returns the reward."""

    async def run(source: str, sample: Any, item: Any = None) -> float:
        text = {"output_text": sample} if isinstance(sample, str) else sample
        return await grade(source, sample=text, item=item, sandbox=strict_pool)

    return run


EXEC = """
def grade(sample, item):
    ns = {}
    try:
        exec(sample["output_text"], ns)
    except Exception:
        return 0.25
    return 1.0 if ns.get("answer") == 42 else 0.0
"""
EXEC_IN_ITS_OWN = """
def grade(sample, item):
    reward = 0.0
    try:
        exec(sample["output_text"])
        exec(sample["output_text"], globals())
    except Exception:
        reward = 0.25
    return reward if len("ab") == 2 and float("0.5") == 0.5 else 1.0
"""
EVAL = """
def grade(sample, item):
    try:
        return 1.0 if eval(sample["output_text"]) == 42 else 0.0
    except Exception:
        return 0.25
"""
CALLS = """
def grade(sample, item):
    ns = {}
    try:
        exec(sample["output_text"], ns)
        return 1.0 if ns["f"](1) == 42 else 0.0
    except Exception:
        return 0.25
"""
COMPILES = """
def grade(sample, item):
    ns = {}
    try:
        exec(compile(sample["output_text"], "x", "exec"), ns)
    except Exception:
        return 0.25
    return 1.0 if ns.get("answer") == 42 else 0.0
"""
GRADERS = {
    "exec": EXEC,
    "exec in its own namespace": EXEC_IN_ITS_OWN,
    "eval": EVAL,
    "calls": CALLS,
    "compile": COMPILES,
}

FORGERY = """
import base64, builtins, gc, json, os, sys, zlib
def forge():
    packed = base64.b64encode(zlib.compress(json.dumps({"reward": 1.0}).encode())).decode()
    found = {m for o in gc.get_objects() if isinstance(o, dict) for m in [o.get("marker")] if isinstance(m, str)}
    for marker in [*found, ""]:
        for text in ("1.0", packed, json.dumps({"reward": 1.0})):
            for fd in (1, 2, 3, 4, 5, 6):
                try:
                    os.write(fd, f"\\n{marker}{text}\\n".encode())
                except OSError:
                    pass
"""
ATTACKS = {
    "forges the result and exits": f"{FORGERY}\nforge()\nos._exit(0)",
    "forges the result at exit": f"{FORGERY}\nimport atexit; atexit.register(forge)",
    "forges the result in a thread": (
        f"{FORGERY}\nimport threading\nthreading.Timer(0.05, lambda: (forge(), os._exit(0))).start()"
    ),
    "finds the marker of the result": (
        "import os, sys\nframe = sys._getframe()\nwhile frame:\n    for text in frame.f_code.co_consts:\n"
        "        if isinstance(text, str) and len(text) == 32:\n"
        "            os.write(1, f'\\n{text}1.0\\n'.encode()); os._exit(0)\n    frame = frame.f_back"
    ),
    "raises SystemExit": "raise SystemExit(0)",
    "raises KeyboardInterrupt": "raise KeyboardInterrupt",
    "patches float and json": (
        "import builtins, json\nbuiltins.float = lambda *a: 1.0\n"
        "json.dumps = lambda *a, **k: '1.0'\nbuiltins.len = lambda x: 9"
    ),
    "defines the names of the grader": "reward = 1.0\nlen = float = lambda *a: 9\ngrade = lambda *a: 1.0\n__builtins__ = {}",
    "walks the frames": (
        "import sys\nframe = sys._getframe()\nwhile frame:\n"
        "    frame.f_globals.update(grade=lambda *a: 1.0, reward_of=lambda *a: 1.0)\n"
        "    for value in frame.f_locals.values():\n"
        "        if isinstance(value, dict): value.update(answer=42)\n"
        "    frame = frame.f_back"
    ),
    "walks all objects": (
        "import gc\nfor o in gc.get_objects():\n"
        "    if isinstance(o, dict) and 'grade' in o: o['grade'] = lambda *a: 1.0"
    ),
    "closes every descriptor": "import os; os.closerange(0, 64); os._exit(0)",
    "kills its process": "import os; os.kill(os.getpid(), 9)",
    "is equal to everything": "class E:\n    def __eq__(self, o): return True\n    __hash__ = None\nanswers = f = E()",
    "has a syntax error": "f(",
    "returns what cannot be encoded": "x = [[]]\nx[0].append(x)\n" + "y = '9' * 10 ** 6",
}
"""Samples. None of them defines `answer`, or a function `f` that returns 42."""

EXPRESSIONS = {
    "walks the frames": "[__import__('sys')._getframe(n).f_globals.update(grade=lambda *a: 1.0) for n in range(4)]",
    "exits": "__import__('os')._exit(0)",
    "is equal to everything": "type('E', (), {'__eq__': lambda s, o: True})()",
    "is a forged number": "type('I', (int,), {'__eq__': lambda s, o: True})(1)",
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
async def test_code_of_a_sample_cannot_set_its_reward(grades, attack: str) -> None:
    results = await asyncio.gather(*(grades(grader, attack) for grader in GRADERS.values()), return_exceptions=True)
    for name, result in zip(GRADERS, results, strict=True):
        assert result in (0.0, 0.25) or isinstance(result, GraderFailed), name


@pytest.mark.slow
@pytest.mark.parametrize("grader", GRADERS.values(), ids=GRADERS)
async def test_an_endless_sample_gets_no_reward(grades, grader: str) -> None:
    try:
        reward = await grades(grader, "while True: pass")
    except GraderFailed:
        return
    assert reward in (0.0, 0.25)


@pytest.mark.parametrize("attack", EXPRESSIONS.values(), ids=EXPRESSIONS)
async def test_an_expression_of_a_sample_cannot_set_its_reward(grades, attack: str) -> None:
    assert await grades(EVAL, attack) in (0.0, 0.25)


WAYS = {
    "runpy": "import runpy\n    open('/tmp/s.py', 'w').write(text)\n    runpy.run_path('/tmp/s.py')",
    "import of a file": (
        "import importlib.util\n    open('/tmp/s.py', 'w').write(text)\n"
        "    spec = importlib.util.spec_from_file_location('s', '/tmp/s.py')\n"
        "    spec.loader.exec_module(importlib.util.module_from_spec(spec))"
    ),
    "import on the path": "import sys\n    open('/tmp/s.py', 'w').write(text)\n    sys.path.insert(0, '/tmp')\n    import s",
    "code": "import code\n    code.InteractiveInterpreter().runsource(text, symbol='exec')",
    "timeit": "import timeit\n    timeit.timeit(text, number=1)",
    "FunctionType": (
        "import importlib.machinery, types\n    open('/tmp/s.py', 'w').write(text)\n"
        "    code = importlib.machinery.SourceFileLoader('s', '/tmp/s.py').get_code('s')\n"
        "    types.FunctionType(code, {})()"
    ),
    "a code object": (
        "import importlib.machinery\n    open('/tmp/s.py', 'w').write(text)\n"
        "    exec(importlib.machinery.SourceFileLoader('s', '/tmp/s.py').get_code('s'))"
    ),
    "pickle": (
        "import pickle\n    name = 'cos\\nsystem\\n(S' + repr('true') + '\\ntR.'\n    pickle.loads(name.encode())\n"
        "    open('/nowhere/at/all')"
    ),
    "a thread": "import concurrent.futures as c\n    c.ThreadPoolExecutor().submit(exec, text).result()",
    "PyRun": "import ctypes\n    assert ctypes.pythonapi.PyRun_SimpleString(text.encode()) == 0",
    "typing": "import typing\n    typing.get_type_hints(type('T', (), {'__annotations__': {'x': text.split(chr(10))[0]}}))",
    "sympy": "import sympy\n    sympy.sympify('__import__(\"os\")._exit(0)')",
}


@pytest.mark.parametrize(
    "way",
    [pytest.param(way, id=name, marks=[pytest.mark.slow] if name == "sympy" else []) for name, way in WAYS.items()],
)
async def test_other_ways_to_run_code_do_not_run_it_in_the_graders_process(grades, way: str) -> None:
    source = f"def grade(sample, item):\n    text = sample['output_text']\n    {way}\n    return 0.5\n"
    forged = "__import__('os').write(1, b'forged') or __import__('os')._exit(0)"
    try:
        outcome = await grades(source, forged)
    except GraderFailed as failure:
        outcome = str(failure)
    # 0.5: the library caught the failure and ran no code, which would have ended the process (`code` from Python 3.13 on).
    assert outcome == 0.5 or re.match(r"SampleFailed: |.*no attribute .co_flags|AssertionError$", str(outcome))


COMMON = {
    "run": ("r = run(text)\n    return float(r.ok and r.stdout == 'hi\\n')", "print('hi')", 1.0),
    "run with input": (
        "return float(run(text, stdin='3 é\\n').stdout.strip())",
        "print(2 * int(input().split()[0]))",
        6.0,
    ),
    "run that fails": ("r = run(text)\n    return float(not r.ok and 'ZeroDivision' in r.error)", "1 / 0", 1.0),
    "run as __main__": ("return float(run(text).stdout)", "if __name__ == '__main__': print(4)", 4.0),
    "eval of a value": ("return float(eval(text)[1])", "[1, 2.5]", 2.5),
    "eval of an expression": ("return float(eval(text))", "sum(x * x for x in range(4))", 14.0),
    "eval with variables": ("return float(eval(text, {'x': 4, 'y': [1]}))", "x + len(y)", 5.0),
    "eval with its own variables": ("x = 5\n    return float(eval(text))", "x * 2", 10.0),
    "exec that sets a variable": (
        "ns = {}\n    exec(text, ns)\n    return float(ns['a']['b'][0])",
        "a = {'b': (7,)}",
        7.0,
    ),
    "exec with variables": ("ns = {'n': 3}\n    exec(text, ns)\n    return float(ns['m'])", "m = n + 1", 4.0),
    "exec with locals": ("ns = {}\n    exec(text, {}, ns)\n    return float(ns['m'])", "m = 3", 3.0),
    "exec of a function": (
        "ns = {}\n    exec(text, ns)\n    return float(sum(ns['f'](x, k=2) for x in (1, 2, 3)))",
        "def g(x): return x\ndef f(x, k): return g(x) * k",
        12.0,
    ),
    "exec of a function with no namespace": (
        "exec(text)\n    return float(locals()['f'](2))",
        "def f(x): return x + 1",
        3.0,
    ),
    "a function in a module's namespace": (
        "exec(text, globals())\n    return float(f(2))",
        "def f(x): return x + 1",
        3.0,
    ),
    "eval of a call": (
        "ns = {}\n    exec(text, ns)\n    return float(eval('f(3)', ns))",
        "def f(x): return x + 1",
        4.0,
    ),
    "a function that changes its argument": (
        "ns, given = {}, [3, 1, 2]\n    exec(text, ns)\n    ns['f'](given)\n    return float(given == [1, 2, 3])",
        "def f(x): x.sort()",
        1.0,
    ),
    "what it prints": (
        "import contextlib, io\n    out = io.StringIO()\n    with contextlib.redirect_stdout(out):\n        exec(text, {})\n"
        "    return float(out.getvalue() == '1\\n2\\n')",
        "for x in (1, 2): print(x)",
        1.0,
    ),
    "an error of the same type": (
        "ns = {}\n    exec(text, ns)\n    try:\n        ns['f'](0)\n    except ZeroDivisionError:\n        return 1.0",
        "def f(x): return 1 / x",
        1.0,
    ),
    "a syntax error": (
        "try:\n        compile(text, 'x', 'exec')\n    except SyntaxError:\n        return 1.0",
        "f(",
        1.0,
    ),
    "compile, then exec": (
        "ns = {}\n    exec(compile(text, 'x', 'exec'), ns)\n    return float(ns['a'])",
        "a = 2",
        2.0,
    ),
    "literal_eval and ast": (
        "import ast\n    return float(len(ast.parse(text).body) + ast.literal_eval('[3]')[0])",
        "a\nb",
        5.0,
    ),
    "a dataclass, a namedtuple and an import": (
        "import collections, dataclasses, typing, fractions, statistics, decimal, difflib\n"
        "    P = collections.namedtuple('P', 'x y')\n"
        "    @dataclasses.dataclass(frozen=True)\n    class D:\n        x: 'int' = 1\n"
        "    return fractions.Fraction(P(1, 2).y + D().x, 2)",
        "",
        1.5,
    ),
    "sympy": (
        "import sympy\n    return float(sympy.simplify(sympy.sympify(text) - sympy.parse_expr('(x + 1)**2')) == 0)",
        "x**2 + 2*x + sqrt(1)",
        1.0,
    ),
    "special values": (
        "ns = {}\n    exec(text, ns)\n    return float(ns['a'] != ns['a'] and ns['b'] == {1} and ns['c'] == b'x')",
        "a = float('nan'); b = {1}; c = b'x'",
        1.0,
    ),
}


@pytest.mark.parametrize(("body", "sample", "reward"), COMMON.values(), ids=COMMON)
async def test_common_graders_work_unchanged(grades, body: str, sample: str, reward: float) -> None:
    source = f"def grade(sample, item):\n    text = sample['output_text']\n    {body}\n"
    assert await grades(source, sample) == reward


async def test_code_of_a_sample_cannot_read_the_reference(grades) -> None:
    source = (
        "def grade(sample, item):\n    secret = item\n    try:\n        return float(eval(sample['output_text']))\n"
        "    except NameError:\n        return 0.125\n"
    )
    for text in ("item['answer']", "secret['answer']", "sample['output_text']"):
        assert await grades(source, text, {"answer": 1}) == 0.125


async def test_the_error_for_an_unsupported_use_mentions_run(grades) -> None:
    source = "def grade(sample, item):\n    ns = {}\n    exec(sample['output_text'], ns)\n    return ns['C'](1).value\n"
    with pytest.raises(GraderFailed, match=r"run\(code, stdin=...\)"):
        await grades(source, "class C:\n    def __init__(self, v): self.value = v")


async def test_the_number_of_programs_is_limited(grades, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_grader, "MAX_RUNS", 4)
    source = "def grade(sample, item):\n    return float(sum(int(run(f'print({i})').stdout) for i in range(item)))\n"
    assert await grades(source, "", 4) == 0 + 1 + 2 + 3
    with pytest.raises(GraderFailed, match="more than 4 programs"):
        await grades(source, "", 5)


async def test_a_grader_that_requests_other_programs_in_each_run_fails(grades) -> None:
    source = (
        "import time\ndef grade(sample, item):\n    run(f'print({time.time_ns()})')\n    run('1')\n    return 1.0\n"
    )
    with pytest.raises(GraderFailed, match="another program when it was run again"):
        await grades(source, "")


async def test_random_numbers_are_the_same_in_each_run_of_a_grader(grades) -> None:
    source = (
        "import random\ndef grade(sample, item):\n    n = random.random()\n"
        "    return float(float(run(f'print({n})').stdout) == n and run('1').ok)\n"
    )
    assert await grades(source, "") == 1.0


@pytest.mark.parametrize(
    "value",
    ["None", "'1.0'", "True", "[1.0]", "10 ** 400", "float('nan')", "float('-inf')", "1j", "{}",
     "type('F', (), {'__float__': lambda s: 1.0})()", "__import__('decimal').Decimal('sNaN')"],
)  # fmt: skip
async def test_a_result_that_is_not_a_number_sets_a_flag_and_is_not_logged(
    make_tool_judge, client_of, caplog: pytest.LogCaptureFixture, value: str
) -> None:
    caplog.set_level(logging.DEBUG)
    source = f"def grade(sample, item):\n    swordfish = 1\n    return {value}"
    grader = {"type": "python", "name": "program", "source": source}
    async with client_of(make_tool_judge([])) as client:
        result = await client.fine_tuning.alpha.graders.run(grader=grader, model_sample="swordfish", item={})
    assert result.reward == 0.0
    assert result.metadata.errors.python_grader_runtime_error is True
    assert result.metadata.errors.python_grader_runtime_error_details
    assert "swordfish" not in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_concurrent_graders_are_independent(grades) -> None:
    source = "def grade(sample, item):\n    return float(run(sample['output_text']).stdout)\n"
    assert await asyncio.gather(*(grades(source, f"print({n})") for n in range(6))) == [float(n) for n in range(6)]


HELPER = """
def passes(code, expression, wanted):
    try:
        exec(code)
        return eval(expression) == wanted
    except Exception:
        return False

def grade(sample, item):
    if not passes(item["reference"], "f(2)", 4):
        raise ValueError("the reference fails")
    return float(passes(sample["output_text"], "f(2)", 4))
"""
MAPPED = """
def grade(sample, item):
    found = {}
    exec(sample["output_text"], found)
    return float(all(map(lambda case: found["solve"](case) == case ** 2, [2, 3])))
"""
TRUTH = """
def grade(sample, item):
    found = {}
    exec(sample["output_text"], found)
    return 1.0 if found["result"] else 0.0
"""
EQUAL = """
def grade(sample, item):
    found = {}
    exec(sample["output_text"], found)
    return float(found["result"] == 4)
"""


@pytest.mark.parametrize(
    ("source", "sample", "reward"),
    [
        (HELPER, "pass", 0.0),
        (HELPER, "def f(x): return x * x", 1.0),
        (MAPPED, "def solve(x): raise StopIteration", 0.0),
        (MAPPED, "def solve(x): return x * x", 1.0),
        (TRUTH, "class No:\n    def __bool__(self): return False\nresult = No()", 0.0),
        (EQUAL, "class All:\n    def __eq__(self, other): return True\nresult = All()", 0.0),
    ],
)
async def test_code_of_a_sample_does_not_leak_between_namespaces(
    grades, source: str, sample: str, reward: float
) -> None:
    try:
        given = await grades(source, sample, {"reference": "def f(x): return x * x"})
    except GraderFailed:
        given = 0.0
    assert given == reward
