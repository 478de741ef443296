"""Kernel resources that a program can use (descriptors, buffers, threads), and information about other processes."""

import asyncio
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.sandbox.test_attacks import output
from tirjudge.types import Outcome
from tirjudge_sandbox import IsolationLevel, Limits, SandboxPool
from tirjudge_sandbox.cgroups import CgroupError, limits_around, open_tree
from tirjudge_sandbox.host_limits import HostLimits, resident_bytes

RAW = """
    import ctypes, errno, mmap, os, platform, threading, time
    libc = ctypes.CDLL(None, use_errno=True)
    PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    X86 = platform.machine() == "x86_64"
    CLONE, EXIT, FUTEX = (56, 60, 202) if X86 else (220, 93, 98)

    def call(number, *arguments):
        ctypes.set_errno(0)
        result = libc.syscall(*map(ctypes.c_long, (number, *arguments)))
        return result if result >= 0 else errno.errorcode[ctypes.get_errno()]
"""


PATIENT = Limits(cpu_s=20, wall_s=60)


def program(code: str) -> str:
    """A program with the helpers of `RAW`."""
    return textwrap.dedent(RAW) + textwrap.dedent(code)


@pytest.mark.parametrize("without", ["VM", "FS", "FILES", "SIGHAND"])
async def test_a_thread_must_share_memory_directory_descriptors_and_handlers(pool, level, without):
    """RLIMIT_NOFILE applies to each descriptor table: a thread with a separate one could hold 64 more sockets."""
    code = program("""
        flags = {"VM": 0x100, "FS": 0x200, "FILES": 0x400, "SIGHAND": 0x800, "THREAD": 0x10000}
        stack = mmap.mmap(-1, 1 << 16, PRIVATE)
        top = ctypes.addressof(ctypes.c_char.from_buffer(stack)) + (1 << 15)
        print(call(CLONE, sum(value for name, value in flags.items() if name != without), top, 0, 0, 0), flush=True)
    """)
    result = await pool.run(code, bindings={"without": without})
    # Where processes are allowed, the filter passes some combinations, and the kernel itself refuses them.
    may_fork = level.has_cgroup and without != "FILES"
    allowed = ("EPERM", "EINVAL") if may_fork else ("EPERM",)
    if not (may_fork and without == "FS"):  # a separate working directory is harmless
        assert result.stdout.strip() in allowed, result


async def test_close_range_cannot_unshare_the_descriptor_table(pool):
    code = program("""
        print(call(436, 40, 50, 2), call(436, 40, 50, 6), call(436, 40, 50, 0), call(436, 40, 50, 4))
        os.closerange(40, 50)
    """)
    assert await output(pool, code) == "EPERM EPERM 0 0"


async def test_threads_cannot_multiply_the_memory_of_sockets(pool):
    code = """
        import ctypes, socket, threading
        libc = ctypes.CDLL(None, use_errno=True)
        threading.stack_size(65536)
        kept, num_bytes, own_tables = [], [], []
        def fill(end):
            end.setblocking(False)
            num = 0
            try:
                while True: num += end.send(b"x" * 65536)
            except BlockingIOError:
                return num
        def hold():
            if libc.syscall(436, 64, 70, 2) == 0:
                own_tables.append(1)
            try:
                while True:
                    kept.append(socket.socketpair())
                    num_bytes.extend(map(fill, kept[-1]))
            except OSError: pass
        threads = [threading.Thread(target=hold) for _ in range(16)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(len(own_tables), sum(num_bytes) < 24 << 20)
    """
    assert await output(pool, code, limits=PATIENT) == "0 True"


async def test_shared_anonymous_memory_is_refused_where_no_limit_counts_it(pool, level):
    """The whole memory stays allocated while one page of it is mapped, but RLIMIT_AS counts only that page."""
    code = """
        import mmap
        kept = []
        try:
            for _ in range(20):
                kept.append(mmap.mmap(-1, 20 << 20))
                kept[-1].write(bytes(20 << 20))
                kept[-1].resize(4096)
        except OSError: pass
        print(len(kept))
        mmap.mmap(-1, 1 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).write(bytes(1 << 20))
        mmap.mmap(-1, 1 << 20, access=mmap.ACCESS_COPY).write(bytes(1 << 20))
    """
    result = await pool.run(textwrap.dedent(code), limits=Limits(memory_mb=64))
    if level.has_cgroup:
        assert result.outcome is Outcome.OOM
    else:
        assert (result.outcome, result.stdout) == (Outcome.OK, "0\n"), result


