"""math-verify in worker processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import psutil
import pytest
import pytest_asyncio

from tests.processes import descendants, is_alive
from tirjudge_harness.best_of_n.graders.math import MathGrader
from tirjudge_harness.items import InputError

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENDLESS = r"\boxed{9^{9^{9^{9^9}}} + 1}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def grader() -> AsyncIterator[MathGrader]:
    """A grader of one worker, which the tests share; its start takes seconds."""
    async with MathGrader(workers=1, timeout_s=120.0) as opened:
        yield opened


@pytest.fixture
def worker_before() -> set[int]:
    """The worker processes that run before the test."""
    return workers()


def workers() -> set[int]:
    return descendants(os.getpid(), containing="graders.math_worker")


@pytest.mark.slow
async def test_equivalent_answers_are_right(grader: MathGrader) -> None:
    responses = [r"\boxed{0.5}", r"\boxed{\frac{1}{2}}", r"It is $\frac{2}{4}$.", r"\boxed{\frac{1}{3}}", "No idea!"]
    grades = await grader.grade(responses, facts={"answer": r"\frac{1}{2}"})
    assert [grade.correct for grade in grades] == [True, True, True, False, False]


async def test_equivalent_answers_have_the_text_of_the_first(grader: MathGrader) -> None:
    responses = [
        r"\boxed{9999\frac{6}{7}}",
        r"\boxed{2x+2}",
        r"\boxed{\frac{69999}{7}}",
        r"\boxed{2(x+1)}",
        r"\boxed{3}",
        "Hm?",
    ]
    grades = await grader.grade(responses, facts={"answer": "3"})
    assert [grade.answer for grade in grades] == [r"9999\frac{6}{7}", "2x+2", r"9999\frac{6}{7}", "2x+2", "3", None]
    assert [grade.correct for grade in grades] == [False, False, False, False, True, False]


async def test_latex_thousands_separators_are_ignored(grader: MathGrader) -> None:
    (grade,) = await grader.grade([r"\boxed{10000}"], facts={"answer": "10{,}000"})
    assert grade.correct


@pytest.mark.slow
async def test_gold_answers_may_be_numbers(grader: MathGrader) -> None:
    (grade,) = await grader.grade([r"\boxed{4.0}"], facts={"answer": 4})
    assert grade.correct


@pytest.mark.slow
async def test_an_endless_comparison_fails_without_affecting_other_answers() -> None:
    async with MathGrader(workers=1, timeout_s=3.0) as grader:
        responses = [r"\boxed{1}", ENDLESS, r"\boxed{2}", r"\boxed{1.0}"]
        grades = await grader.grade(responses, facts={"answer": "1"})
    assert [grade.correct for grade in grades] == [True, False, False, True]
    assert grades[1].detail["problem"].startswith(("TimeLimit: not done after 3 s", "Crash"))
    assert grades[1].answer == ENDLESS.removeprefix(r"\boxed{").removesuffix("}")
    assert not grades[0].detail


@pytest.mark.slow
async def test_a_killed_worker_is_replaced_and_none_is_left(worker_before: set[int]) -> None:
    async with MathGrader(workers=1, timeout_s=120.0) as grader:
        await grader.grade([r"\boxed{0.5}"], facts={"answer": "1/2"})
        (first,) = workers() - worker_before
        os.kill(first, signal.SIGSTOP)
        graded = asyncio.create_task(grader.grade([r"\boxed{0.5}"], facts={"answer": "1/2"}))
        await asyncio.sleep(0.1)
        os.kill(first, signal.SIGKILL)
        assert (await graded)[0].detail == {"problem": "Crash: the process that compares answers ended"}
        (again,) = await grader.grade([r"\boxed{0.5}"], facts={"answer": "1/2"})
        assert again.correct
        (second,) = workers() - worker_before
        assert second != first
    assert not is_alive(second)


@pytest.mark.slow
async def test_a_worker_is_replaced_after_a_cancelled_question(worker_before: set[int], until) -> None:
    async with MathGrader(workers=1, timeout_s=300.0) as grader:
        await grader.grade([r"\boxed{0.5}"], facts={"answer": "1/2"})
        (first,) = workers() - worker_before
        used_s = cpu_s(first)
        graded = asyncio.create_task(grader.grade([ENDLESS], facts={"answer": "1"}))
        await until(lambda: cpu_s(first) > used_s + 0.2 or not is_alive(first))
        graded.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(graded, 60)
        (again,) = await grader.grade([r"\boxed{0.5}"], facts={"answer": "1/2"})
        assert again.correct


def cpu_s(pid: int) -> float:
    try:
        return psutil.Process(pid).cpu_times().user
    except psutil.NoSuchProcess:
        return 0.0


async def test_a_gold_answer_is_required(grader: MathGrader) -> None:
    with pytest.raises(InputError, match="answer: "):
        await grader.grade([r"\boxed{1}"], facts={})


async def test_zero_workers_and_a_zero_timeout_are_refused() -> None:
    with pytest.raises(ValueError, match="workers: expected at least 1, got 0"):
        MathGrader(workers=0)
    with pytest.raises(ValueError, match="timeout_s: expected a positive number, got 0"):
        MathGrader(timeout_s=0)
