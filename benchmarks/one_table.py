"""One table of five judges on the same rows: the bundled judge, a chat endpoint, a scalar reward model, and two formats of
other judges.

    python -m benchmarks.one_table --judgebench judgebench.jsonl --own mine.csv --limit 50

The chat endpoint is a `tirjudge serve` of its own with the bundled judge, which gets the prompts of MT-Bench. The scalar
model is a sequence classifier with random weights, so its accuracy means nothing. The formats are driven by a scripted engine
that prefers the longer answer, so these rows show how verdicts are read, not the quality of a judge. The runs resume
from `--runs`.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from transformers import Qwen3Config, Qwen3ForSequenceClassification

from benchmarks.reporting import Out, report
from tirjudge.engines.checkpoint import read_json
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge.model import bundled_checkpoint
from tirjudge.profile import Profile
from tirjudge_harness.bench_run import RunContext, RunData, load, load_own_data, run_data
from tirjudge_harness.benchmark import BENCHMARKS
from tirjudge_harness.judges import OpenJudge
from tirjudge_harness.options import JudgeOptions, Tools
from tirjudge_harness.own_data.mapping import GivenColumns
from tirjudge_harness.planning import RunSettings
from tirjudge_harness.protocols import PAPER
from tirjudge_harness.reports.formats import print_table
from tirjudge_harness.reports.scored import score_run
from tirjudge_harness.reports.tables import Column, ReportTable, percent_of, row
from tirjudge_server.demo import started_server

FORMATS = {
    "mt-bench-pair": ("[The Start of Assistant A's Answer]", "[The Start of Assistant B's Answer]", "[[A]]", "[[B]]"),
    "arena-hard": (
        "<|The Start of Assistant A's Answer|>",
        "<|The Start of Assistant B's Answer|>",
        "[[A>B]]",
        "[[B>A]]",
    ),
}
"""Format -> the starts of both answers in its prompt, and the verdicts of the script."""

NUM_OWN = 40
"""Number of rows of the generated CSV."""


def longer_first(format: str) -> ScriptedEngine:
    """Return an engine that prefers the longer answer of a prompt in this format."""
    first, second, prefers_first, prefers_second = FORMATS[format]

    def written(sequence: str) -> str:
        start, middle = sequence.rindex(first), sequence.rindex(second)
        is_first = middle - start > len(sequence) - middle
        return f"The longer answer is better. {prefers_first if is_first else prefers_second}"

    return ScriptedEngine(written)


@asynccontextmanager
async def scripted(format: str) -> AsyncIterator[OpenJudge]:
    """Open the scripted judge of a format."""
    judge = Judge(engine=longer_first(format), profile=Profile(name=f"longer/{format}", format=format))
    yield OpenJudge(
        judge=judge.judge,
        kind="scripted",
        url=None,
        model=judge.profile.name,
        fingerprint=None,
        local=judge,
        format=format,
    )


def write_scalar_model(folder: Path) -> Path:
    """Write a small sequence classifier with random weights and the tokenizer of the bundled judge."""
    checkpoint = bundled_checkpoint()
    torch.manual_seed(0)
    sizes = read_json(checkpoint / "config.json")
    config = Qwen3Config(**(sizes | {"num_labels": 1, "pad_token_id": sizes["eos_token_id"]}))
    Qwen3ForSequenceClassification(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(checkpoint / name, folder / name)
    return folder


def write_own_rows(path: Path) -> Path:
    """Write a CSV of pairs as people keep them: one answer of each pair has at most five words, as asked."""
    rng = random.Random(0)
    words = ["rain", "falls", "on", "the", "old", "quiet", "town", "and", "people", "see", "it", "there", "today"]
    lines = ["question,chosen,rejected"]
    for number in range(NUM_OWN):
        short, long = (" ".join(rng.sample(words, count)).capitalize() + "." for count in (5, 9))
        lines.append(f"Write sentence {number} about rain. Use at most 5 words.,{short},{long}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def judges_of(url: str, *, scalar: Path) -> dict[str, AbstractAsyncContextManager[OpenJudge]]:
    """Return the judges by their names in the table."""
    chat = JudgeOptions(chat_url=f"{url}/v1", chat_model="tirjudge-tiny", format="mt-bench-pair")
    return {
        "bundled judge": JudgeOptions().opened(tools=Tools.AUTO),
        "chat endpoint (bundled judge), format mt-bench-pair": chat.opened(tools=Tools.AUTO),
        "scalar model, random weights": JudgeOptions(judge=f"sequence:{scalar}").opened(tools=Tools.OFF),
        **{f"longer answer, format {format}": scripted(format) for format in FORMATS},
    }


async def run_all(
    judges: dict[str, AbstractAsyncContextManager[OpenJudge]], data: dict[str, RunData], *, runs: Path, limit: int
) -> dict[tuple[str, str], Path]:
    """Judge all rows with all judges. Return the folder of each run."""
    folders: dict[tuple[str, str], Path] = {}
    for number, (name, opening) in enumerate(judges.items()):
        async with opening as opened:
            writes_code = opened.local is not None and bool(opened.local.tools)
            context = RunContext(opened=opened, concurrency=8, console=Console(stderr=True))
            for title, rows in data.items():
                settings = RunSettings(protocol=PAPER, tools="auto" if writes_code else "off", limit=limit)
                folders[name, title] = runs / f"{title}-{number}"
                await run_data(rows, out=folders[name, title], settings=settings, context=context)
    return folders


def main(
    judgebench: Annotated[Path, typer.Option(help="JSONL of JudgeBench, in the columns of the hub.")],
    own: Annotated[Path | None, typer.Option(help="File of your own rows. Default: a generated CSV.")] = None,
    limit: Annotated[int, typer.Option(help="Rows of each file.")] = 50,
    runs: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs/one-table"),
    out: Out = None,
) -> None:
    """Judge, and print the table."""
    console = Console(stderr=True)
    runs.mkdir(parents=True, exist_ok=True)
    scalar = write_scalar_model(runs / "scalar-model")
    own = own or write_own_rows(runs / "own.csv")
    data = {
        "judgebench": load(BENCHMARKS["judgebench"], data=judgebench, console=console),
        "own": load_own_data(own, parts=(), given=GivenColumns(), max_error_rate=None, console=console),
    }
    with started_server() as url:
        judges = judges_of(url, scalar=scalar)
        folders = asyncio.run(run_all(judges, data, runs=runs, limit=limit))
    figures = {place: score_run(folder).figures[0] for place, folder in folders.items()}
    columns = tuple(Column(key=title, title=title) for title in data)
    rows = tuple(row(name, *(percent_of(figures[name, title]) for title in data)) for name in judges)
    table = ReportTable(title="Judges", columns=(Column(key="judge", title="Judge", kind="text"), *columns), rows=rows)
    print_table(table, console=Console())
    measured = [
        {
            "judge": name,
            "data": title,
            "figure": one.name,
            "value": one.value,
            "interval": one.interval,
            "pairs": one.num_marks,
        }
        for (name, title), one in figures.items()
    ]
    report({"limit": limit, "figures": measured}, out)


if __name__ == "__main__":
    typer.run(main)