@pytest.mark.slow
@pytest.mark.parametrize("stride", [1 << 30, 1 << 21])
async def test_pages_that_are_far_apart_use_few_page_tables(pool, level, stride):
    code = program("""
        call = libc.mmap
        call.restype, call.argtypes = ctypes.c_long, [ctypes.c_long] * 6
        here = ctypes.cast(libc.getpid, ctypes.c_void_p).value >> 30 << 30
        num = 0
        for address in range(max(stride, here - 40_000 * stride), min(here + 4_000 * stride, 0x7f0000000000), stride):
            if call(address, 4096, 3, PRIVATE | 0x100000, -1, 0) == address:
                ctypes.c_char.from_address(address).value = b"x"
                num += 1
        print(num)
    """)
    code = code.replace("stride", str(stride))
    result = await pool.run(code, limits=Limits(memory_mb=512, cpu_s=20, wall_s=60))
    # A page table takes 4 KiB. A page that is the only one in a range of 1 GiB needs two page tables.
    assert result.outcome is Outcome.OK, result
    if not level.has_cgroup:
        assert int(result.stdout) * 4096 * (2 if stride > 1 << 21 else 1) <= 40 << 20


async def test_sendfile_to_a_socket_is_refused(pool):
    """A socket is charged for the bytes sent, while the kernel keeps whole pages."""
    code = """
        import os, shutil, socket
        a, b = socket.socketpair()
        os.write(1, bytes(8192))
        try:
            os.sendfile(a.fileno(), 1, 4095, 2)
            print("LENT")
        except PermissionError:
            os.ftruncate(1, 0)
            os.lseek(1, 0, 0)
            print("held")
    """
    assert await output(pool, code) == "held"


@pytest.mark.slow
async def test_a_thread_whose_end_was_interrupted_by_a_signal_still_counts(pool):
    if not kernel_is_x86():
        pytest.skip("written in machine code of x86-64")
    result = await pool.run(program(DRIFT), limits=PATIENT)
    assert result.outcome is Outcome.OK, result
    assert int(result.stdout) <= 63, result


DRIFT = """
    # Threads that try to end in a loop, and count how often they return; threads that sleep; an empty signal handler.
    text = mmap.mmap(-1, 4096, PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    spawn = bytes.fromhex("534889fbb838000000bf000f010031d24d31d24d31c00f0585c074025bc3")
    ending = bytes.fromhex("b83c00000031ff0f05f048ff03ebf1")
    asleep = bytes.fromhex("b8220000000f05ebf7")
    for place, part in ((0, spawn + ending), (512, spawn + asleep), (1024, bytes.fromhex("c3"))):
        text[place : place + len(part)] = part
    base = ctypes.addressof(ctypes.c_char.from_buffer(text))
    make = [ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_long, ctypes.c_long)(base + place) for place in (0, 512)]
    libc.signal(10, ctypes.c_void_p(base + 1024))
    libc.siginterrupt(10, 1)
    stacks = mmap.mmap(-1, 400 * 8192, PRIVATE)
    top = ctypes.addressof(ctypes.c_char.from_buffer(stacks)) - 64
    back = ctypes.c_long()
    def start(kind, number): return make[kind](ctypes.addressof(back), top + (number + 1) * 8192)
    threads = [start(0, number) for number in range(4)]
    end = time.monotonic() + 3
    while time.monotonic() < end:
        for number, thread in enumerate(threads):
            if thread <= 0 or call(234, os.getpid(), thread, 10) == "ESRCH":
                threads[number] = start(0, number)
    num = 0  # number of sleeping threads; the others may have ended
    while num < 300 and start(1, 10 + num) > 0: num += 1
    print(num, flush=True)
    os._exit(0)
"""


COUNT = """
    import threading, time
    threading.stack_size(32768)
    num = 0
    try:
        while num < 200:
            threading.Thread(target=time.sleep, args=(float(seconds),)).start()
            num += 1
    except RuntimeError as error:
        print(num, error)
"""


async def test_each_of_two_concurrent_programs_may_start_63_threads(pool):
    code = COUNT + "    import os, sys\n    sys.stdout.flush()\n    os._exit(0)"  # does not wait for its threads
    for _ in range(2):
        both = await asyncio.gather(*(output(pool, code, limits=PATIENT, seconds="600") for _ in range(2)))
        assert both == ["63 can't start new thread"] * 2


