"""`SandboxPool`: concurrent programs, cancellation, and processes that die."""

import asyncio
import itertools
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping

import psutil
import pytest

from tests.sandbox.level_sampling import at_strongest_level
from tests.waiting import until
from tirjudge.errors import SandboxBusy, SandboxUnavailable
from tirjudge.types import Outcome
from tirjudge_sandbox import Limits, SandboxPool
from tirjudge_sandbox.fork_server import ForkServer
from tirjudge_sandbox.slots import ProgramSlot, SlotQueue

PATIENT = Limits(cpu_s=300, wall_s=300)
SPIN = "while True: pass"


def fork_server_of(processes: dict[int, int]) -> int:
    """Return the process that is our child; all others descend from it."""
    return next(pid for pid, parent in processes.items() if parent == os.getpid())


def slot_of(processes: dict[int, int]) -> tuple[int, int]:
    """Return the process of the only slot, and its child that waits for the next program."""
    waiting = next(pid for pid in processes if pid not in processes.values())
    return processes[waiting], waiting


def wait_until_gone(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], 60)[0], f"process {pid} still exists"
    finally:
        os.close(descriptor)


async def until_busy(pool: SandboxPool) -> None:
    """Wait until a program was sent to a slot."""
    await until(lambda: pool.stats().num_busy)


@pytest.mark.slow
@at_strongest_level
async def test_results_of_64_concurrent_programs_are_not_lost_or_mixed_up(level):
    async with SandboxPool(slots=4, level=level) as pool:
        programs = [pool.run("print(who * 2)", bindings={"who": f"{number},"}) for number in range(64)]
        results = await asyncio.gather(*programs)
        assert [result.stdout for result in results] == [f"{number},{number},\n" for number in range(64)]
        stats = pool.stats()
        assert (stats.num_programs, stats.num_idle, stats.num_waiting, stats.num_lost) == (64, 4, 0, 0)


@at_strongest_level
async def test_queue_time_and_wall_time_do_not_overlap(level):
    async with SandboxPool(slots=1, limits=PATIENT, level=level) as pool:
        running = asyncio.create_task(pool.run(SPIN))
        await until_busy(pool)
        queued = time.monotonic()
        waiting = asyncio.create_task(pool.run("print(1)"))
        await until(lambda: pool.stats().num_waiting)
        seen_waiting = time.monotonic()
        await asyncio.sleep(0.05)
        still_waiting = time.monotonic()
        running.cancel()
        result = await waiting
        ended = time.monotonic()
    assert result.queue_s >= still_waiting - seen_waiting
    assert result.queue_s + result.wall_s <= ended - queued


@at_strongest_level
async def test_texts_are_not_copied_while_a_program_waits(level):
    class Texts(Mapping[str, str]):
        num_reads = 0

        def __getitem__(self, key: str) -> str:
            self.num_reads += 1
            return key

        def __iter__(self) -> Iterator[str]:
            return iter("AB")

        def __len__(self) -> int:
            return 2

    texts = Texts()
    async with SandboxPool(slots=1, limits=PATIENT, level=level) as pool:
        first = asyncio.create_task(pool.run(SPIN))
        await until_busy(pool)
        second = asyncio.create_task(pool.run("print(texts)", bindings={"texts": texts}))
        await until(lambda: pool.stats().num_waiting == 1)
        assert texts.num_reads == 0
        first.cancel()
        assert (await second).stdout == "{'A': 'A', 'B': 'B'}\n"


@at_strongest_level
async def test_invalid_bindings_leave_the_slot_usable(level):
    async with SandboxPool(slots=1, level=level) as pool:
        with pytest.raises(TypeError):
            await pool.run("print(1)", bindings={"text": 1})  # type: ignore[dict-item]
        assert (await pool.run("print(1)")).stdout == "1\n"


async def test_the_queue_is_first_in_first_out():
    queue = SlotQueue([ProgramSlot(0)])
    slot = await queue.take()
    order: list[str] = []

    async def wait(name: str) -> None:
        taken = await queue.take()
        order.append(name)
        queue.give_back(taken)

    waiters = [asyncio.create_task(wait(name)) for name in "abc"]
    await until(lambda: queue.num_waiting == 3)
    waiters[1].cancel()
    queue.give_back(slot)
    await asyncio.gather(*waiters, return_exceptions=True)
    assert order == ["a", "c"]
    assert queue.num_idle == 1


async def test_cancelling_kills_the_program_and_frees_its_slot(level, staying):
    async with SandboxPool(slots=1, limits=PATIENT, level=level) as pool:
        before = await staying(slots=1)
        task = asyncio.create_task(pool.run(SPIN))
        await until_busy(pool)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await pool.run("print('next')")).stdout == "next\n"
        assert await staying(slots=1) == before
        assert pool.stats().num_lost == 0


