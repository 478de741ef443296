"""`tirjudge show`: print the items of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tirjudge_harness.options import AsJson


def show(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or an output file of `tirjudge judge`.")],
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
    from tirjudge_harness.showing.printing import print_item

    wanted = ItemFilter(wrong=wrong, forced=forced, flipped=flipped, ids=tuple(id or ()), subset=subset)
    found = wanted.of(read_items(run, data=data, with_texts=texts), source=run)
    shown = found[:limit]
    if json:
        typer.echo(dumps([one.as_json() for one in shown]))
    else:
        console = Console()
        for one in shown:
            print_item(one, console=console, full=full)
    if len(found) > len(shown):
        typer.echo(f"{len(shown)} of {len(found)} items; --limit shows more", err=True)
    elif not found:
        typer.echo("no item meets the conditions", err=True)
    elif texts and all(one.responses is None for one in shown):
        typer.echo(
            "prompts and responses are not stored in the run; give the file that was judged with --data", err=True
        )
