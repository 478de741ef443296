"""A pool says what it cannot do, and does not quietly do less. The refusals here come from the kernel."""

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
    "From here on the kernel knows these calls no more, neither for us nor for our children."
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
ctypes.CDLL(None).prctl(36, 1)  # orphans come to us
asyncio.run(main(json.loads(sys.argv[2])))
try:
    while True:
        os.wait()
except ChildProcessError:
    pass
"""


def start_without(*calls: tuple[int, int], **options: object) -> dict[str, object]:
    """What a pool says for itself on a machine that lacks some system calls. A process left behind is a TimeoutExpired."""
    command = [sys.executable, "-c", SCRIPT, json.dumps(calls), json.dumps(options)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=30).stdout)


async def test_the_best_level_that_works_is_chosen(level):
    assert start_without()["level"] in list(IsolationLevel)
    async with SandboxPool(slots=1) as pool:
        assert IsolationLevel(pool.level).at_least(level)


@pytest.mark.parametrize("level", [IsolationLevel.LANDLOCK], indirect=True)
def test_without_namespaces_landlock_is_chosen(level):
    assert start_without(UNSHARE) == {"level": level, "of result": level, "warnings": []}


def test_below_min_level_a_pool_refuses_and_says_what_would_help():
    error = str(start_without(UNSHARE, min_level="namespaces")["error"])
    assert "namespaces: " in error
    assert "landlock: " not in error
    assert "seccomp=unconfined" in error


def test_a_level_that_was_asked_for_is_not_replaced():
    assert "namespaces: " in str(start_without(UNSHARE, level="namespaces")["error"])
    assert "Linux 5.13" in str(start_without(LANDLOCK, level="landlock")["error"])


def test_with_nothing_to_isolate_with_a_pool_refuses():
    error = str(start_without(UNSHARE, LANDLOCK)["error"])
    assert "namespaces: " in error
    assert "landlock: " in error


def test_unsafe_must_be_allowed_and_is_written_on_each_result():
    answer = start_without(UNSHARE, LANDLOCK, allow_unsafe=True)
    assert answer["level"] == answer["of result"] == "unsafe"
    assert answer["warnings"] == ["programs run without isolation (level unsafe)"]


@pytest.mark.parametrize("level", [IsolationLevel.LANDLOCK], indirect=True)
def test_unsafe_is_not_used_where_something_better_works(level):
    assert start_without(UNSHARE, allow_unsafe=True)["level"] == level


def test_unsafe_alone_is_a_mistake():
    with pytest.raises(ValueError, match="allow_unsafe"):
        SandboxPool(level="unsafe")
    with pytest.raises(ValueError):
        SandboxPool(level="best")
    with pytest.raises(ValueError, match="slots: 0 given"):
        SandboxPool(slots=0)


def test_levels_are_ordered():
    assert IsolationLevel.NAMESPACES.at_least(IsolationLevel.LANDLOCK)
    assert IsolationLevel.LANDLOCK.at_least(IsolationLevel.LANDLOCK)
    assert not IsolationLevel.UNSAFE.at_least(IsolationLevel.LANDLOCK)
