"""`tirjudge train measure`: measures a checkpoint on the held-out writer and on rows of benchmarks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tirjudge.errors import TirjudgeError
from tirjudge_training.bundled.measuring.progress import progress_of


def measure(
    checkpoint: Annotated[Path, typer.Argument(help="Checkpoint folder.")],
    rows: Annotated[Path, typer.Option(help="Folder with rows of benchmarks, NAME.jsonl or NAME.jsonl.gz.")],
    out: Annotated[
        Path | None,
        typer.Option(help="File for the figures. Default: measured.json of the checkpoint, whose card is rewritten."),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Measure this set only; repeatable. Default: all.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of items per set.")] = None,
    items: Annotated[Path | None, typer.Option(help="File for the judged items, one line of JSON each.")] = None,
    sameness: Annotated[
        bool, typer.Option(help="Compare the checks for all ways to show the responses of a pair.")
    ] = True,
    contamination: Annotated[bool, typer.Option(help="Compare the training texts with the benchmarks.")] = True,
    beside: Annotated[
        list[str] | None,
        typer.Option(help="NAME=FILE: figures of another checkpoint, for a column of the card; repeatable."),
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Measure a checkpoint on the held-out writer's prompts and on real rows.

    Programs may call the functions of the tools `run` and `evidence`. A set whose rows are not in the folder is
    skipped. The sets of IFEval need `pip install 'lm-eval[ifeval]'`.

    Examples:
        tirjudge train measure checkpoints/tiny --rows rows --limit 100
        tirjudge train measure checkpoints/tiny --rows rows --out figures.json --only ifeval-edits --items items.jsonl
        tirjudge train measure checkpoints/tiny --rows rows --beside "first generation=first.json"
    """
    console = Console(stderr=True)
    console.print(f"measuring {checkpoint}", soft_wrap=True)
    try:
        target = out or checkpoint / "measured.json"
        figures = _measured(checkpoint, rows, out=target, only=only or [], limit=limit, items=items, sameness=sameness,
                            contamination=contamination, beside=beside or [], console=console)  # fmt: skip
        if out is None and (checkpoint / "scores.json").exists():
            from tirjudge_training.bundled.card import write_card

            write_card(checkpoint)
        elif out is None:
            console.print(f"no card: run tirjudge train evaluate {checkpoint}, which writes it", soft_wrap=True)
    except (ValueError, TirjudgeError, OSError) as error:
        typer.echo(" ".join(f"tirjudge train measure: {error}".split()), err=True)
        raise typer.Exit(2 if isinstance(error, ValueError) else 1) from None
    if json_output:
        print(json.dumps(figures, indent=1, ensure_ascii=False))
    else:
        _print(figures)
    console.print(f"figures: {target}", soft_wrap=True)


def _measured(
    checkpoint: Path,
    rows: Path,
    *,
    out: Path,
    only: list[str],
    limit: int | None,
    items: Path | None,
    sameness: bool,
    contamination: bool,
    beside: list[str],
    console: Console,
) -> dict[str, Any]:
    from tirjudge_training.bundled.measuring.report import MeasurementPlan, figures_beside, measure_checkpoint_on_rows
    from tirjudge_training.bundled.measuring.sets import sets_named

    if not rows.is_dir():
        raise ValueError(f"--rows {rows}: not a folder")
    plan = MeasurementPlan(
        checkpoint=checkpoint,
        rows=rows,
        sets=sets_named(only),
        sameness=sameness,
        contamination=contamination,
        limit=limit,
        beside=[figures_beside(option) for option in beside],
    )
    return measure_checkpoint_on_rows(plan, on_item=progress_of(console), out=out, items_file=items)


def _print(figures: dict[str, Any]) -> None:
    table = Table("set", "items", "accuracy", "checked", "right if checked", "ECE", "sure if unchecked", "targets")
    for one in figures["sets"]:
        missed = [name for name, target in one["targets"].items() if target["reached"] is False]
        table.add_row(
            one["name"],
            str(one["num_items"]),
            _percent(one["accuracy"]),
            _percent(one["share_checked"]),
            _percent(one["accuracy_checked"]),
            "-" if one["ece"] is None else f"{one['ece']:.3f}",
            _percent(one["share_sure"]),
            f"missed: {', '.join(missed)}" if missed else "reached",
        )
    Console().print(table)
    if figures["skipped"]:
        Console().print(f"skipped, because the folder has no such rows: {', '.join(figures['skipped'])}")


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
