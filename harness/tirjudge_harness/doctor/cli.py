"""`tirjudge doctor`. Heavy modules are imported inside the command, so that `tirjudge --help` stays fast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tirjudge_harness.options import BUNDLED_MODEL, AsJson, Concurrency, ModelOptions, asking_a_judge


@asking_a_judge
def doctor(
    model_options: ModelOptions = BUNDLED_MODEL,
    items: Annotated[
        int | None, typer.Option(min=1, help="Number of items, for a quick look. Default: all 60.")
    ] = None,
    concurrency: Concurrency = 8,
    out: Annotated[Path | None, typer.Option(help="JSON file to write, with all findings.")] = None,
    json: AsJson = False,
) -> None:
    """Examine a model, and say what it can be used for.

    The page shows template, special tokens, label mass, stop strings, context, prefix cache and speed. Then the model
    judges the 60 items of the benchmark `selfcheck` with tools, without tools, and with the outputs of its programs
    removed. A format of another judge (--format) and a scalar reward model (--judge classify:URL) are checked first,
    and judge the items without tools. The exit status is 1 if the model is broken: label mass below 0.9, format errors
    above 10 %, a stop string that never worked, or a failed check. It is 2 if the model cannot be opened or reached.

    Examples:
        tirjudge doctor --engine http://gpu-1:8000
        tirjudge doctor --chat-url http://127.0.0.1:11434 --chat-model qwen3:8b
        tirjudge doctor --model checkpoints/mine --items 12
    """
    typer.echo("Opening the model", err=True)
    import asyncio
    from json import dumps

    from rich.console import Console

    from tirjudge.formats import format_named
    from tirjudge.opening import given_tools
    from tirjudge_harness.doctor.checkup import examine
    from tirjudge_harness.doctor.page import print_page
    from tirjudge_harness.items import as_input_error
    from tirjudge_harness.judges import open_chosen_model
    from tirjudge_harness.run_store import write_output

    console = Console(stderr=True)
    takes_tools = True
    if model_options.format is not None:
        with as_input_error():
            takes_tools = format_named(model_options.format).traits.takes_tools
    opening = open_chosen_model(model_options, tools=given_tools(model_options.tool) if takes_tools else ())
    try:
        checkup = asyncio.run(examine(opening, num_items=items, concurrency=concurrency, console=console))
    except KeyboardInterrupt:
        console.print("Stopped. Nothing was saved.")
        raise typer.Exit(130) from None
    found = dumps(checkup.as_json(), indent=2)
    if out is not None:
        with as_input_error(out):
            write_output(out, found + "\n")
    if json:
        typer.echo(found)
    else:
        print_page(checkup, console=Console())
    if checkup.conclusion.broken:
        raise typer.Exit(1)
