"""Choice of the isolation level: a pool never silently runs at a weaker one. The kernel itself refuses the calls
here."""

import json
import subprocess
import sys

import pytest

from tirjudge_sandbox import IsolationLevel, SandboxPool

UNSHARE, LANDLOCK = (272, 97), (444, 444)

SCRIPT = """
import asyncio, ctypes, errno, json, os, struct, sys, warnings
from tirjudge.errors import SandboxUnavailable
from tirjudge_sandbox import SandboxPool, kernel

def refuse(numbers):
    "Make these system calls fail with ENOSYS in this process and its children."
    code = struct.pack("HBBI", 0x20, 0, 0, 0)
    for number in numbers:
        code += struct.pack("HBBI", 0x15, 0, 1, number) + struct.pack("HBBI", 6, 0, 0, 0x50000 | errno.ENOSYS)
    code += struct.pack("HBBI", 6, 0, 0, 0x7fff0000)
    buffer = ctypes.create_string_buffer(code, len(code))
    kernel.set_no_new_privileges()
    program = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer))
    kernel.syscall("seccomp", 317 if kernel.IS_X86 else 277, 1, 0, program)

async def main(options):
    with warnings.catch_warnings(record=True) as caught:
        try:
            async with SandboxPool(slots=1, **options) as pool:
                result = await pool.run("print(1)")
        except SandboxUnavailable as error:
            print(json.dumps({"error": str(error)}))
        else:
            print(json.dumps({"level": pool.level, "of result": result.level, "warnings": [str(w.message) for w in caught]}))

refuse([pair[0 if kernel.IS_X86 else 1] for pair in json.loads(sys.argv[1])])
ctypes.CDLL(None).prctl(36, 1)  # adopt orphans
asyncio.run(main(json.loads(sys.argv[2])))
try:
    while True:
        os.wait()
except ChildProcessError:
    pass
"""


def start_without(*calls: tuple[int, int], **options: object) -> dict[str, object]:
    """Start a pool in a process without some system calls, and return its level or error. A process that the pool
    leaves running causes a TimeoutExpired."""
    command = [sys.executable, "-c", SCRIPT, json.dumps(calls), json.dumps(options)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=120).stdout)


async def test_the_strongest_working_level_is_chosen(level):
    async with SandboxPool(slots=1) as pool:
        assert IsolationLevel(pool.level).at_least(level)


@pytest.mark.slow
@pytest.mark.parametrize("level", [IsolationLevel.LANDLOCK], indirect=True)
def test_without_namespaces_landlock_is_chosen(level):
    assert start_without(UNSHARE) == {"level": level, "of result": level, "warnings": []}


@pytest.mark.slow
def test_a_pool_does_not_start_below_min_level_and_gives_advice():
    error = str(start_without(UNSHARE, min_level="namespaces")["error"])
    assert "namespaces: " in error
    assert "landlock: " not in error
    assert "seccomp=unconfined" in error


@pytest.mark.slow
def test_a_requested_level_is_not_replaced():
    assert "namespaces: " in str(start_without(UNSHARE, level="namespaces")["error"])
    assert "Linux 5.13" in str(start_without(LANDLOCK, level="landlock")["error"])


@pytest.mark.slow
def test_a_pool_does_not_start_without_any_isolation():
    error = str(start_without(UNSHARE, LANDLOCK)["error"])
    assert "namespaces: " in error
    assert "landlock: " in error


@pytest.mark.slow
def test_level_unsafe_is_named_in_results_and_warned_about():
    answer = start_without(UNSHARE, LANDLOCK, allow_unsafe=True)
    assert answer["level"] == answer["of result"] == "unsafe"
    assert answer["warnings"] == ["programs run without isolation (level unsafe)"]


@pytest.mark.slow
@pytest.mark.parametrize("level", [IsolationLevel.LANDLOCK], indirect=True)
def test_level_unsafe_is_not_used_if_a_stronger_one_works(level):
    assert start_without(UNSHARE, allow_unsafe=True)["level"] == level


def test_invalid_levels_and_slots_are_refused():
    with pytest.raises(ValueError, match="allow_unsafe"):
        SandboxPool(level="unsafe")
    with pytest.raises(ValueError):
        SandboxPool(level="best")
    with pytest.raises(ValueError, match="slots: expected at least 1, got 0"):
        SandboxPool(slots=0)


def test_levels_are_ordered():
    assert IsolationLevel.NAMESPACES.at_least(IsolationLevel.LANDLOCK)
    assert IsolationLevel.LANDLOCK.at_least(IsolationLevel.LANDLOCK)
    assert not IsolationLevel.UNSAFE.at_least(IsolationLevel.LANDLOCK)
