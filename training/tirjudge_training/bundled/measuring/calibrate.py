"""`tirjudge train calibrate`: fits the calibration of a checkpoint on held-out items.

The fitted probability of a label is w * s + (1 - w) / n: s is the probability of the model after temperature scaling, w the
probability of its programs to the power `program_weight` (1 without a program), n the number of labels. A verdict is
`checked` only if w is at least `checked_from`. The probabilities of all other verdicts have the weight `unchecked_weight`,
and 1 / n has the rest.

Sources: Guo et al., "On Calibration of Modern Neural Networks" (arXiv 1706.04599), section 4.2, for the temperature; Geifman
and El-Yaniv, "Selective Classification for Deep Neural Networks" (arXiv 1705.08500), for the threshold.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Self

import numpy as np
import typer
from rich.console import Console

from tirjudge.errors import TirjudgeError
from tirjudge_training.bundled.measuring.progress import progress_of

if TYPE_CHECKING:
    from tirjudge_training.bundled.measuring.judging import RawJudgment

CALIBRATION_SEED = 8
"""Seed of the items. Measurements have another one, so their items are others."""

NUM_ITEMS = 400
"""Default number of pairs."""

MIN_SHARPNESS, MAX_SHARPNESS, NUM_STEPS = 0.05, 1.0, 40
"""Range of 1 / temperature, and number of steps of the search. A temperature below 1 would make guesses more confident: the
items all have an instruction that can be checked, so they do not show what guesses are worth."""

PROGRAM_WEIGHTS = (0.125, 0.25, 0.375, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
"""Values of `program_weight` that are tried. Not 0, because a judge that reads nearly all prompts of the items as it should
may misread others, and then its programs are less probable."""

UNCHECKED_WEIGHTS = (0.1, 0.2, 0.3, 0.4)
"""Values of `unchecked_weight` that are tried. At most 0.4, which leaves a tie of checks below a confidence of 0.6 if the
model gives one of two responses 0.75: the items do not show what it is worth on prompts that no program can check."""

CHECKED_ACCURACY = 0.97
"""Accuracy that the checked verdicts of the items must reach."""

MIN_CHECKED = 20
"""Minimum number of checked verdicts on which a threshold is based."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedCalibration:
    """A fitted calibration and its effect on the items that it was fitted on."""

    label_temperature: float
    program_weight: float
    checked_from: float
    unchecked_weight: float
    num_items: int
    loss_before: float
    """Mean negative log-likelihood of the right label without calibration, in nats."""
    loss_after: float
    """The same with calibration."""
    share_checked: float
    """Share of the items whose verdict is checked."""
    accuracy_checked: float | None
    """Accuracy of these verdicts. None: there are none."""


def fitted_calibration(items: Sequence[RawJudgment]) -> FittedCalibration:
    """Return the calibration that makes the right labels most likely, and the lowest threshold from which checked verdicts
    are accurate enough (`CHECKED_ACCURACY`). If no threshold reaches that, it is the one with the highest accuracy.

    Args:
        items: judged pairs, before calibration.

    Raises:
        ValueError: there are no items.
    """
    if not items:
        raise ValueError("no item has probabilities: nothing to fit the calibration on")
    pairs = _Pairs.of(items)
    fits = [(*_fitted_temperature(pairs, program_weight=weight), weight) for weight in PROGRAM_WEIGHTS]
    _, temperature, program_weight = min(fits)
    checked_from = _threshold([item for item in items if item.is_checked], program_weight=program_weight)
    is_checked = [item.is_checked and _weight(item, program_weight=program_weight) >= checked_from for item in items]
    checked = [item for item, each in zip(items, is_checked, strict=True) if each]
    loss, unchecked_weight = min(
        (
            pairs.loss(
                temperature=temperature,
                program_weight=program_weight,
                shares=np.array([[1.0 if each else weight] for each in is_checked]),
            ),
            weight,
        )
        for weight in UNCHECKED_WEIGHTS
    )
    return FittedCalibration(
        label_temperature=temperature,
        program_weight=program_weight,
        checked_from=checked_from,
        unchecked_weight=unchecked_weight,
        num_items=len(items),
        loss_before=pairs.loss(temperature=1.0, program_weight=0.0),
        loss_after=loss,
        share_checked=len(checked) / len(items),
        accuracy_checked=fmean(item.is_right for item in checked) if checked else None,
    )


@dataclass(frozen=True, slots=True)
class _Pairs:
    """All pairs as arrays, for the losses of many calibrations."""

    logprobs: np.ndarray
    """Log-probability of each response: (pairs, responses)."""
    right: np.ndarray
    """Index of the right response: (pairs, 1)."""
    programs: np.ndarray
    """Probability of the programs, 1 without a program: (pairs, 1)."""

    @classmethod
    def of(cls, items: Sequence[RawJudgment]) -> Self:
        return cls(
            np.log(np.maximum([item.chances for item in items], 1e-12)),
            np.array([[item.right] for item in items]),
            np.array([[_weight(item, program_weight=1.0)] for item in items]),
        )

    def loss(self, *, temperature: float, program_weight: float, shares: np.ndarray | float = 1.0) -> float:
        """Return the mean negative log-likelihood of the right response after `tempered` and `mixed_with_even` of
        `tirjudge.labels`, in nats.

        Args:
            temperature: temperature of the labels.
            program_weight: exponent of the probability of the programs.
            shares: further weight of each pair: (pairs, 1).
        """
        total = np.exp(self.logprobs).sum(axis=1, keepdims=True)
        scaled = np.exp(self.logprobs / temperature)
        scaled *= total / scaled.sum(axis=1, keepdims=True)
        weight = shares * self.programs**program_weight
        mixed = weight * scaled + (1 - weight) * total / scaled.shape[1]
        return -float(np.log(np.take_along_axis(mixed, self.right, axis=1)).mean())


