"""Random programs and requests: each gets a defined result, and each result belongs to its own program."""

import asyncio
import contextlib
import importlib.util
import json
import random
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tirjudge.types import Outcome
from tirjudge_sandbox import Limits
from tirjudge_sandbox.presets import Preset, imported, preset_for
from tirjudge_sandbox.sandbox_fusion import RunCodeRequest
from tirjudge_sandbox.verl_tool import ObservationRequest
from tirjudge_sandbox.wire import ExecuteRequest, ProgramBatchRequest, limits_of
from tirjudge_web.body import parse_body
from tirjudge_web.errors import Refused

TAG = re.compile(r"tag-\d+-gat")
LIMITS = Limits(cpu_s=0.2, wall_s=5.0, memory_mb=128)
PACKAGES = ("mpmath", "numpy", "pandas", "scipy", "sympy")


@pytest.fixture(scope="session")
def programs():
    """`benchmarks/sandbox_programs.py`: the generators and the attacks of the large measurements."""
    path = Path(__file__).parents[2] / "benchmarks" / "sandbox_programs.py"
    spec = importlib.util.spec_from_file_location("sandbox_programs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses need their module there
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
async def test_random_programs_get_their_own_results(pool, programs):
    rng = random.Random(3)
    sources = [case.code for case in programs.ATTACKS if case.category != "time"]
    makers = [
        lambda: programs.random_program(rng),
        lambda: programs.mutation(rng, sources),
        lambda: programs.random_text(rng),
        lambda: programs.random_os_calls(rng),
        lambda: programs.random_calls(rng),
    ]
    codes = [rng.choice(makers)() for _ in range(120)]
    slots = asyncio.Semaphore(16)

    async def run(number, code):
        async with slots:
            return await pool.run(f"print('tag-{number}-gat', flush=True)\n{code}", limits=LIMITS)

    results = await asyncio.gather(*(run(number, code) for number, code in enumerate(codes)))
    for number, (code, result) in enumerate(zip(codes, results, strict=True)):
        shown = (number, code, result)
        assert set(TAG.findall(f"{result.stdout}{result.stderr}{result.error}")) <= {f"tag-{number}-gat"}, shown
        assert (result.error is None) == (result.outcome is Outcome.OK), shown
        assert (result.exit_code == 0) == (result.outcome is Outcome.OK), shown
        assert (result.signal is not None) == (result.outcome is Outcome.CRASH), shown
        result.stdout.encode()


@pytest.mark.slow
async def test_cancelled_programs_free_their_slots(pool):
    rng = random.Random(5)

    async def start_and_cancel():
        running = asyncio.ensure_future(pool.run("while True: pass", limits=LIMITS))
        await asyncio.sleep(rng.uniform(0, 0.1))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    await asyncio.gather(*(start_and_cancel() for _ in range(30)))
    results = await asyncio.gather(*(pool.run(f"print({number})") for number in range(10)))
    assert [result.stdout for result in results] == [f"{number}\n" for number in range(10)]


# -------------------------------------------------------------------------------------------------- parsing random texts


unhurried = settings(deadline=None, max_examples=40)
"""Hypothesis settings without a time limit, because the machine may be busy."""

IMPORT_LINES = st.sampled_from(
    [
        "import sympy",
        "import numpy as np, scipy",
        "from sympy import *",
        "from scipy.stats import norm",
        "import os; import pandas",
        "if True: import mpmath",
        "import (",
        "from",
        "from . import numpy",
        "import\\",
        "# import sympy",
        "x = 'import numpy'",
    ]
)


@unhurried
@given(st.one_of(st.text(), st.lists(st.one_of(IMPORT_LINES, st.text(max_size=20))).map("\n".join)))
def test_the_preset_of_a_random_text_has_all_its_imports(code):
    preset = preset_for(code, offered=PACKAGES)
    assert imported(code) <= set(preset.packages)
    assert preset_for(code, offered=()) is Preset.STDLIB


@unhurried
@given(st.text(max_size=200), st.sampled_from(PACKAGES))
def test_a_plain_import_is_found_before_any_text(rest, package):
    assert package in imported(f"import {package}\n{rest}")
    assert package in imported(f"from {package} import x\n{rest}")


MODELS = [ExecuteRequest, ProgramBatchRequest, RunCodeRequest, ObservationRequest]
NAMES = sorted({name for model in MODELS for name in model.model_fields} | set(Limits.__slots__))
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20))
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(NAMES), st.text(max_size=8)), inner, max_size=6),
    ),
    max_leaves=20,
)


@pytest.mark.parametrize("model", MODELS)
@unhurried
@given(body=st.one_of(st.binary(max_size=100), st.builds(lambda value: json.dumps(value).encode(), VALUES)))
def test_a_random_body_is_a_request_or_refused(model, body):
    with contextlib.suppress(Refused):
        assert isinstance(parse_body(body, model), model)


@unhurried
@given(value=VALUES, name=st.sampled_from([*ExecuteRequest.model_fields, "unknown"]))
def test_random_fields_are_refused_or_give_valid_limits(value, name):
    body = json.dumps({"code": "", name: value}).encode()
    with contextlib.suppress(Refused):
        asked = parse_body(body, ExecuteRequest)
        assert name != "unknown"
        with contextlib.suppress(ValueError):
            assert isinstance(limits_of(asked.limits, base=LIMITS), Limits)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 2000), st.sampled_from(["[", '{"code":', '{"limits":{"cpu_s":']))
def test_deeply_nested_json_is_refused(depth, opening):
    with pytest.raises(Refused):
        parse_body((opening * depth).encode(), ExecuteRequest)
