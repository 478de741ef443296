"""`tirjudge bench report --html`: score runs and write their pages to a folder."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import typer
from rich.console import Console
from rich.progress import Progress

from tirjudge.prices import Prices
from tirjudge_harness.items import InputError
from tirjudge_harness.reports.pages.indexing import index_run
from tirjudge_harness.reports.pages.site import write_site
from tirjudge_harness.reports.scored import run_folders


def export_pages(
    folders: Sequence[Path],
    *,
    out: Path,
    protocol: str | None,
    prices: Prices,
    data: Path | None,
    with_texts: bool,
) -> None:
    """Write the pages of runs, with a progress bar, and print the first page. The folders of the runs are only read.

    Args:
        folders: folders of runs, or folders that contain such folders.
        out: folder to write to.
        protocol, prices, data, with_texts: as for `index_run`.

    Raises:
        InputError: as `index_run` and `write_site`; or `out` has the name of a file.
    """
    if out.suffix.lower() in (".html", ".htm"):
        raise InputError(f"--html: {out} is the name of a file; give a folder, in which index.html is the report")
    found = run_folders(folders)
    with ExitStack() as stack:
        temporary = Path(stack.enter_context(TemporaryDirectory()))
        progress = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
        indexes = []
        for number, folder in enumerate(found):
            reading = progress.add_task(f"reading {folder}", total=None)
            path = temporary / f"{number}.db"
            options = {"data": data, "with_texts": with_texts, "protocol": protocol, "prices": prices}
            indexes.append(index_run(folder, path=path, **options))
            progress.remove_task(reading)
        writing = progress.add_task("writing pages", total=None)

        def on_page(done: int, total: int) -> None:
            progress.update(writing, completed=done, total=total)

        write_site(indexes, names=[str(folder) for folder in found], out=out, protocol=protocol, on_page=on_page)
    typer.echo(str(out / "index.html"))