async def test_threads_started_by_machine_code_are_limited(pool):
    """The threads have tiny stacks and no bookkeeping of Python, so that only the sandbox limits their number."""
    if not kernel_is_x86():
        pytest.skip("written in machine code of x86-64")
    code = program("""
        text = mmap.mmap(-1, 4096, PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        # The child waits: mov eax, 34 (pause); syscall; jmp back. The parent returns what clone returned.
        text.write(bytes.fromhex("b838000000" "0f05" "4885c0" "7407" "c3" "9090909090" "90" "b822000000" "0f05" "ebf7"))
        base = ctypes.addressof(ctypes.c_char.from_buffer(text))
        clone = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_long] * 5)(base)
        stack = mmap.mmap(-1, 1 << 20, PRIVATE)
        top = ctypes.addressof(ctypes.c_char.from_buffer(stack)) + (1 << 19)
        flags = 0x100 | 0x200 | 0x400 | 0x800 | 0x10000
        print(sum(clone(flags, top, 0, 0, 0) > 0 for _ in range(1000)), flush=True)
        os._exit(0)
    """)
    assert await output(pool, code, limits=PATIENT) == "63"


async def test_ended_threads_do_not_count_toward_the_limit(pool):
    code = """
        import threading
        for _ in range(300):
            thread = threading.Thread(target=int)
            thread.start()
            thread.join()
        print("done")
    """
    assert await output(pool, code) == "done"


@pytest.mark.slow
async def test_refused_threads_cost_cpu_time_of_the_program(pool):
    code = (
        COUNT
        + """
    import _thread
    while True:
        try: _thread.start_new_thread(int, ())
        except RuntimeError: pass
    """
    )
    result = await pool.run(textwrap.dedent(code), bindings={"seconds": "600"}, limits=Limits(cpu_s=0.5, wall_s=60))
    assert (result.outcome, result.error) == (Outcome.TIMEOUT, "TimeLimit: more than 0.5 s of processor time")


@pytest.mark.on_host
async def test_the_oom_killer_prefers_programs_to_the_service(level, at_rest):
    async with SandboxPool(slots=1, level=level):
        scores = {memory_priority(pid) for pid in await at_rest(slots=1)}
    assert scores == {1000}
    assert memory_priority("self") < 1000


def memory_priority(pid):
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


CROWDED = """
    import asyncio, sys
    from tirjudge.errors import SandboxUnavailable
    from tirjudge_sandbox import Limits, SandboxPool

    HUNGRY = "import time\\nkept = bytearray(b'x') * (110 << 20)\\ntime.sleep(2)"

    async def outcome(pool):
        try:
            return str((await pool.run(HUNGRY)).outcome)
        except SandboxUnavailable as error:
            return "ran out" if "ran out of memory" in str(error) else str(error)

    async def main():
        async with SandboxPool(slots=2, level=sys.argv[1], limits=Limits(memory_mb=256, wall_s=60)) as pool:
            sys.stdin.readline()
            found = await asyncio.gather(outcome(pool), outcome(pool))
            print(sorted(set(found)), (await pool.run("print('next')")).stdout)

    asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.on_host
def test_a_program_killed_because_the_services_group_is_out_of_memory_is_a_sandbox_failure(level, crowded_group):
    """Both programs stay within their own limits, but the service's group is too small for both."""
    code = textwrap.dedent(CROWDED)
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, str(level)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=crowded_group,
    )
    printed, _ = process.communicate("go\n", timeout=60)
    assert printed in ("['ok', 'ran out'] next\n\n", "['ran out'] next\n\n")


@pytest.fixture
def crowded_group():
    """Function that moves the calling process into a group of 220 MiB."""
    try:
        group = open_tree().make()
    except CgroupError as error:
        pytest.skip(str(error))
    group.set_limits(memory_bytes=220 << 20, num_tasks=1024)
    yield lambda: group.hold(os.getpid())
    group.close()
    asyncio.run(group.remove())


# --------------------------------------------------------------------------------------- information about other processes