async def test_a_program_cancelled_before_its_process_is_ready_does_not_run(level):
    async with SandboxPool(slots=1, limits=PATIENT, level=level) as pool:
        for _ in range(5):
            await pool.run("print('a new process is forked now')")
            task = asyncio.create_task(pool.run(SPIN))
            while not pool.stats().num_busy:  # noqa: ASYNC110 - without any delay
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with asyncio.timeout(60):
                assert (await pool.run("print('next')")).stdout == "next\n"
        assert pool.stats().num_lost == 0


@at_strongest_level
async def test_cancelling_while_waiting_loses_no_slot(level):
    async with SandboxPool(slots=1, limits=PATIENT, level=level) as pool:
        running = asyncio.create_task(pool.run(SPIN))
        await until_busy(pool)
        waiting = asyncio.create_task(pool.run("print(1)"))
        await until(lambda: pool.stats().num_waiting)
        waiting.cancel()
        running.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)
        assert (await pool.run("print('next')")).stdout == "next\n"


@pytest.mark.on_host
async def test_a_dead_fork_server_is_restarted(level, family):
    async with SandboxPool(slots=2, level=level) as pool:
        processes = family()
        os.kill(fork_server_of(processes), signal.SIGKILL)
        for pid in processes:
            wait_until_gone(pid)
        results = await asyncio.gather(*(pool.run("print('back')") for _ in range(4)))
        assert {result.stdout for result in results} == {"back\n"}
        assert {result.level for result in results} == {level}
        assert pool.stats().num_restarts == 1


@pytest.mark.on_host
async def test_a_program_lost_with_its_fork_server_is_a_sandbox_failure(level, at_rest):
    async with SandboxPool(slots=1, limits=PATIENT, level=level) as pool:
        processes = await at_rest(slots=1)
        _, waiting = slot_of(processes)
        program = psutil.Process(waiting)
        used_s = program.cpu_times().user
        task = asyncio.create_task(pool.run(SPIN))
        # A program whose slot dies before it has read the job is run again.
        await until(lambda: program.cpu_times().user > used_s + 0.1)
        os.kill(fork_server_of(processes), signal.SIGKILL)
        with pytest.raises(SandboxUnavailable, match="the program was lost"):
            await task
        assert (await pool.run("print('next')")).stdout == "next\n"


@pytest.mark.on_host
async def test_a_dead_slot_is_replaced(level, at_rest):
    async with SandboxPool(slots=1, level=level) as pool:
        slot, waiting = slot_of(await at_rest(slots=1))
        os.kill(slot, signal.SIGKILL)
        wait_until_gone(slot)
        wait_until_gone(waiting)
        assert (await pool.run("print('next')")).stdout == "next\n"
        assert (pool.stats().num_lost, pool.stats().num_restarts) == (1, 0)


@pytest.mark.on_host
async def test_no_program_is_lost_if_a_waiting_process_dies(level, at_rest):
    async with SandboxPool(slots=1, level=level) as pool:
        slot, waiting = slot_of(await at_rest(slots=1))
        os.kill(waiting, signal.SIGKILL)
        assert (await pool.run("print('next')")).stdout == "next\n"
        assert pool.stats().num_lost == 1
        wait_until_gone(slot)


@pytest.mark.on_host
async def test_no_program_is_lost_if_a_slot_dies_before_reading_its_job(level, at_rest):
    async with SandboxPool(slots=1, level=level) as pool:
        slot, _ = slot_of(await at_rest(slots=1))
        os.kill(slot, signal.SIGSTOP)
        await until(lambda: psutil.Process(slot).status() == psutil.STATUS_STOPPED)
        task = asyncio.create_task(pool.run("print('run once')"))
        await until_busy(pool)
        os.kill(slot, signal.SIGKILL)
        assert (await task).stdout == "run once\n"
        assert pool.stats().num_lost == 1


@pytest.mark.slow
@pytest.mark.on_host
async def test_an_interpreter_that_got_ready_while_the_event_loop_was_blocked_is_used(monkeypatch):
    async with SandboxPool(slots=1, start_s=2.0) as pool:
        with monkeypatch.context() as patched:
            patched.setattr("tirjudge_sandbox.pool.RECYCLE_AFTER_PROGRAMS", 1)
            await pool.run("print(1)")
        for _ in range(5):
            await asyncio.sleep(0)  # until the pool waits for the new interpreter
        time.sleep(5)  # noqa: ASYNC251 - blocks the loop for longer than the timeout
        await until(lambda: pool.stats().num_recycled)
        assert (await pool.run("print(2)")).stdout == "2\n"


