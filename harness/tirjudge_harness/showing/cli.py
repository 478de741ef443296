"""`tirjudge show`: print the items of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tirjudge_harness.options import ApiKey, AsJson


def show(
    run: Annotated[
        str,
        typer.Argument(
            help="Folder of a run, an output file of `tirjudge judge`, a file with one judgment, or the id of a judgment "
            "that a server has on record."
        ),
    ],
    wrong: Annotated[bool, typer.Option("--wrong", help="Only items with a wrong comparison.")] = False,
    forced: Annotated[bool, typer.Option("--forced", help="Only items with a forced verdict.")] = False,
    flipped: Annotated[
        bool, typer.Option("--flipped", help="Only items whose two orders lead to different responses.")
    ] = False,
    id: Annotated[list[str] | None, typer.Option("--id", help="Only the item with this id; repeatable.")] = None,
    subset: Annotated[str | None, typer.Option(help="Only items of this subset.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of items.")] = 10,
    data: Annotated[
        Path | None,
        typer.Option(help="Rows of the run, or input of `tirjudge judge`. Default: the data that the run was given."),
    ] = None,
    texts: Annotated[bool, typer.Option(help="Read prompts and responses from the data.")] = True,
    full: Annotated[bool, typer.Option("--full", help="Print long texts whole.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write self-contained HTML pages: FILE, or FILE-1, FILE-2, ... for several judgments.",
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url", envvar="TIRJUDGE_URL", help="URL of the server of an id. Default: http://127.0.0.1:8400."
        ),
    ] = None,
    api_key: ApiKey = None,
    json: AsJson = False,
) -> None:
    """Print items of a run: prompt, responses, programs, outputs, verdict and label.

    Conditions are combined: an item must meet all of them. The folder of a run does not contain prompts and responses; they
    are read from --data, or from the data that the run was given. Control characters of the texts are shown as escapes.

    Examples:
        tirjudge show runs/mine --wrong
        tirjudge show runs/mine --id q17 --full
    """
    from json import dumps

    from rich.console import Console

    from tirjudge_harness.showing.items import ItemFilter, read_items
    from tirjudge_harness.showing.page import write_pages
    from tirjudge_harness.showing.printing import print_item
    from tirjudge_harness.showing.records import ID_PREFIX, fetch_item, read_single

    wanted = ItemFilter(wrong=wrong, forced=forced, flipped=flipped, ids=tuple(id or ()), subset=subset)
    path = Path(run)
    if run.startswith(ID_PREFIX) and not path.exists():
        items = [fetch_item(run, url=url, api_key=api_key)]
    else:
        single = read_single(path) if path.is_file() else None
        items = read_items(path, data=data, with_texts=texts) if single is None else [single]
    found = wanted.of(items, source=path)
    shown = found[:limit]
    if output is not None and shown:
        for written in write_pages(shown, output):
            typer.echo(written)
    elif json:
        typer.echo(dumps([one.as_json() for one in shown]))
    else:
        console = Console()
        for one in shown:
            print_item(one, console=console, full=full)
    if len(found) > len(shown):
        typer.echo(f"{len(shown)} of {len(found)} items; --limit shows more", err=True)
    elif not found:
        typer.echo(f"no item meets the conditions{wanted.scored_of(items, source=path)}", err=True)
    elif texts and all(one.responses is None for one in shown):
        typer.echo(
            "prompts and responses are not stored in the run; give the file that was judged with --data", err=True
        )
