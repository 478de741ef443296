"""`tirjudge train data`: builds training data from public data sets."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from tirjudge.counted import counted
from tirjudge.errors import TirjudgeError
from tirjudge.types import Mode
from tirjudge_training.data.quality import MAX_CHARS

if TYPE_CHECKING:
    from tirjudge_training.data.build import Wanted
    from tirjudge_training.data.collecting import Screen
    from tirjudge_training.data.manifest import MixtureManifest, SourceManifest
    from tirjudge_training.data.sources import Source

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Build training data from public data sets.")

_Local = Annotated[
    Path | None,
    typer.Option(help="Folder with the rows, one file or folder per source. Default: the Hugging Face hub."),
]
_Sources = Annotated[str, typer.Option(help="Names of sources, separated by commas. Default: all ten.")]
_Only = Annotated[str, typer.Option(help="Tasks, separated by commas, such as math,code. Default: all.")]
_Commercial = Annotated[
    bool, typer.Option("--commercial", help="Exclude sources whose license forbids commercial use.")
]
_Scale = Annotated[float, typer.Option(help="Share of the paper's counts.")]
_Seed = Annotated[int, typer.Option(help="Seed of rows, candidates, positions, orders and the held-out split.")]
_Benchmarks = Annotated[
    str, typer.Option(help="Installed benchmarks whose prompts are excluded: names, `all` or `none`.")
]
_BenchmarkRows = Annotated[
    Path | None,
    typer.Option(help="Folder with the rows of the benchmarks, NAME/PART.jsonl. Default: the Hugging Face hub."),
]
_Against = Annotated[
    list[Path] | None,
    typer.Option(help="File or folder of files with more prompts to exclude: .jsonl, .parquet, .txt; repeatable."),
]
_Boilerplate = Annotated[Path | None, typer.Option(help="File of texts whose eight-word grams are ignored.")]
_WithResponses = Annotated[
    bool, typer.Option("--responses", help="Compare responses with the benchmarks too, not only prompts.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def data() -> None:
    """Build training data from public data sets."""


@app.command()
def build(
    out: Annotated[Path, typer.Option(help="Output folder. Finished sources of an earlier run are kept.")],
    local: _Local = None,
    sources: _Sources = "",
    only: _Only = "",
    commercial: _Commercial = False,
    candidates: Annotated[
        Path | None, typer.Option(help="File or folder of sampled answers, written by `tirjudge train pairs`.")
    ] = None,
    benchmarks: _Benchmarks = "all",
    benchmark_rows: _BenchmarkRows = None,
    against: _Against = None,
    boilerplate: _Boilerplate = None,
    responses: _WithResponses = False,
    scale: _Scale = 1.0,
    seed: _Seed = 0,
    max_chars: Annotated[
        int, typer.Option(help="Maximum length of a prompt with its responses, in characters.")
    ] = MAX_CHARS,
    slots: Annotated[
        int | None, typer.Option(help="Maximum number of concurrent programs. Default: one per core.")
    ] = None,
    json_output: _Json = False,
) -> None:
    """Build train.parquet, validation.parquet and manifest.json.

    Examples:
        tirjudge train data build --out data
    """
    from tirjudge_training.data.build import build as build_folder
    from tirjudge_training.data.problems import read_candidates

    with _errors():
        wanted = _wanted(sources, only=only, commercial=commercial, scale=scale, seed=seed, max_chars=max_chars)
        screen = _screen(
            benchmarks, rows=benchmark_rows, against=against or [], boilerplate=boilerplate, responses=responses
        )
        answered = read_candidates(candidates) if candidates is not None else {}
        with _bars() as on_progress:
            made = build_folder(
                wanted, out=out, local=local, screen=screen, candidates=answered, slots=slots, on_progress=on_progress
            )
            manifest = asyncio.run(made)
    if json_output:
        print(manifest.model_dump_json(indent=1))
        return
    _print_manifest(manifest, out=out)


@app.command()
def problems(
    out: Annotated[Path, typer.Option(help="Output file, .jsonl or .jsonl.gz, for `tirjudge train pairs --problems`.")],
    local: _Local = None,
    sources: _Sources = "",
    only: _Only = "",
    commercial: _Commercial = False,
    benchmarks: _Benchmarks = "all",
    benchmark_rows: _BenchmarkRows = None,
    against: _Against = None,
    boilerplate: _Boilerplate = None,
    spare: Annotated[float, typer.Option(help="Number of problems per requested item.")] = 2.0,
    scale: _Scale = 1.0,
    seed: _Seed = 0,
    json_output: _Json = False,
) -> None:
    """Write the problems whose answers must be sampled, without those of benchmarks.

    Examples:
        tirjudge train data problems --out problems.jsonl
    """
    from tirjudge_training.data.build import open_problems
    from tirjudge_training.data.problems import write_problems

    with _errors():
        wanted = _wanted(sources, only=only, commercial=commercial, scale=scale, seed=seed)
        screen = _screen(
            benchmarks, rows=benchmark_rows, against=against or [], boilerplate=boilerplate, responses=False
        )
        found = open_problems(wanted, local=local, screen=screen, spare=spare)
        if not out.name.endswith((".jsonl", ".jsonl.gz")):
            raise ValueError(f"--out: {out} given; give a .jsonl or .jsonl.gz file")
        write_problems([problem for of_source in found.values() for problem in of_source], out)
    counts = {name: len(of_source) for name, of_source in found.items()}
    if json_output:
        print(json.dumps(counts, indent=1))
        return
    console = Console(highlight=False, soft_wrap=True)
    for name, count in counts.items():
        console.print(f"{name:14} {count:6} problems")
    console.print(f"{sum(counts.values())} problems: {out}")


@app.command(name="sources")
def list_sources(json_output: _Json = False) -> None:
    """List the data sets of the mixture.

    Examples:
        tirjudge train data sources
    """
    from tirjudge_training.data.sources import SOURCES

    if json_output:
        print(json.dumps([_source_row(source) for source in SOURCES.values()], indent=1))
        return
    console = Console(highlight=False, soft_wrap=True)
    for source in SOURCES.values():
        marks = ("" if source.commercial else ", non-commercial") + ("" if source.confirmed else ", unconfirmed")
        counts = " / ".join(str(source.wanted[mode]) for mode in (Mode.POINTWISE, Mode.PAIRWISE, Mode.LISTWISE))
        console.print(f"{source.name:14} {source.task:13} {counts:18} {source.licence}{marks}", markup=False)
        console.print(f"{'':14} {', '.join(part.hub for part in source.parts)}: {source.rule}", markup=False)


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(help="Output folder of `build`.")],
    benchmarks: _Benchmarks = "all",
    benchmark_rows: _BenchmarkRows = None,
    against: _Against = None,
    boilerplate: _Boilerplate = None,
    responses: _WithResponses = False,
    json_output: _Json = False,
) -> None:
    """Verify counts and hashes, and screen the items again. Exit status 1 if there are problems.

    Examples:
        tirjudge train data check data
    """
    from tirjudge_training.data.inspection import inspect_folder
    from tirjudge_training.data.manifest import read_manifest

    with _errors():
        read_manifest(folder)  # fail early, before benchmarks are downloaded
        screen = _screen(
            benchmarks, rows=benchmark_rows, against=against or [], boilerplate=boilerplate, responses=responses
        )
        found = inspect_folder(folder, screen=screen)
    if json_output:
        print(json.dumps(asdict(found), indent=1))
    else:
        console = Console(highlight=False, soft_wrap=True)
        for name, num_items in found.num_items.items():
            console.print(f"{name}: {counted(num_items, 'item')}")
        for problem in found.problems:
            console.print(f"[red]{problem}[/red]" if console.is_terminal else problem, markup=console.is_terminal)
        if not found.problems:
            console.print("no problems found: counts, hashes and screening are correct")
    if found.problems:
        raise typer.Exit(1)


# ------------------------------------------------------------------------------------------------------------------------


def _wanted(
    sources: str, *, only: str, commercial: bool, scale: float, seed: int, max_chars: int = MAX_CHARS
) -> Wanted:
    from tirjudge_training.data.build import Wanted
    from tirjudge_training.data.mixture import chosen_sources

    wanted = Wanted(
        sources=_names(sources), only=_names(only), commercial=commercial, scale=scale, seed=seed, max_chars=max_chars
    )
    for source in chosen_sources(wanted.sources, only=wanted.only, commercial=commercial):
        if commercial and not source.confirmed:
            _say(f"{source.name}: its license was not checked; see https://huggingface.co/datasets/"
                 f"{source.parts[0].hub}")  # fmt: skip
    return wanted


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _screen(
    benchmarks: str, *, rows: Path | None, against: list[Path], boilerplate: Path | None, responses: bool
) -> Screen:
    """Build the index of all prompts to exclude."""
    from tirjudge_training.data.benchmark_prompts import chosen, prompts_in, prompts_of
    from tirjudge_training.data.collecting import Screen
    from tirjudge_training.data.decontamination import index_of

    prompts = {benchmark.name: prompts_of(benchmark, rows=rows) for benchmark in chosen(_names(benchmarks))}
    for path in against:
        files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
        for file in files:
            name = file.name.split(".")[0]
            prompts[name] = [*prompts.get(name, ()), *prompts_in(file)]
    if not prompts:
        _say("no benchmark given; rows are not screened")
    index = index_of(prompts)
    ignored = [] if boilerplate is None else boilerplate.read_text(encoding="utf-8").splitlines()
    return Screen(index=index, boilerplate=index.grams_of(ignored), with_responses=responses)


@contextmanager
def _errors() -> Iterator[None]:
    """Turn errors into one line: exit status 2 for mistakes in options or files, 1 for other failures."""
    try:
        yield
    except ValueError as error:
        _say(str(error))
        raise typer.Exit(2) from None
    except (TirjudgeError, OSError) as error:
        _say(" ".join(str(error).split()))
        raise typer.Exit(1) from None


def _say(line: str) -> None:
    print(f"tirjudge train data: {line}", file=sys.stderr)


@contextmanager
def _bars() -> Iterator[Callable[[str, SourceManifest, bool], None]]:
    """Show a progress bar per source on a terminal. Otherwise print a line for each kept source."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:14}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[seen]}"),
    )
    with Progress(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal) as bars:
        tasks: dict[str, Any] = {}

        def on_progress(source: str, found: SourceManifest, was_kept: bool) -> None:
            if source not in tasks:
                tasks[source] = bars.add_task(source, total=sum(found.wanted.values()), seen="")
            num_made = sum(found.made.values())
            seen = "kept" if was_kept else f"of {found.num_seen:,} of {found.num_rows:,} rows"
            bars.update(tasks[source], completed=num_made, seen=seen)
            if not console.is_terminal and was_kept:
                _say(f"{source}: kept, {counted(num_made, 'item')}")

        yield on_progress


