"""Which cases of a test run at which isolation level, for tests whose subject hardly depends on the level."""

from itertools import chain

import pytest

from tests.sandbox.conftest import NEEDED, container_levels, refused

STRONGEST = next((level for level in NEEDED if not refused(level)), None)
"""The strongest level that works here without a container. None: no level works."""

at_strongest_level = pytest.mark.parametrize("level", [STRONGEST] if STRONGEST else [], indirect=True)
"""Runs a test at one level: its subject is in the process of the pool, which is the same at each level."""


def at_levels(names, cases, *, everywhere=(), slow_every=1):
    """Parametrize a test with `level` and other names: all cases at the strongest level, every fourth at the others. The
    levels differ in what surrounds a program, not in what it executes.

    Args:
        names: names of the other parameters, as in `pytest.mark.parametrize`.
        cases: their values.
        everywhere: cases for all levels.
        slow_every: at the strongest level, all but each `slow_every`-th case are slow.
    """
    names, cases = ([names], [(case,) for case in cases]) if isinstance(names, str) else (names, list(cases))
    everywhere = [case if isinstance(case, tuple) else (case,) for case in everywhere]
    some = [*everywhere, *[case for case in cases if case not in everywhere][::4]]
    params = [
        pytest.param(STRONGEST, *case, marks=[pytest.mark.slow] if number % slow_every else [])
        for number, case in enumerate(cases if STRONGEST else ())
    ]
    others = [level for level in chain(NEEDED, container_levels()) if level is not STRONGEST]
    params += [pytest.param(level, *case) for level in others for case in cases if case in some]
    return pytest.mark.parametrize(("level", *names), params, indirect=["level"])
