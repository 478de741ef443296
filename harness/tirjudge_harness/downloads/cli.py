"""`tirjudge bench download`: download the rows of benchmarks, list them, and verify them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tirjudge_harness.options import Parts

if TYPE_CHECKING:
    from rich.console import Console

    from tirjudge_harness.benchmark import Benchmark
    from tirjudge_harness.downloads.snapshot import OpenSnapshot

FOLDER = Path("~/.cache/tirjudge/benchmarks")
"""Default folder of downloads."""


def download(
    benchmarks: Annotated[list[str] | None, typer.Argument(help="Names from `tirjudge bench list`.")] = None,
    out: Annotated[
        Path, typer.Option(help="Folder of the downloads, for `bench run --data`. Each benchmark gets a folder in it.")
    ] = FOLDER,
    part: Parts = None,
    listing: Annotated[bool, typer.Option("--list", help="List the downloaded parts, without a download.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare the downloaded files with their checksums, without a download.")
    ] = False,
) -> None:
    """Download the rows of benchmarks from the Hugging Face hub or from git.

    To continue a stopped download, run the same command again. The manifest of each folder records source, revision,
    license, sizes and checksums; `bench run --data` refuses a changed file. With --verify, the exit status is 1 if a file is
    missing or changed.

    Examples:
        tirjudge bench download judgebench rmbench --out data
        tirjudge bench download --out data --verify
    """
    from rich.console import Console

    from tirjudge_harness.benchmark import BENCHMARKS
    from tirjudge_harness.items import InputError, as_input_error

    console, root = Console(stderr=True), out.expanduser()
    with as_input_error():
        chosen = [BENCHMARKS.named(name) for name in dict.fromkeys(benchmarks or ())]
    if listing or verify:
        found = _downloaded(root, names=[benchmark.name for benchmark in chosen])
        if listing:
            _print_list(found)
        if verify and not _verify(found):
            raise typer.Exit(1)
        return
    if not chosen:
        raise InputError(f"give the names of benchmarks, such as {', '.join(sorted(BENCHMARKS)[:3])}; see `bench list`")
    if part and len(chosen) > 1:
        raise InputError("--part needs a single benchmark; download each benchmark separately")
    for benchmark in chosen:
        done = _download(benchmark, root=root, parts=part or (), console=console)
        size = sum(each.size for each in done.manifest.parts.values())
        typer.echo(f"{done.folder}: {', '.join(done.manifest.parts)}, {shown_size(size)}")


def shown_size(num_bytes: int) -> str:
    """Return a size in bytes, kB, MB or GB, with one decimal."""
    size, unit = float(num_bytes), "bytes"
    for larger in ("kB", "MB", "GB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{num_bytes} bytes" if unit == "bytes" else f"{size:.1f} {unit}"


def _download(benchmark: Benchmark, *, root: Path, parts: Sequence[str], console: Console) -> OpenSnapshot:
    """Download a benchmark with a bar per file on a terminal, and a line per file elsewhere.

    Raises:
        typer.Exit: Ctrl-C was pressed; status 130.
    """
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from tirjudge_harness.downloads.download import download as download_parts

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    try:
        with Progress(*columns, console=console, disable=not console.is_terminal) as progress:

            def on_file(name: str, size: int | None) -> Callable[[int], None]:
                task = progress.add_task(f"{benchmark.name}/{name}", total=size)
                if not console.is_terminal:
                    shown = "" if size is None else f", {shown_size(size)}"
                    console.print(f"{benchmark.name}/{name}{shown}", markup=False, highlight=False, soft_wrap=True)
                return lambda num: progress.update(task, completed=num)

            return download_parts(benchmark, root=root, parts=parts, on_file=on_file)
    except KeyboardInterrupt:
        console.print(f"Stopped. Run the same command again to continue {root}.", markup=False, highlight=False)
        raise typer.Exit(130) from None


def _downloaded(root: Path, *, names: Sequence[str]) -> list[OpenSnapshot]:
    """Return the downloaded folders of these benchmarks; of all if `names` is empty.

    Raises:
        InputError: a benchmark is not downloaded, or nothing is.
    """
    from tirjudge_harness.downloads.snapshot import snapshots_in
    from tirjudge_harness.items import InputError

    found = {one.manifest.benchmark: one for one in snapshots_in(root)}
    missing = [name for name in names if name not in found]
    if missing or not found:
        raise InputError(f"{root} has no download of {', '.join(missing) or 'any benchmark'}")
    return [found[name] for name in names or found]


def _print_list(found: Sequence[OpenSnapshot]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("benchmark", "part", "files", "size", "revision", "license", box=None, pad_edge=False)
    for one in found:
        for part, each in one.manifest.parts.items():
            size = shown_size(each.size) + ("" if each.complete else ", not complete")
            row = (one.manifest.benchmark, part, str(len(each.files)), size, each.revision, each.license or "unknown")
            table.add_row(*row)
    Console().print(table)


def _verify(found: Sequence[OpenSnapshot]) -> bool:
    """Print each missing or changed file, and a line per unchanged benchmark. Return whether all files are unchanged."""
    is_good = True
    for one in found:
        problems = [f"{one.folder / file.path}: {p}" for _, file in one.manifest.files() if (p := one.problem(file))]
        problems += [
            f"{one.folder}: {part}: not complete" for part, each in one.manifest.parts.items() if not each.complete
        ]
        num = sum(1 for _ in one.manifest.files())
        for line in problems or [f"{one.folder}: unchanged, {num} {'file' if num == 1 else 'files'}"]:
            typer.echo(line)
        is_good = is_good and not problems
    return is_good
