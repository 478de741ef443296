"""Limits of programs, and the results of programs that exceed them."""

import pytest

from tirjudge.formats.texts import TRUNCATED
from tirjudge.types import Outcome
from tirjudge_sandbox import IsolationLevel, Limits


async def test_an_endless_loop_is_a_timeout(pool):
    result = await pool.run("print('started')\nwhile True:\n    pass")
    assert (result.outcome, result.exit_code, result.signal) == (Outcome.TIMEOUT, None, None)
    assert result.error == "TimeLimit: more than 0.5 s of processor time"
    assert result.stdout == "started\n"
    assert result.cpu_s >= 0.5


async def test_a_long_call_of_c_code_is_a_timeout(pool):
    assert (await pool.run("9 ** 9 ** 9")).outcome is Outcome.TIMEOUT


async def test_hard_compilation_is_an_error_of_the_program(pool):
    assert (await pool.run("print(9 ** 9 ** 8 % 7 if False else '-' * 10)")).outcome is Outcome.OK
    assert (await pool.run("eval('-' * 100_000 + '1')")).outcome in (Outcome.ERROR, Outcome.OOM)


async def test_sleeping_ends_at_the_wall_limit(pool):
    result = await pool.run("import time; time.sleep(600)", limits=Limits(wall_s=0.3))
    assert result.outcome is Outcome.TIMEOUT
    assert result.error == "TimeLimit: not done after 0.3 s"


@pytest.mark.parametrize(
    "code",
    [
        "import signal\nfor s in set(signal.Signals) - {9, 19}: signal.signal(s, signal.SIG_IGN)\nwhile True: pass",
        "import threading, time; threading.Thread(target=time.sleep, args=(600,)).start()",
        "import atexit, time; atexit.register(time.sleep, 600)",
        "class E(Exception):\n    def __str__(self):\n        while True: pass\nraise E",
        "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)\nwhile True: pass",
    ],
    ids=["ignored signals", "thread", "exit hook", "error message", "stopped"],
)
async def test_time_limits_cannot_be_circumvented(pool, code):
    assert (await pool.run(code, limits=Limits(cpu_s=0.3, wall_s=0.6))).outcome is Outcome.TIMEOUT


async def test_too_much_memory_is_oom(pool):
    result = await pool.run("x = bytearray(400 << 20)")
    assert (result.outcome, result.error, result.exit_code) == (Outcome.OOM, "MemoryError", None)


async def test_a_program_can_catch_the_memory_error_at_its_limit(pool):
    code = "kept = []\ntry:\n    while True: kept.append(bytearray(1 << 20))\nexcept MemoryError:\n    print(len(kept))"
    result = await pool.run(code, limits=Limits(cpu_s=20, wall_s=60, memory_mb=256))
    assert result.outcome is Outcome.OK
    assert 100 < int(result.stdout) <= 256


async def test_a_text_larger_than_the_memory_is_oom(pool):
    limits = Limits(memory_mb=16)
    result = await pool.run("print(len(text))", bindings={"text": "x" * (20 << 20)}, limits=limits)
    assert result.outcome is Outcome.OOM


async def test_memory_below_the_limit_is_available(pool):
    assert (await pool.run("x = bytearray(200 << 20)")).outcome is Outcome.OK


async def test_threads_work_and_are_limited(pool):
    code = """
import threading, time
count = 0
try:
    while count < 5000:
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        count += 1
except (RuntimeError, MemoryError):
    pass
print(count)
"""
    result = await pool.run(code)
    assert result.outcome is Outcome.OK
    assert 16 <= int(result.stdout) < 200


async def test_open_files_are_limited(pool):
    result = await pool.run("import os\nwhile True: os.open('/dev/null', os.O_RDONLY)")
    assert result.error == "OSError: [Errno 24] Too many open files: '/dev/null'"


async def test_pipes_cannot_be_made_larger(pool):
    result = await pool.run("import fcntl, os\nfcntl.fcntl(os.pipe()[1], 1031, 1 << 20)")
    assert result.error == "PermissionError: [Errno 1] Operation not permitted"


@pytest.mark.parametrize("level", [IsolationLevel.NAMESPACES_CGROUP, IsolationLevel.NAMESPACES], indirect=True)
async def test_scratch_space_is_limited(pool):
    code = """
written = 0
try:
    for number in range(100):
        with open(f"/tmp/file{number}", "wb") as file:
            written += file.write(bytes(1 << 20))
except OSError as error:
    print(written >> 20, error.strerror)
"""
    assert (await pool.run(code)).stdout == "16 No space left on device\n"


