"""Every test with the fixture `pool` or `level` runs once at each isolation level that works on this machine.

The fast tier runs the strongest of a test's levels; the other levels are slow. Container levels are included if
TIRJUDGE_TEST_IMAGE names an image and the Docker daemon is reachable.

All async tests of this folder share one event loop, so that pools can live for the whole session.
"""

import contextlib
import functools
import json
import os
import subprocess
from collections import defaultdict
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from tests import processes
from tests.waiting import until
from tirjudge_sandbox import IsolationLevel, Limits, SandboxPool
from tirjudge_sandbox.cgroups import CgroupError, open_tree
from tirjudge_sandbox.fork_server import ENVIRONMENT, isolated_python

_NAMESPACES = ("user namespace", "mount namespace", "pid namespace", "network namespace", "seccomp")
NEEDED = {
    IsolationLevel.NAMESPACES_CGROUP: (*_NAMESPACES, "cgroup"),
    IsolationLevel.NAMESPACES: _NAMESPACES,
    IsolationLevel.LANDLOCK: ("landlock", "seccomp"),
}

IMAGE = os.environ.get("TIRJUDGE_TEST_IMAGE")

LIMITS = Limits(cpu_s=0.5, wall_s=30.0, memory_mb=256)
MAX_LIMITS = Limits(cpu_s=60, wall_s=120, memory_mb=1024)


@pytest.hookimpl(tryfirst=True)  # before deselection by markers
def pytest_collection_modifyitems(items):
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    levels = defaultdict(set)
    for item in ours:
        if pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
        levels[_test_of(item)].add(_level_of(item))
    for item in ours:
        if _level_of(item) not in (None, _strongest(levels[_test_of(item)])):
            item.add_marker(pytest.mark.slow)


def _test_of(item):
    return item.path, item.cls, item.originalname


def _level_of(item):
    return item.callspec.params.get("level") if hasattr(item, "callspec") else None


def _strongest(levels):
    """The strongest of a test's levels that works here without a container."""
    return next((level for level in NEEDED if level in levels and not refused(level)), None)


@functools.cache
def problems() -> dict[str, str]:
    """Return kernel feature -> reason why it does not work. Tests are skipped only at levels that need a broken one."""
    command = isolated_python("probe")
    found = json.loads(subprocess.run(command, env=ENVIRONMENT, capture_output=True, check=True).stdout)
    try:
        open_tree()
    except CgroupError as error:
        return {**found, "cgroup": str(error)}
    return {**found, "cgroup": ""}


def refused(level) -> list[str]:
    """Return the kernel features that a level needs and that do not work here."""
    return [name for name in NEEDED[level] if problems()[name]]


# -------------------------------------------------------------------------------------------------------------- processes


@pytest.fixture
def family():
    """Function that returns pid -> parent's pid of all processes below a given process. Without an argument, it returns
    the processes of all pools that were opened in this process since the fixture was set up."""
    before = set(_pools_of(os.getpid()))
    return lambda of=None: processes.family(of) if of else _pools_of(os.getpid(), besides=before)


def _pools_of(pid, *, besides=frozenset()):
    found = {}
    for child, parent in processes.family(pid).items():
        if parent == pid and child not in besides and "tirjudge_sandbox" in processes.command_of(child):
            found |= {child: pid, **processes.family(child)}
    return found


@pytest.fixture
def at_rest(level, family):
    """Function that waits until a new pool has exactly the processes that it has between two programs. Returns pid ->
    parent's pid. The process below each slot waits for the next program and changes each time; the others stay."""

    async def wait(*, slots):
        num_servers = 2 if level.has_namespaces else 1
        num = 0 if level.needs_image else num_servers + 2 * slots
        found = {}

        def is_at_rest():
            nonlocal found
            found = family()
            return len(found) == num

        await until(is_at_rest)
        return found

    return wait


@pytest.fixture
def staying(at_rest):
    """Like `at_rest`, but returns only the processes that stay between programs."""

    async def wait(*, slots):
        return set((await at_rest(slots=slots)).values())

    return wait


# ----------------------------------------------------------------------------------------------------------------- levels


@functools.cache
def container_levels() -> list[IsolationLevel]:
    """Return the container levels that can be tested."""
    if IMAGE is None:
        return []
    docker = pytest.importorskip("docker")
    try:
        with contextlib.closing(docker.from_env(timeout=10)) as client:
            has_gvisor = "runsc" in client.info()["Runtimes"]
    except docker.errors.DockerException:
        return []
    return [IsolationLevel.GVISOR, IsolationLevel.DOCKER] if has_gvisor else [IsolationLevel.DOCKER]


@pytest.fixture
def image():
    """The Docker image for tests of container levels."""
    if not container_levels():
        pytest.skip("containers are not tested: TIRJUDGE_TEST_IMAGE is not set, or the Docker daemon is not reachable")
    return IMAGE


@pytest.fixture(params=[*NEEDED, *container_levels()])
def level(request, monkeypatch):
    if request.param.needs_image:
        if request.node.get_closest_marker("on_host"):
            pytest.skip("only for levels on the host; test_containers.py has the corresponding test")
        # Tests do not have to pass an image to the pools that they open.
        monkeypatch.setitem(SandboxPool.__init__.__kwdefaults__, "image", IMAGE)
        return request.param
    if missing := refused(request.param):
        pytest.skip(f"this machine does not support {', '.join(missing)}")
    return request.param


# ------------------------------------------------------------------------------------------------------------------ pools


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def open_shared():
    """Function that returns the session's pool for some options, opening it at the first call."""
    async with AsyncExitStack() as stack:
        pools = {}

        async def open_pool(**options):
            key = tuple(sorted(options.items()))
            if key not in pools:
                pools[key] = await stack.enter_async_context(SandboxPool(**options))
            return pools[key]

        yield open_pool


@pytest_asyncio.fixture(loop_scope="session")
async def pool(level, open_shared):
    """A pool of two slots shared by all tests of a level. Each test must leave it usable."""
    shared = await open_shared(slots=2, limits=LIMITS, max_limits=MAX_LIMITS, level=level)
    yield shared
    await check_usable(shared)


@pytest_asyncio.fixture(loop_scope="session")
async def own_pool(level, family):
    """A pool of two slots for one test, for tests that count its processes. The test must leave it usable."""
    async with SandboxPool(slots=2, limits=LIMITS, max_limits=MAX_LIMITS, level=level) as opened:
        yield opened
        await check_usable(opened)


async def check_usable(pool):
    result = await pool.run("print('still here')")
    assert result.stdout == "still here\n", result
    await until(lambda: pool.stats().num_idle == pool.stats().num_slots)