@pytest.mark.parametrize("level", [IsolationLevel.LANDLOCK], indirect=True)
async def test_other_processes_cannot_be_queried(pool):
    code = program("""
        import time
        learned = []
        for pid in map(int, others.split()):
            for ask in (os.getpgid, os.getsid, os.sched_getaffinity, lambda pid: os.getpriority(os.PRIO_PROCESS, pid),
                        lambda pid: os.getpriority(os.PRIO_PGRP, pid), lambda pid: os.getpriority(os.PRIO_USER, 0),
                        lambda pid: time.clock_gettime(~pid << 3 | 2), lambda pid: time.clock_getres(~pid << 3 | 2)):
                try:
                    learned.append((pid, ask(pid)))
                except OSError:
                    pass
        print([each for each in learned if each[0] != os.getpid()])
        print(os.getpgid(0) >= 0, len(os.sched_getaffinity(0)) > 0, os.getpriority(os.PRIO_PROCESS, 0),
              time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID) > 0, time.thread_time() > 0)
    """)
    learned, own = (await output(pool, code, others=f"{os.getpid()} {os.getppid()}")).splitlines()
    assert learned == "[]"
    assert own == f"True True {os.getpriority(os.PRIO_PROCESS, 0)} True True"


@pytest.mark.slow
@pytest.mark.parametrize("level", [IsolationLevel.NAMESPACES, IsolationLevel.LANDLOCK], indirect=True)
async def test_concurrent_programs_cannot_wake_each_other_with_a_futex(pool):
    wait = program("""
        address = ctypes.cast(libc.puts, ctypes.c_void_p).value & ~7
        value = ctypes.c_int32.from_address(address).value
        class Timespec(ctypes.Structure):
            _fields_ = [("s", ctypes.c_long), ("ns", ctypes.c_long)]
        until = Timespec(1, 0)
        print(call(FUTEX, address, 0, value, ctypes.addressof(until), 0, 0), flush=True)
    """)
    wake = program("""
        address = ctypes.cast(libc.puts, ctypes.c_void_p).value & ~7
        seen = set()
        end = time.monotonic() + 0.8
        while time.monotonic() < end:
            for operation in (1, 10):
                seen.add(call(FUTEX, address, operation, 2**31 - 1, 0, 0, 0xFFFFFFFF))
        print(sorted(map(str, seen)))
    """)
    waited, woke = await asyncio.gather(output(pool, wait, limits=PATIENT), output(pool, wake, limits=PATIENT))
    assert waited == "ETIMEDOUT"
    assert woke == "['EPERM']"


def kernel_is_x86() -> bool:
    return os.uname().machine == "x86_64"


# ------------------------------------------------------------------------------------------------- limits of the service


async def test_a_pool_that_exceeds_the_hosts_limits_warns(level, monkeypatch):
    small = HostLimits(memory_bytes=600 << 20, num_tasks=100)
    monkeypatch.setattr("tirjudge_sandbox.pool.host_limits", lambda: small)
    pool = SandboxPool(slots=2, level=level, limits=Limits(memory_mb=512))
    with pytest.warns(RuntimeWarning) as warned:
        async with pool:
            assert pool.max_limits.memory_mb == 512
    memory, tasks = (str(warning.message) for warning in warned)
    assert "2 slots of 512 MiB" in memory
    assert "only 600 MiB are available" in memory
    assert "208 processes and threads, but the service's control group allows 100" in tasks


async def test_the_memory_of_a_request_is_limited_to_what_all_slots_can_use(level, monkeypatch):
    small = HostLimits(memory_bytes=resident_bytes(os.getpid()) + (2 << 30), num_tasks=None)
    monkeypatch.setattr("tirjudge_sandbox.pool.host_limits", lambda: small)
    async with SandboxPool(slots=2, level=level, limits=Limits(memory_mb=512)) as pool:
        assert 512 < pool.max_limits.memory_mb < 1024
        with pytest.raises(ValueError, match="memory_mb"):
            await pool.run("print(1)", limits=Limits(memory_mb=1024))


def test_the_limits_of_a_processs_groups_are_found():
    try:
        tree = open_tree()
    except CgroupError as error:
        pytest.skip(str(error))
    group = tree.make()
    code = "import time; print('ready', flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        group.add(process.pid, base_bytes=0)
        group.limit(100 << 20)
        found = limits_around(process.pid)
    finally:
        process.kill()
        process.communicate()
        group.close()
        asyncio.run(group.remove())
    assert found["memory"] <= 117 << 20
    assert found["pids"] <= 65
