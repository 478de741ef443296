"""`tirjudge train pairs`: synthetic preference items from problems with verifiable answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tirjudge.counted import counted
from tirjudge.errors import EngineUnavailable, TirjudgeError
from tirjudge.types import MODEL_MODES, Mode
from tirjudge_training.data.problems import TrainingProblem, read_problems
from tirjudge_training.pairs.endpoint import Endpoint
from tirjudge_training.pairs.generated import draw_problems
from tirjudge_training.pairs.making import Made, make_pairs
from tirjudge_training.pairs.sampling import AnswerPlan


def pairs(
    endpoint: Annotated[str, typer.Option(help="Base URL of an OpenAI-compatible chat endpoint.")],
    model: Annotated[str, typer.Option(help="Model to sample from; several are separated by commas.")],
    out: Annotated[Path, typer.Option(help="Folder for answers, items and manifest. An existing run is resumed.")],
    problems: Annotated[
        Path | None, typer.Option(help="File of problems, one JSON object per line (.jsonl, .jsonl.gz).")
    ] = None,
    generated: Annotated[
        int, typer.Option(min=0, help="Number of additional generated problems: instructions and numeric questions.")
    ] = 0,
    samples: Annotated[int, typer.Option(min=1, help="Number of answers per model and problem.")] = 2,
    temperature: Annotated[float, typer.Option(min=0.0, max=2.0, help="Sampling temperature of the answers.")] = 0.9,
    top_p: Annotated[float, typer.Option(min=0.0, max=1.0, help="Nucleus sampling threshold of the answers.")] = 0.95,
    max_tokens: Annotated[
        int, typer.Option(min=1, help="Maximum number of tokens of an answer; longer answers are not used.")
    ] = 4096,
    modes: Annotated[str, typer.Option(help="Modes of the items, separated by commas.")] = ",".join(MODEL_MODES),
    concurrency: Annotated[int, typer.Option(min=1, help="Maximum number of concurrent requests.")] = 16,
    slots: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of concurrent checking programs. Default: one per core.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of generated problems, answers, choice and order.")] = 0,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="TIRJUDGE_CHAT_API_KEY", help="API key of the endpoint. Prefer the environment variable."),
    ] = None,
) -> None:
    """Sample answers, check them, and combine right and wrong ones into pairwise, pointwise and listwise items.

    Examples:
        tirjudge train pairs --endpoint http://gpu-1:8000/v1 --model Qwen/Qwen3-8B --problems problems.jsonl --out pairs
    """
    try:
        plan = AnswerPlan(
            models=_names(model, option="--model"),
            num_samples=samples,
            temperature=temperature,
            top_p=top_p,
            max_tokens=max_tokens,
            seed=seed,
            concurrency=concurrency,
        )
        wanted = _modes(modes)
        if problems is None and not generated:
            raise ValueError("no problems given; use --problems FILE or --generated N")
        given = [*([] if problems is None else read_problems(problems)), *draw_problems(generated, seed=seed)]
        made = asyncio.run(_make(given, url=endpoint, api_key=api_key, plan=plan, out=out, modes=wanted, slots=slots))
    except KeyboardInterrupt:
        _end(f"interrupted; the answers are kept in {out}; run the same command again to resume", status=130)
    except (ValueError, TirjudgeError) as error:
        is_mistake = isinstance(error, ValueError)
        kept = f"; the answers are kept in {out}" if not is_mistake and (out / "journal").exists() else ""
        _end(f"tirjudge train pairs: {error}{kept}", status=2 if is_mistake else 1)
    else:
        _print_summary(made, out=out)


async def _make(
    problems: Sequence[TrainingProblem],
    *,
    url: str,
    api_key: str | None,
    plan: AnswerPlan,
    out: Path,
    modes: Sequence[Mode],
    slots: int | None,
) -> Made:
    try:
        opened = Endpoint(url, api_key=api_key)
    except EngineUnavailable as error:
        raise ValueError(f"--endpoint: {error}") from None
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        tasks = {name: progress.add_task(name, total=None) for name in ("answers", "checks")}
        async with opened:
            return await make_pairs(
                problems,
                endpoint=opened,
                plan=plan,
                out=out,
                modes=modes,
                slots=slots,
                on_progress=lambda stage, more, total: progress.update(tasks[stage], advance=more, total=total),
            )


def _names(text: str, *, option: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ValueError(f"{option}: {text!r} given, but at least one name is needed")
    return names


def _modes(text: str) -> tuple[Mode, ...]:
    names = _names(text, option="--modes")
    unknown = [name for name in names if name not in MODEL_MODES]
    if unknown:
        raise ValueError(f"--modes: unknown mode {unknown[0]}; valid modes are {', '.join(MODEL_MODES)}")
    return tuple(map(Mode, names))


def _print_summary(made: Made, *, out: Path) -> None:
    for name, count in made.manifest["items"].items():
        typer.echo(f"{name:32} {count:8,} items")
    for name, count in made.manifest["rejected"].items():
        typer.echo(f"{name:32} {count:8,} rejected")
    typer.echo(f"{counted(len(made.items), 'item')}: {out / 'items.parquet'}")


def _end(message: str, *, status: int) -> None:
    typer.echo(message, err=True)
    raise typer.Exit(status)
