"""`tirjudge demo`: sends three requests to a server and prints the model's programs, their output and the verdicts."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.text import Text

from tirjudge.client import AsyncClient, ServerUnavailable
from tirjudge.counted import counted
from tirjudge.types import JudgeRequest, Judgment, Mode, RolloutRecord, label_of, prompt_text

REQUESTS = (
    JudgeRequest(
        mode=Mode.PAIRWISE,
        prompt="Write two sentences about the sea. Do not use any commas.",
        responses=[
            "The sea is wide, deep and never still. At night, it sounds like breath.",
            "The sea is wide and never still. At night it sounds like breath.",
        ],
    ),
    JudgeRequest(mode=Mode.POINTWISE, prompt="What is 17 * 23 + 4?", responses=["The answer is 395."]),
    JudgeRequest(
        mode=Mode.LISTWISE,
        prompt="Describe the morning. Use all capital letters.",
        responses=[
            "The sun is up and the street is quiet.",
            "THE SUN IS UP and the street is quiet.",
            "THE SUN IS UP AND THE STREET IS QUIET.",
            "the sun is up and the street is quiet.",
        ],
    ),
)
"""One request of each mode, small enough to check by eye. The right answers are: B, a high score for 395, and C."""

STORES_NOTHING = ("--records", "none", "--files", "none")
"""Options of a server that stores nothing, so that every run of the demo makes new judgments."""

_READY = re.compile(r"ready at (\S+)")


def run_demo(url: str | None) -> None:
    """Judge `REQUESTS` and print the judgments.

    Args:
        url: URL of the server; None: start a server for the demo.

    Raises:
        ServerUnavailable: the server does not start or does not respond.
    """
    console = Console(highlight=False)
    if url is not None:
        asyncio.run(_show_judgments(url, console=console))
        console.print(f"To judge your own texts, open {url.rstrip('/')}/ in a browser.")
        return
    console.print("Starting a server with the bundled judge ...")
    started = perf_counter()
    with started_server() as own_url:
        console.print(f"The server was ready after {perf_counter() - started:.1f} s, at {own_url}.")
        asyncio.run(_show_judgments(own_url, console=console))
    console.print("To judge your own texts, run `tirjudge serve` and open the link of the playground in a browser.")


@contextmanager
def started_server(*arguments: str) -> Iterator[str]:
    """Run `tirjudge serve` on a free port for the length of the block; yield its URL once it is ready.

    Args:
        arguments: more arguments for `tirjudge serve`.

    Raises:
        ServerUnavailable: the server ended before it was ready. Its error message is on stderr.
    """
    command = [
        sys.executable,
        "-c",
        "from tirjudge.cli import main; main()",
        "serve",
        "--port",
        "0",
        *STORES_NOTHING,
        *arguments,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            ready = _READY.search(process.stdout.readline())
            if ready is None:
                raise ServerUnavailable(f"tirjudge serve ended with status {process.wait()} before it was ready")
            yield ready[1]
        finally:
            process.terminate()


async def _show_judgments(url: str, *, console: Console) -> None:
    async with AsyncClient(url) as client:
        for request in REQUESTS:
            show_request(request, console=console)
            show_judgment(await client.judge(request), console=console)


def show_request(request: JudgeRequest, *, console: Console) -> None:
    """Print the prompt and the responses."""
    console.rule(f"[bold]{request.mode}")
    console.print(Text.assemble(("Prompt  ", "bold"), prompt_text(request.prompt)))
    for index, response in enumerate(request.responses):
        console.print(Text.assemble((f"{label_of(index)}  ", "bold"), response))


def show_judgment(judgment: Judgment, *, console: Console) -> None:
    """Print each turn of the model, its programs and their output, and the verdict."""
    for rollout in judgment.rollouts:
        if len(rollout.order) > 1:
            console.print(Text(shown_as(rollout.order), style="dim"))
        _show_rollout(rollout, console=console)
    console.print(verdict_line(judgment), style="bold green")
    console.print()


def shown_as(order: Sequence[int]) -> str:
    """A sentence with the letter of each response in a rollout's prompt. Programs and their output use these letters."""
    names = (f"{label_of(index)} as {label_of(place)}" for place, index in enumerate(order))
    return f"The order is drawn from the content: the judge sees {', '.join(names)}."


def _show_rollout(rollout: RolloutRecord, *, console: Console) -> None:
    for turn in rollout.turns:
        reasoning = turn.text.partition("```python")[0].strip()
        if reasoning:
            console.print(Text(reasoning, style="italic"))
        if turn.code:
            console.print(Panel(Syntax(turn.code.rstrip(), "python"), title="program", title_align="left"))
        if turn.output is not None:
            console.print(Panel(Text(turn.output), title=f"output ({turn.outcome})", title_align="left"))


def verdict_line(judgment: Judgment) -> str:
    """The verdict as a sentence, with the letters of the request."""
    verdict = judgment.verdict
    took = f"in {judgment.timing.total_s:.2f} s, {counted(judgment.usage.tool_calls, 'program')} run"
    if verdict.status == "abstained":
        return f"No verdict ({verdict.reason}), {took}."
    forced = ", forced" if verdict.forced else ""
    if judgment.mode is Mode.POINTWISE:
        scores = ", ".join("-" if score is None else f"{score:.1f}" for score in verdict.scores or [])
        return f"Score {scores} of 10{forced}, {took}."
    probabilities = ", ".join(f"{label_of(index)} {p:.3f}" for index, p in enumerate(verdict.probabilities or []))
    if verdict.status == "tie":
        return f"A tie ({verdict.reason}): {probabilities}{forced}, {took}."
    return f"{verdict.label} is best: {probabilities}{forced}, {took}."