@pytest.mark.on_host
async def test_a_slot_that_does_not_answer_is_replaced(level, monkeypatch, at_rest):
    async with SandboxPool(slots=1, limits=Limits(wall_s=0.1), level=level) as pool:
        slot, _ = slot_of(await at_rest(slots=1))
        os.kill(slot, signal.SIGSTOP)
        monkeypatch.setattr("tirjudge_sandbox.fork_server.WATCHDOG_S", 0.1)
        with pytest.raises(SandboxUnavailable, match="no answer"):
            await pool.run("print(1)")
        monkeypatch.undo()
        assert (await pool.run("print('next')")).stdout == "next\n"


async def test_closing_leaves_no_process_and_no_descriptor(level, family):
    descriptors = set(os.listdir("/proc/self/fd"))
    pool = SandboxPool(slots=3, limits=PATIENT, level=level)
    await pool.start()
    tasks = [asyncio.create_task(pool.run(SPIN)) for _ in range(5)]
    await until_busy(pool)
    await pool.close()
    assert not family()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(result) for result in results} == {SandboxUnavailable}
    assert set(os.listdir("/proc/self/fd")) <= descriptors
    assert not pool.is_ready


@at_strongest_level
async def test_a_closed_pool_runs_no_programs(level):
    async with SandboxPool(slots=1, level=level) as pool:
        pass
    with pytest.raises(SandboxUnavailable, match="closed"):
        await pool.run("print(1)")


async def test_a_pool_that_was_not_started_runs_no_programs():
    with pytest.raises(SandboxUnavailable, match="not started"):
        await SandboxPool(slots=1).run("print(1)")


@pytest.mark.slow
@pytest.mark.on_host
def test_no_process_survives_a_killed_service(level, family):
    script = f"""
import asyncio
from tirjudge_sandbox import Limits, SandboxPool

async def main():
    async with SandboxPool(slots=2, limits=Limits(cpu_s=300, wall_s=300), level="{level}") as pool:
        task = asyncio.create_task(pool.run("while True: pass"))
        while not pool.stats().num_busy:
            await asyncio.sleep(0)
        print("running", flush=True)
        await task

asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"running\n"
        processes = family(server.pid)
        server.kill()
    assert len(processes) >= 3
    for pid in processes:
        wait_until_gone(pid)


@pytest.mark.slow
@pytest.mark.on_host
def test_a_pool_leaves_no_zombies_for_a_subreaper(level):
    script = f"""
import asyncio, ctypes
import psutil
from tirjudge_sandbox import SandboxPool

PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0

async def main():
    async with SandboxPool(slots=3, level="{level}") as pool:
        await pool.run("print(1)")

asyncio.run(main())
print([child.status() for child in psutil.Process().children()])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.slow
async def test_hostile_and_honest_programs_run_concurrently(level):
    hostile = ["import ctypes; ctypes.string_at(0)", "x = bytearray(1 << 40)", "import os; os._exit(9)", SPIN]
    async with SandboxPool(slots=3, limits=Limits(cpu_s=0.2), level=level) as pool:
        programs = [pool.run(f"print({number})") for number in range(12)] + [pool.run(code) for code in hostile]
        results = await asyncio.gather(*programs)
        assert [result.stdout for result in results[:12]] == [f"{number}\n" for number in range(12)]
        wanted = [Outcome.CRASH, Outcome.OOM, Outcome.ERROR, Outcome.TIMEOUT]
        assert [result.outcome for result in results[12:]] == wanted
        assert pool.stats().num_lost == 0


@at_strongest_level
def test_pools_work_in_successive_event_loops(level):
    async def once() -> str:
        async with SandboxPool(slots=1, level=level) as pool:
            return (await pool.run("print('loop')")).stdout

    assert [asyncio.run(once()) for _ in range(2)] == ["loop\n"] * 2


@pytest.mark.slow
async def test_a_request_may_set_its_own_limits(level):
    async with SandboxPool(slots=1, limits=Limits(wall_s=30), level=level) as pool:
        short = await pool.run("import time; time.sleep(600)", limits=Limits(wall_s=0.2))
        assert (short.outcome, short.error) == (Outcome.TIMEOUT, "TimeLimit: not done after 0.2 s")
        large = await pool.run("x = bytearray(700 << 20)", limits=Limits(memory_mb=900, wall_s=60))
        assert large.outcome is Outcome.OK
        assert (await pool.run("x = bytearray(700 << 20)")).outcome is Outcome.OOM
        with pytest.raises(ValueError, match="limits: wall_s: expected at most 120, got 121"):
            await pool.run("print(1)", limits=Limits(wall_s=121))