def _weight(item: RawJudgment, *, program_weight: float) -> float:
    return 1.0 if item.program_probability is None else item.program_probability**program_weight


def _fitted_temperature(pairs: _Pairs, *, program_weight: float) -> tuple[float, float]:
    """Return the lowest loss and its temperature, by ternary search over 1 / temperature."""

    def loss(sharpness: float) -> float:
        return pairs.loss(temperature=1 / sharpness, program_weight=program_weight)

    low, high = MIN_SHARPNESS, MAX_SHARPNESS
    for _ in range(NUM_STEPS):
        third = (high - low) / 3
        if loss(low + third) < loss(high - third):
            high -= third
        else:
            low += third
    temperature = max(1.0, round(2 / (low + high), 3))
    return loss(1 / temperature), temperature


def _threshold(checked: Sequence[RawJudgment], *, program_weight: float) -> float:
    """Return the lowest weight from which the verdicts are accurate enough."""
    weights = np.array([_weight(item, program_weight=program_weight) for item in checked])
    right = np.array([item.is_right for item in checked])
    best = (0.0, 0.0)
    for weight in np.unique(weights).tolist():
        kept = right[weights >= weight]
        if len(kept) < min(MIN_CHECKED, len(checked)):
            break
        accuracy = float(kept.mean())
        if accuracy >= CHECKED_ACCURACY:
            return math.floor(1000 * weight) / 1000
        best = max(best, (accuracy, weight))
    return math.floor(1000 * best[1]) / 1000


async def _judged(checkpoint: Path, *, num_items: int, on_item: Callable[[], None]) -> list[RawJudgment]:
    """Judge pairs of the held-out writer without calibration."""
    from tirjudge.engines.embedded import EmbeddedEngine
    from tirjudge.judge import Judge
    from tirjudge.profile import load_profile
    from tirjudge.tools.python import PythonTool
    from tirjudge_sandbox import SandboxPool
    from tirjudge_training.bundled.measuring.items import composed_items
    from tirjudge_training.bundled.measuring.judging import judged_raw
    from tirjudge_training.checkpoints import UNCALIBRATED
    from tirjudge_training.instructions.written import HELD_OUT_WRITERS, written_by

    engine = EmbeddedEngine.load(checkpoint)
    try:
        async with SandboxPool() as pool:
            raw = UNCALIBRATED | {"program_weight": 0.0}  # the probabilities of programs are read, and change nothing
            profile = load_profile(checkpoint).model_copy(update=raw)
            judge = Judge(engine=engine, tools=[PythonTool(pool)], profile=profile)
            items = list(composed_items(written_by(HELD_OUT_WRITERS), seed=CALIBRATION_SEED, num_items=num_items))
            return await judged_raw(judge, items, on_item=on_item)
    finally:
        engine.close()


def calibrate_checkpoint(checkpoint: Path, *, num_items: int, console: Console) -> FittedCalibration:
    """Fit the calibration of a checkpoint and write it into its judge.json.

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
    fitted = fitted_calibration(asyncio.run(_judged(checkpoint, num_items=num_items, on_item=judged)))
    names = ("label_temperature", "program_weight", "checked_from", "unchecked_weight")
    file = file.model_copy(update={name: getattr(fitted, name) for name in names})
    write_file(checkpoint / "judge.json", file.model_dump_json(indent=1, exclude_none=True) + "\n", closed=False)
    return fitted


def calibrate(
    checkpoint: Annotated[Path, typer.Argument(help="Checkpoint folder.")],
    items: Annotated[int, typer.Option(min=20, help="Number of held-out pairs.")] = NUM_ITEMS,
    renew: Annotated[
        bool, typer.Option("--renew", help="First give its programs the current text of their functions.")
    ] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Fit the probabilities of a checkpoint, and from when a verdict is checked, and write both into its judge.json.

    The items are pairs of the held-out writer. `tirjudge train measure` draws different ones.

    Examples:
        tirjudge train calibrate checkpoints/tiny
        tirjudge train calibrate checkpoints/tiny --items 1000 --json
        tirjudge train calibrate checkpoints/tiny --renew
    """
    try:
        if renew:
            from tirjudge_training.bundled.build import renew_functions

            renew_functions(checkpoint)
        fitted = calibrate_checkpoint(checkpoint, num_items=items, console=Console(stderr=True))
    except (ValueError, TirjudgeError, OSError) as error:
        typer.echo(" ".join(f"tirjudge train calibrate: {error}".split()), err=True)
        raise typer.Exit(2 if isinstance(error, ValueError) else 1) from None
    if json_output:
        print(json.dumps(asdict(fitted)))
        return
    accuracy = "-" if fitted.accuracy_checked is None else f"{100 * fitted.accuracy_checked:.1f} %"
    print(
        f"label_temperature {fitted.label_temperature}, program_weight {fitted.program_weight}, checked_from "
        f"{fitted.checked_from}, unchecked_weight {fitted.unchecked_weight} in {checkpoint / 'judge.json'}: loss of "
        f"{fitted.num_items} pairs {fitted.loss_before:.4f} before, {fitted.loss_after:.4f} after; "
        f"{100 * fitted.share_checked:.1f} % checked, {accuracy} of them right"
    )
