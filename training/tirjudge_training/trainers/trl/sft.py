"""Supervised learning on trajectories with TRL: ids and labels, never text.

A label is the id itself where the policy sampled it, and -100 on the prompt and on what programs printed. A rollout is a
row, the same ids with the same mask that reinforcement learning has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tirjudge_training.settings import SFTSettings
from tirjudge_training.trainers.base import OnStep, TrainedStage
from tirjudge_training.trainers.trl.options import sft_config
from tirjudge_training.training_samples import TrainingSample

IGNORED = -100
"""Label of what carries no loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SFTRow:
    """What one trajectory is to the trainer; both as long as prompt and answer together."""

    ids: tuple[int, ...]
    labels: tuple[int, ...]


def sft_row(trajectory: TrainingSample, *, mask_observations: bool = True) -> SFTRow:
    """The row of one trajectory; with `mask_observations` false, what is not the prompt all carries loss."""
    mask = trajectory.mask if mask_observations else [1] * len(trajectory.ids)
    answer = (i if m else IGNORED for i, m in zip(trajectory.ids, mask, strict=True))
    return SFTRow(
        ids=(*trajectory.prompt_ids, *trajectory.ids),
        labels=(*(IGNORED for _ in trajectory.prompt_ids), *answer),
    )


def train_sft(
    trajectories: Iterable[TrainingSample], *, start: Path, folder: Path, settings: SFTSettings, on_step: OnStep
) -> TrainedStage:
    """Train the checkpoint in `start` on trajectories.

    Args:
        trajectories: what to imitate; the order is shuffled by the seed.
        start: a Hugging Face checkpoint folder; never written to.
        folder: the stage's own; a run that was killed goes on from the newest checkpoint in it.
        settings: sizes and rates.
        on_step: told of each step, on the main process.

    Raises:
        ValueError: no trajectory fits, or an option would change what is trained.
        NonFiniteLoss: the gradient was no number; the weights were not touched by it.
    """
    from datasets import Dataset

    from tirjudge_training.trainers.trl.adapters import SFTTrainer, open_model, open_tokenizer, set_quiet, train

    set_quiet(verbose=settings.verbose)
    rows = [sft_row(t, mask_observations=settings.mask_observations) for t in trajectories]
    kept = [row for row in rows if len(row.ids) <= settings.context_tokens]
    if not kept:
        raise ValueError(f"trajectories: {len(rows)} given, none of at most context_tokens {settings.context_tokens}")
    counts = {"sft/rows": len(kept), "sft/too_long": len(rows) - len(kept)}

    def report(step: int, found: Mapping[str, float]) -> None:
        if trainer.accelerator.is_main_process:
            on_step(step, trainer.state.max_steps, {**found, **counts})

    trainer = SFTTrainer(
        report=report,
        model=open_model(start, settings=settings),
        args=sft_config(settings, folder=folder),
        train_dataset=Dataset.from_list([{"input_ids": list(r.ids), "labels": list(r.labels)} for r in kept]),
        processing_class=open_tokenizer(start),
    )
    return TrainedStage(checkpoint=train(trainer, folder, start=start), step=trainer.state.global_step)
