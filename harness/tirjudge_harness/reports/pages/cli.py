"""`tirjudge bench index`: prepare runs for the pages of a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tirjudge_harness.options import Data
from tirjudge_harness.reports.cli import Folders, Texts


def index(
    folders: Folders,
    baseline: Annotated[
        Path | None, typer.Option(help="Folder of a run: compare the given run with it, and write no index.")
    ] = None,
    data: Data = None,
    texts: Texts = True,
) -> None:
    """Prepare runs for the pages of `tirjudge serve --runs`. Nothing is judged.

    The command scores each run and writes the file pages.db to its folder. The server runs this command when a page of a
    changed run is opened. For a large run, run it before. The file has the prompts and responses, unless --no-texts is given.

    Examples:
        tirjudge bench index runs/mine
        tirjudge bench index runs/new --baseline runs/old
    """
    from tirjudge_harness.items import InputError
    from tirjudge_harness.reports.pages.comparing import store_comparison
    from tirjudge_harness.reports.pages.indexing import index_run
    from tirjudge_harness.reports.scored import run_folders

    found = run_folders(folders)
    for folder in found:
        try:
            if baseline is None:
                index_run(folder, data=data, with_texts=texts)
                typer.echo(f"{folder}: indexed")
            else:
                store_comparison(baseline, folder)
                typer.echo(f"{folder}: compared with {baseline}")
        except OSError as error:
            raise InputError(f"{folder}: {error.strerror}; the folder of a run must be writable") from error