def _print_manifest(manifest: MixtureManifest, *, out: Path) -> None:
    from rich.table import Table

    table = Table("source", "point", "pair", "list", "rows seen", "rejected")
    for name, source in manifest.sources.items():
        cells = (
            f"{source.made.get(mode, 0)} of {source.wanted[mode]}" if mode in source.wanted else ""
            for mode in (Mode.POINTWISE, Mode.PAIRWISE, Mode.LISTWISE)
        )
        reasons = ", ".join(f"{reason} {count}" for reason, count in source.rejected.items())
        table.add_row(name, *cells, f"{source.num_seen} of {source.num_rows}", reasons)
    console = Console()
    console.print(table)
    for name, file in manifest.files.items():
        console.print(f"{out / name}: {counted(file.num_items, 'item')}", highlight=False, soft_wrap=True)
    unpinned = [name for name, source in manifest.sources.items() if not all(part.pinned for part in source.parts)]
    if unpinned:
        console.print(f"revision not pinned: {', '.join(unpinned)}", highlight=False, soft_wrap=True)


def _source_row(source: Source) -> dict[str, Any]:
    parts = []
    for part in source.parts:
        values = {name: value for name, value in asdict(part).items() if name != "read"}
        parts.append({**values, "columns": part.columns.split(), "pinned": part.is_pinned})
    return {**asdict(source), "parts": parts}