async def test_a_long_output_keeps_its_head_and_tail(pool):
    limits = Limits(output_bytes=40)
    result = await pool.run("print('a' * 50 + 'z' * 49)", limits=limits)
    assert (result.outcome, result.truncated) == (Outcome.OK, True)
    assert result.stdout == f"{'a' * 30}\n{TRUNCATED}\n{'z' * 9}\n"
    exact = await pool.run("print('a' * 39)", limits=limits)
    assert (exact.stdout, exact.truncated) == ("a" * 39 + "\n", False)


async def test_a_character_cut_in_two_is_dropped(pool):
    result = await pool.run("print('é☃' * 30, end='')", limits=Limits(output_bytes=40))
    head, _, tail = result.stdout.split("\n")
    assert (head, tail) == ("é☃" * 6, "é☃" * 2)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_endless_output_is_an_output_limit(pool, stream):
    result = await pool.run(f"import sys\nwhile True: sys.{stream}.write('flood ' * 10_000)")
    assert result.outcome is Outcome.OUTPUT_LIMIT
    assert result.error == "OutputLimit: more than 4 MiB printed"
    assert len(result.stdout) < 70_000


async def test_a_program_that_is_too_long_is_refused(pool):
    limits = Limits(source_bytes=10)
    assert (await pool.run("print(123)", limits=limits)).outcome is Outcome.OK
    before = pool.stats().num_programs
    result = await pool.run("print('é')", limits=limits)
    assert (result.outcome, result.error) == (Outcome.REFUSED, "ProgramTooLong: more than 10 bytes")
    assert pool.stats().num_programs == before


async def test_the_error_is_the_last_line_of_the_traceback(pool):
    assert (await pool.run("1 / 0")).error == "ZeroDivisionError: division by zero"
    assert (await pool.run("raise KeyError('x' * 9999)")).error == "KeyError: '" + "x" * 489
    assert (await pool.run("print(")).error == "SyntaxError: '(' was never closed"
    assert (await pool.run("raise SystemExit('bye')")).error == "bye"
    assert (await pool.run("raise SystemExit(4)")).error == "SystemExit: 4"
    assert (await pool.run("input()")).error == "EOFError: EOF when reading a line"
    assert (await pool.run("raise KeyboardInterrupt")).error == "KeyboardInterrupt"
    group = await pool.run("raise ExceptionGroup('several', [ValueError('first'), TypeError('second')])")
    assert group.error == "| TypeError: second"


async def test_output_on_stderr_is_not_an_error(pool):
    result = await pool.run("import sys, warnings\nwarnings.warn('careful')\nsys.stderr.write('noise')\nprint(7)")
    assert (result.outcome, result.error, result.stdout) == (Outcome.OK, None, "7\n")


async def test_output_that_is_not_utf_8_is_replaced(pool):
    assert (await pool.run(r"import os; os.write(1, b'a\xffb')")).stdout == "a\N{REPLACEMENT CHARACTER}b"


async def test_common_modules_of_the_standard_library_work(pool):
    code = """
import asyncio, collections, concurrent.futures, decimal, pickle, sqlite3, hashlib, zoneinfo
class Point:
    pass
if __name__ == "__main__":
    assert type(pickle.loads(pickle.dumps(Point()))) is Point
async def three():
    await asyncio.sleep(0.001)
    return 3
with concurrent.futures.ThreadPoolExecutor(2) as executor:
    total = sum(executor.map(abs, [-1, 2]))
row = sqlite3.connect(":memory:").execute("select 4").fetchone()
print(asyncio.run(three()), total, row, hashlib.md5(b"").hexdigest()[:4])
try:
    assert str(zoneinfo.ZoneInfo("Europe/Rome")) == "Europe/Rome"
except zoneinfo.ZoneInfoNotFoundError:  # this machine has no time zone data
    pass
exit()
"""
    result = await pool.run(code)
    assert result.stdout == "3 3 (4,) d41d\n", result.error


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 1e308, 2**60, 10**400])
@pytest.mark.parametrize("name", ["cpu_s", "wall_s", "memory_mb", "output_bytes", "file_mb"])
def test_a_limit_out_of_range_is_refused_by_name(name, value):
    with pytest.raises(
        ValueError, match=f"^{name}: expected a number greater than 0 and at most .{{1,20}}, got .{{1,80}}$"
    ):
        Limits(**{name: value})
