"""`tirjudge train calibrate`: fits the temperature of a checkpoint's label probabilities on held-out items."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer
from rich.console import Console

from tirjudge.errors import TirjudgeError
from tirjudge_training.bundled.measuring.progress import progress_of

CALIBRATION_SEED = 8
"""Seed of the items. Measurements have another one, so their items are others."""

NUM_ITEMS = 400
"""Default number of pairs."""

MIN_SHARPNESS, MAX_SHARPNESS, NUM_STEPS = 0.05, 4.0, 60
"""Range of 1 / temperature, and number of steps of the search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedTemperature:
    """A fitted temperature and its effect on the items that it was fitted on."""

    temperature: float
    num_items: int
    loss_before: float
    """Mean negative log-likelihood of the right label at temperature 1, in nats."""
    loss_after: float
    """The same at the fitted temperature."""


def fitted_temperature(items: Sequence[tuple[Sequence[float], int]]) -> FittedTemperature:
    """Return the temperature that makes the right labels most likely.

    Source: Guo et al., "On Calibration of Modern Neural Networks" (arXiv 1706.04599), section 4.2. The loss is convex in
    1 / temperature, so a ternary search finds its minimum.

    Args:
        items: probabilities of all labels at temperature 1, and the index of the right label, of each item.

    Raises:
        ValueError: there are no items.
    """
    if not items:
        raise ValueError("no item has probabilities: nothing to fit the temperature on")
    logs = [([math.log(max(chance, 1e-12)) for chance in chances], right) for chances, right in items]

    def loss(sharpness: float) -> float:
        def of_item(logprobs: Sequence[float], right: int) -> float:
            top = max(logprobs)
            return math.log(sum(math.exp(sharpness * (one - top)) for one in logprobs)) - sharpness * (
                logprobs[right] - top
            )

        return fmean(of_item(logprobs, right) for logprobs, right in logs)

    low, high = MIN_SHARPNESS, MAX_SHARPNESS
    for _ in range(NUM_STEPS):
        third = (high - low) / 3
        if loss(low + third) < loss(high - third):
            high -= third
        else:
            low += third
    best = (low + high) / 2
    return FittedTemperature(
        temperature=round(1 / best, 3), num_items=len(items), loss_before=loss(1.0), loss_after=loss(best)
    )


async def _chances(checkpoint: Path, *, num_items: int, on_item: Callable[[], None]) -> list[tuple[list[float], int]]:
    """Judge pairs of the held-out writer. Return the probabilities of both responses at temperature 1, and the right one."""
    from tirjudge.engines.embedded import EmbeddedEngine
    from tirjudge.judge import Judge
    from tirjudge.profile import load_profile
    from tirjudge.tools.python import PythonTool
    from tirjudge_sandbox import SandboxPool
    from tirjudge_training.bundled.measuring.items import composed_items
    from tirjudge_training.bundled.measuring.judging import judged_chances

    engine = EmbeddedEngine.load(checkpoint)
    try:
        async with SandboxPool() as pool:
            profile = load_profile(checkpoint).model_copy(update={"label_temperature": 1.0})
            judge = Judge(engine=engine, tools=[PythonTool(pool)], profile=profile)
            items = list(composed_items(seed=CALIBRATION_SEED, num_items=num_items))
            return await judged_chances(judge, items, on_item=on_item)
    finally:
        engine.close()


def calibrate_checkpoint(checkpoint: Path, *, num_items: int, console: Console) -> FittedTemperature:
    """Fit the temperature of a checkpoint and write it into its judge.json.

    Raises:
        ValueError: no item has probabilities.
        CheckpointError: the checkpoint cannot be loaded.
    """
    from tirjudge.durable import write_file
    from tirjudge.profile import read_checkpoint_file

    moved, done = progress_of(console), 0

    def judged() -> None:
        nonlocal done
        done += 1
        moved("calibration", done, num_items)

    file = read_checkpoint_file(checkpoint)
    moved("calibration", 0, num_items)
    fitted = fitted_temperature(asyncio.run(_chances(checkpoint, num_items=num_items, on_item=judged)))
    file = file.model_copy(update={"label_temperature": fitted.temperature})
    write_file(checkpoint / "judge.json", file.model_dump_json(indent=1, exclude_none=True) + "\n", closed=False)
    return fitted


def calibrate(
    checkpoint: Annotated[Path, typer.Argument(help="Checkpoint folder.")],
    items: Annotated[int, typer.Option(min=20, help="Number of held-out pairs.")] = NUM_ITEMS,
    json_output: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Fit the temperature of a checkpoint's label probabilities, and write it into its judge.json.

    The items are pairs of the held-out writer. `tirjudge train measure` draws different ones.

    Examples:
        tirjudge train calibrate checkpoints/tiny
        tirjudge train calibrate checkpoints/tiny --items 1000 --json
    """
    try:
        fitted = calibrate_checkpoint(checkpoint, num_items=items, console=Console(stderr=True))
    except (ValueError, TirjudgeError, OSError) as error:
        typer.echo(" ".join(f"tirjudge train calibrate: {error}".split()), err=True)
        raise typer.Exit(2 if isinstance(error, ValueError) else 1) from None
    if json_output:
        print(json.dumps(asdict(fitted)))
        return
    print(
        f"label_temperature {fitted.temperature} in {checkpoint / 'judge.json'}: loss of {fitted.num_items} pairs "
        f"{fitted.loss_before:.4f} before, {fitted.loss_after:.4f} after"
    )
