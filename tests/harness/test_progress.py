from __future__ import annotations

import asyncio
import io

from rich.console import Console

from tirjudge.prices import Prices
from tirjudge_harness import progress as progress_module
from tirjudge_harness.progress import RunProgress


def console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), width=160, force_terminal=terminal)


def test_the_line_shows_all_counts(make_judgment, monkeypatch) -> None:
    clock = iter([100.0, 160.0])
    monkeypatch.setattr(progress_module, "monotonic", lambda: next(clock))
    shown = RunProgress(10, console=console(terminal=False), title="llmbar", prices=Prices(input=1000.0, output=5000.0))
    shown.kept(make_judgment())
    for credit in (1.0, 0.0, 0.5):
        shown.scored(credit)
        shown.answered(make_judgment())
    shown.failed("i4", "EngineUnavailable: no GPU")
    # Four judgments with 100 input and 10 output tokens. Four requests of this run took 60 s, five are left.
    assert shown.line() == "llmbar 5/10, accuracy 50.0%, 1 failed, 440 tokens, cost 0.60, 0:01:15 left"


def test_the_line_leaves_out_unknown_cost_and_time(make_judgment) -> None:
    shown = RunProgress(3, console=console(terminal=False))
    shown.kept(make_judgment())
    assert shown.line() == "1/3, 110 tokens"


async def test_without_a_terminal_lines_are_printed_at_intervals(make_judgment, monkeypatch) -> None:
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


async def test_judgments_of_an_earlier_run_do_not_count_for_the_speed(make_judgment) -> None:
    where = console(terminal=True)
    async with RunProgress(100, console=where) as shown:
        for _ in range(90):
            shown.kept(make_judgment())
    _, shown_last, rest = where.file.getvalue().rpartition("90/100")
    assert shown_last
    assert "-:--:--" in rest  # the remaining time is unknown


async def test_only_the_first_failures_are_printed() -> None:
    where = console(terminal=False)
    async with RunProgress(100, console=where) as shown:
        for number in range(50):
            shown.failed(f"i{number}", "[red]broken[/red]")
    lines = where.file.getvalue().splitlines()
    assert lines[0] == "i0: [red]broken[/red]"
    assert lines[-1] == "Further failures are only in the output."
    assert len(lines) == 21


async def test_the_note_on_further_failures_needs_further_failures() -> None:
    where = console(terminal=False)
    async with RunProgress(100, console=where) as shown:
        for number in range(20):
            shown.failed(f"i{number}", "broken")
    assert "Further failures" not in where.file.getvalue()


async def _ticks():
    while True:
        yield await asyncio.sleep(0.01)
