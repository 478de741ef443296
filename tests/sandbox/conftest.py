"""Every test that takes `pool` or `level` runs once at each isolating level that this machine allows.

The levels that are containers are among them if TIRJUDGE_TEST_IMAGE names an image and Docker's daemon answers.
"""

import contextlib
import functools
import json
import os
import subprocess

import pytest

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

LIMITS = Limits(cpu_s=0.5, wall_s=20.0, memory_mb=256)


@functools.cache
def problems() -> dict[str, str]:
    """What the kernel refuses us: a level whose building blocks all work must work, and its tests are not skipped."""
    command = isolated_python("probe")
    found = json.loads(subprocess.run(command, env=ENVIRONMENT, capture_output=True, check=True).stdout)
    try:
        open_tree()
    except CgroupError as error:
        return {**found, "cgroup": str(error)}
    return {**found, "cgroup": ""}


@pytest.fixture
def family():
    """Tells pid -> parent's pid of all processes below a process; by default of our own pools, not of what else was started
    here, such as the resource tracker of multiprocessing."""
    return lambda of=None: processes.family(of) if of else pools_of(os.getpid())


@pytest.fixture
def at_rest(level, family):
    """Waits until a pool of so many slots has just the processes that it has between two programs, and tells pid -> parent's
    pid. The one below each slot waits for the next program, and is another each time; the others stay."""

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
    """The same, but tells only the processes that stay."""

    async def wait(*, slots):
        return set((await at_rest(slots=slots)).values())

    return wait


def pools_of(pid):
    found = {}
    for child, parent in processes.family(pid).items():
        if parent == pid and "tirjudge_sandbox" in processes.command_of(child):
            found |= {child: pid, **processes.family(child)}
    return found


@functools.cache
def container_levels() -> list[IsolationLevel]:
    """Those that can be tested."""
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
    """Of the containers that are tested."""
    if not container_levels():
        pytest.skip("no container is tested: TIRJUDGE_TEST_IMAGE names no image, or Docker's daemon does not answer")
    return IMAGE


@pytest.fixture(params=[*NEEDED, *container_levels()])
def level(request, monkeypatch):
    if request.param.needs_image:
        if request.node.get_closest_marker("on_host"):
            pytest.skip("it is about what programs and pools have on the host; test_containers.py has its like")
        # Pools that tests make need not know of images.
        monkeypatch.setitem(SandboxPool.__init__.__kwdefaults__, "image", IMAGE)
        return request.param
    refused = [name for name in NEEDED[request.param] if problems()[name]]
    if refused:
        pytest.skip(f"this machine has no {', '.join(refused)}")
    return request.param


@pytest.fixture
async def pool(level):
    async with SandboxPool(slots=2, limits=LIMITS, level=level) as pool:
        yield pool
        assert (await pool.run("print('still here')")).stdout == "still here\n"
