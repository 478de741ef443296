"""Every test that takes `pool` runs once at each isolating level that this machine allows."""

import functools
import json
import subprocess

import pytest

from tirjudge_sandbox import Level, Limits, SandboxPool
from tirjudge_sandbox.fork_server import ENVIRONMENT, isolated_python

NEEDED = {
    Level.NAMESPACES: ("user namespace", "mount namespace", "pid namespace", "network namespace", "seccomp"),
    Level.LANDLOCK: ("landlock", "seccomp"),
}

LIMITS = Limits(cpu_s=0.5, wall_s=20.0, memory_mb=256)


@functools.cache
def problems() -> dict[str, str]:
    """What the kernel refuses us: a level whose building blocks all work must work, and its tests are not skipped."""
    command = isolated_python("probe")
    return json.loads(subprocess.run(command, env=ENVIRONMENT, capture_output=True, check=True).stdout)


@pytest.fixture(params=[Level.NAMESPACES, Level.LANDLOCK])
def level(request):
    refused = [name for name in NEEDED[request.param] if problems()[name]]
    if refused:
        pytest.skip(f"this machine has no {', '.join(refused)}")
    return request.param


@pytest.fixture
async def pool(level):
    async with SandboxPool(slots=2, limits=LIMITS, level=level) as pool:
        yield pool
        assert (await pool.run("print('still here')")).stdout == "still here\n"
