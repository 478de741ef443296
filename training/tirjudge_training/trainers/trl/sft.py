"""Supervised learning on trajectories with TRL, on token ids and labels instead of text.

The label of a sampled token is its id. The label of prompt tokens and of program outputs is -100. Each rollout is one
row, with the same ids and the same mask as in reinforcement learning.
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
"""Label of tokens that are excluded from the loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SFTRow:
    """One trajectory as a row for the trainer. `ids` and `labels` have the same length."""

    ids: tuple[int, ...]
    """Token ids of the prompt and the answer."""
    labels: tuple[int, ...]
    """Label of each token. -100: the token is excluded from the loss."""


def sft_row(trajectory: TrainingSample, *, mask_observations: bool = True) -> SFTRow:
    """Return the row of one trajectory. If `mask_observations` is false, the loss includes all tokens after the prompt."""
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
        trajectories: Trajectories to imitate. They are shuffled with the seed of the settings.
        start: Hugging Face checkpoint folder with the initial weights. It is not changed.
        folder: Working folder of the stage. A killed stage resumes from the newest checkpoint in it.
        settings: Settings of SFT.
        on_step: Called after each step, in the main process only.

    Raises:
        ValueError: all trajectories are too long, or an option would change the loss.
        NonFiniteLoss: a gradient was not finite; the weights are those before that step.
    """
    config = sft_config(settings, folder=folder)  # before the imports, which take seconds

    from datasets import Dataset

    from tirjudge_training.trainers.trl.adapters import SFTTrainer, open_model, open_tokenizer, set_quiet, train

    set_quiet(verbose=settings.verbose)
    rows = [sft_row(t, mask_observations=settings.mask_observations) for t in trajectories]
    kept = [row for row in rows if len(row.ids) <= settings.context_tokens]
    if not kept:
        raise ValueError(
            f"trajectories: all {len(rows)} are longer than context_tokens {settings.context_tokens}; give shorter ones, or "
            "a larger context_tokens"
        )
    counts = {"sft/rows": len(kept), "sft/too_long": len(rows) - len(kept)}

    def report(step: int, found: Mapping[str, float]) -> None:
        if trainer.accelerator.is_main_process:
            on_step(step, trainer.state.max_steps, {**found, **counts})

    trainer = SFTTrainer(
        report=report,
        model=open_model(start, settings=settings),
        args=config,
        train_dataset=Dataset.from_list([{"input_ids": list(r.ids), "labels": list(r.labels)} for r in kept]),
        processing_class=open_tokenizer(start),
    )
    return TrainedStage(checkpoint=train(trainer, folder, start=start), step=trainer.state.global_step)