def test_defaults_that_exceed_the_maxima_are_refused():
    with pytest.raises(ValueError, match="memory_mb: expected at most 100, got 512"):
        SandboxPool(max_limits=Limits(memory_mb=100))
    with pytest.raises(ValueError, match="max_waiting: expected 0 or more, got -1"):
        SandboxPool(max_waiting=-1)


@at_strongest_level
async def test_a_full_queue_rejects_programs_with_a_retry_time(level):
    async with SandboxPool(slots=1, limits=PATIENT, max_waiting=1, level=level) as pool:
        running = asyncio.create_task(pool.run(SPIN))
        await until_busy(pool)
        waiting = asyncio.create_task(pool.run("print('waited')"))
        await until(lambda: pool.stats().num_waiting)
        with pytest.raises(SandboxBusy) as refused:
            await pool.run("print('too much')")
        assert refused.value.retry_after_s > 0
        running.cancel()
        assert (await waiting).stdout == "waited\n"
        await until(lambda: pool.stats().num_busy == 0)
        stats = pool.stats()
        assert (stats.num_refused, stats.num_programs, stats.num_by_outcome) == (1, 1, {"ok": 1})


@pytest.mark.slow
@pytest.mark.on_host
@at_strongest_level
async def test_a_warm_interpreter_that_did_not_start_is_retried_later(level, monkeypatch):
    code = "import numpy; print(numpy.ones(2).sum())"
    async with SandboxPool(slots=2, limits=PATIENT, level=level) as pool:
        with monkeypatch.context() as patched:
            patched.setattr("tirjudge_sandbox.fork_server.START_S", 0.001)
            with pytest.warns(
                RuntimeWarning, match="no warm interpreter numpy: it was not ready after 0.001 s"
            ) as warned:
                results = await asyncio.gather(pool.run(code), pool.run(code))
        results.append(await pool.run(code))
        assert [(result.stdout, result.preset) for result in results] == [("2.0\n", "stdlib")] * 3
        assert len(warned) == 1
        monkeypatch.setattr("tirjudge_sandbox.pool.RETRY_S", 0.0)
        result = await pool.run(code)
        assert (result.stdout, result.preset) == ("2.0\n", "numpy")


@pytest.mark.slow
async def test_an_old_fork_server_is_replaced_between_programs(level, family, at_rest, monkeypatch):
    monkeypatch.setattr("tirjudge_sandbox.pool.RECYCLE_AFTER_PROGRAMS", 5)
    async with SandboxPool(slots=2, limits=PATIENT, level=level) as pool:
        before = await at_rest(slots=2)
        slow = asyncio.create_task(pool.run("import time; time.sleep(0.5); print('untouched')"))
        results = [await pool.run("print('quick')") for _ in range(8)]
        assert {result.stdout for result in results} == {"quick\n"}
        assert (await slow).stdout == "untouched\n"
        await until(lambda: pool.stats().num_recycled >= 1)
        monkeypatch.undo()
        assert (await pool.run("print('next')")).stdout == "next\n"
        await until(lambda: not family().keys() & before.keys())
        await at_rest(slots=2)
        assert pool.stats().num_lost == 0


@pytest.mark.slow
@at_strongest_level
async def test_presets_do_not_increase_the_number_of_concurrent_programs(level, family):
    async with SandboxPool(slots=1, limits=PATIENT, level=level) as pool:
        code = "import time; start = time.time(); time.sleep(0.05); print(start, time.time())"
        runs = await asyncio.gather(pool.run(code), pool.run("import numpy\n" + code), pool.run(code))
        spans = sorted(tuple(map(float, run.stdout.split())) for run in runs)
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
        assert sorted(run.preset for run in runs) == ["numpy", "stdlib", "stdlib"]
    assert not family()


@pytest.mark.slow
@pytest.mark.on_host
@at_strongest_level
async def test_a_failed_replacement_leaves_all_slots_usable(level, monkeypatch, caplog):
    async with SandboxPool(slots=3, level=level) as pool:
        failures = []

        async def open_slot(server, number, *, cgroup):
            failures.append(number)
            raise RuntimeError("no new process in this test")

        with monkeypatch.context() as patched:
            patched.setattr("tirjudge_sandbox.pool.RECYCLE_AFTER_PROGRAMS", 1)
            patched.setattr(ForkServer, "open_slot", open_slot)
            await pool.run("print(1)")
            await until(lambda: failures and pool.stats().num_idle == 3)
        assert pool.stats().num_recycled == 1
        results = await asyncio.gather(*(pool.run("print(1)") for _ in range(6)))
        assert {result.stdout for result in results} == {"1\n"}
