from __future__ import annotations

import asyncio
import io

from rich.console import Console

from tirjudge_harness import progress as progress_module
from tirjudge_harness.prices import Prices
from tirjudge_harness.progress import RunProgress


def console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), width=160, force_terminal=terminal)


def test_a_line_says_what_is_done_right_failed_spent_and_left(make_judgment, monkeypatch) -> None:
    clock = iter([100.0, 160.0])
    monkeypatch.setattr(progress_module, "monotonic", lambda: next(clock))
    shown = RunProgress(10, console=console(terminal=False), title="llmbar", prices=Prices(input=1000.0, output=5000.0))
    shown.kept(make_judgment())
    for credit in (1.0, 0.0, 0.5):
        shown.scored(credit)
        shown.answered(make_judgment())
    shown.failed("i4", "EngineUnavailable: no GPU")
    # Four judgments of 100 tokens in and 10 out. Four questions were dealt with in 60 s, five are left.
    assert shown.line() == "llmbar 5/10, accuracy 50.0%, 1 failed, 440 tokens, cost 0.60, 0:01:15 left"


def test_without_prices_there_is_no_cost_and_without_news_no_guess(make_judgment) -> None:
    shown = RunProgress(3, console=console(terminal=False))
    shown.kept(make_judgment())
    assert shown.line() == "1/3, 110 tokens"


async def test_without_a_terminal_a_line_comes_at_intervals(make_judgment, monkeypatch) -> None:
    monkeypatch.setattr(progress_module, "LINE_S", 0.01)
    where = console(terminal=False)
    async with RunProgress(2, console=where, title="set") as shown:
        shown.answered(make_judgment())
        async with asyncio.timeout(10):
            await anext(each async for each in _ticks() if where.file.getvalue().count("\n") >= 2)
    lines = where.file.getvalue().splitlines()
    assert lines[0].startswith("set 1/2, 110 tokens, 0:00:00 left")


async def test_on_a_terminal_there_is_a_bar(make_judgment) -> None:
    where = console(terminal=True)
    async with RunProgress(2, console=where, title="set") as shown:
        shown.scored(1.0)
        shown.answered(make_judgment())
    assert "1/2" in where.file.getvalue()
    assert "accuracy 100.0%" in where.file.getvalue()


async def test_what_an_earlier_run_judged_says_nothing_of_the_speed(make_judgment) -> None:
    async with RunProgress(1000, console=console(terminal=True)) as shown:
        for _ in range(900):
            shown.kept(make_judgment())
        (bar,) = shown._bar.tasks
        assert bar.completed == 900
        assert bar.speed is None


async def test_only_the_first_failures_are_named() -> None:
    where = console(terminal=False)
    async with RunProgress(100, console=where) as shown:
        for number in range(50):
            shown.failed(f"i{number}", "[red]broken[/red]")
    lines = where.file.getvalue().splitlines()
    assert lines[0] == "i0: [red]broken[/red]"
    assert lines[-1] == "More failures are in the output alone."
    assert len(lines) == 21


async def test_no_more_failures_are_announced_than_there_are() -> None:
    where = console(terminal=False)
    async with RunProgress(100, console=where) as shown:
        for number in range(20):
            shown.failed(f"i{number}", "broken")
    assert "More failures" not in where.file.getvalue()


async def _ticks():
    while True:
        yield await asyncio.sleep(0.01)
