"""Choice of the warm interpreter, and programs that import packages."""

import pytest

from tirjudge.types import Outcome
from tirjudge_sandbox import Limits, SandboxPool
from tirjudge_sandbox.packages import find_packages
from tirjudge_sandbox.presets import Preset, preset_for

ALL = ("numpy", "scipy", "pandas", "sympy", "mpmath")
OFFERED = find_packages().modules
LIMITS = Limits(cpu_s=10, wall_s=60)


@pytest.mark.parametrize(
    ("code", "preset"),
    [
        ("print(1)", "stdlib"),
        ("import math, os", "stdlib"),
        ("import numpy", "numpy"),
        ("import os, numpy as np", "numpy"),
        ("if True:\n    from numpy.linalg import inv", "numpy"),
        ("import os; import numpy", "numpy"),
        ("try: import numpy\nexcept ImportError: pass", "numpy"),
        ("from sympy import *", "sympy"),
        ("import mpmath", "sympy"),
        ("import numpy as np\nimport sympy", "sci"),
        ("import pandas as pd", "sci"),
        ("from scipy.stats import norm", "sci"),
        ("# import numpy", "stdlib"),
        ("print('numpy')", "stdlib"),
        ("import numpy_financial", "stdlib"),
    ],
)
def test_the_smallest_preset_with_all_imports_is_chosen(code, preset):
    assert preset_for(code, offered=ALL) == preset


def test_packages_that_are_not_offered_do_not_affect_the_choice():
    assert preset_for("import pandas, numpy", offered=["numpy"]) is Preset.NUMPY
    assert preset_for("import sympy", offered=[]) is Preset.STDLIB


def test_packages_are_found_with_their_requirements_only():
    assert {"numpy", "sympy", "mpmath"} <= OFFERED.keys()
    assert not OFFERED.keys() & {"torch", "pydantic", "pytest", "pip", "tirjudge"}
    assert any(path.endswith("numpy.libs") for path in find_packages().paths)
    assert find_packages(["no-such-distribution"]).modules == {}


@pytest.mark.parametrize(
    ("code", "preset", "stdout"),
    [
        (
            "import numpy as np; print(np.linalg.inv(np.eye(2))[0], np.fft.fft([1, 0])[0].real)",
            "numpy",
            "[1. 0.] 1.0\n",
        ),
        pytest.param(
            "from sympy import *; x = Symbol('x'); print(factor(x**3 - 1))",
            "sympy",
            "(x - 1)*(x**2 + x + 1)\n",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "import numpy, sympy; print(sympy.Matrix(numpy.eye(1, dtype=int)))",
            "sci",
            "Matrix([[1]])\n",
            marks=pytest.mark.slow,
        ),
        ("n = __import__('num' + 'py'); print(n.linalg.det(n.eye(3)))", "stdlib", "1.0\n"),
        pytest.param(
            "s = __import__('sym' + 'py'); print(s.integrate('x'))", "stdlib", "x**2/2\n", marks=pytest.mark.slow
        ),
    ],
    ids=["numpy", "sympy", "numpy and sympy", "hidden numpy", "hidden sympy"],
)
async def test_programs_can_import_packages_in_any_preset(pool, code, preset, stdout):
    before = pool.stats().num_by_preset.get(preset, 0)
    result = await pool.run(code, limits=LIMITS)
    assert (result.outcome, result.preset, result.stdout) == (Outcome.OK, preset, stdout), result
    assert pool.stats().num_by_preset[preset] == before + 1


@pytest.mark.on_host
async def test_other_packages_of_the_environment_cannot_be_imported(pool):
    code = """
import importlib, numpy, os
for name in ("torch", "pydantic", "pytest", "typer", "tirjudge", "pip"):
    try:
        importlib.import_module(name)
        print("FOUND", name)
    except ModuleNotFoundError:
        pass
site = os.path.dirname(os.path.dirname(numpy.__file__))
for name in ("pydantic", "pytest", "pip"):
    try:
        print("READ", os.listdir(f"{site}/{name}"), open(f"{site}/{name}/__init__.py").read(1))
    except OSError:
        pass
try:
    print([name for name in os.listdir(site) if "pydantic" in name])
except OSError:
    print([])
try:
    open(numpy.__file__, "a")
    print("WROTE")
except OSError:
    pass
"""
    result = await pool.run(code)
    assert result.stdout == "[]\n", result


async def test_random_numbers_of_numpy_differ_between_programs(pool):
    code = "import numpy as np, random; print(np.random.rand(), np.random.default_rng().random(), random.random())"
    seen = [(await pool.run(code)).stdout.split() for _ in range(3)]
    assert all(len(set(column)) == 3 for column in zip(*seen, strict=True)), seen


async def test_a_pool_can_offer_no_packages(level):
    async with SandboxPool(slots=1, level=level, packages=[]) as pool:
        result = await pool.run("import numpy")
    assert (result.preset, result.error) == ("stdlib", "ModuleNotFoundError: No module named 'numpy'")


async def test_an_array_that_is_too_large_is_oom(pool):
    result = await pool.run("import numpy as np; np.ones((200_000, 200_000))")
    assert result.outcome is Outcome.OOM
    assert "Unable to allocate" in (result.error or "")
