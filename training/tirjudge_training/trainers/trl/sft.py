"""Supervised learning on trajectories with TRL: ids and labels, never text.

A label is the id itself where the policy sampled it, and -100 on the prompt and on what programs printed. A rollout is a
row, the same ids with the same mask that reinforcement learning has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tirjudge_training.settings import SFTSettings

if TYPE_CHECKING:
    from trl.trainer.sft_config import SFTConfig

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


def train_sft_on_trajectories(
    trajectories: Iterable[TrainingSample],
    *,
    start: Path,
    folder: Path,
    settings: SFTSettings,
    log: Callable[[dict[str, Any]], None],
) -> Path:
    """Train the checkpoint in `start` on trajectories.

    Args:
        trajectories: what to imitate; the order is shuffled by the seed.
        start: a Hugging Face checkpoint folder; never written to.
        folder: the stage's own; a run that was killed goes on from the newest checkpoint in it.
        settings: sizes and rates.
        log: told of each step's metrics, on the main process.

    Returns:
        `folder / "last"`, a Hugging Face checkpoint folder.

    Raises:
        ValueError: no trajectory fits, or an option would change what is trained.
        NonFiniteLoss: the gradient was no number; the weights were not touched by it.
    """
    from tirjudge_training.trl_trainer import (
        SFTTrainer,
        newest_checkpoint,
        open_model,
        open_tokenizer,
        set_quiet,
        write_checkpoint,
    )

    set_quiet(verbose=settings.verbose)
    rows = [sft_row(t, mask_observations=settings.mask_observations) for t in trajectories]
    kept = [row for row in rows if len(row.ids) <= settings.context_tokens]
    if not kept:
        raise ValueError(f"trajectories: {len(rows)} given, none of at most context_tokens {settings.context_tokens}")
    config = sft_config(settings, folder=folder)

    def report(step: int, found: Mapping[str, float]) -> None:
        if trainer.accelerator.is_main_process:
            log({"step": step, **_metrics(found), "sft/rows": len(kept), "sft/too_long": len(rows) - len(kept)})

    trainer = SFTTrainer(
        report=report,
        model=open_model(start, settings=settings),
        args=config,
        train_dataset=_dataset(kept),
        processing_class=open_tokenizer(start),
    )
    found = newest_checkpoint(folder)
    trainer.train(resume_from_checkpoint=str(found) if found else None)
    state = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    if trainer.accelerator.is_main_process:
        model: Any = trainer.accelerator.unwrap_model(trainer.model_wrapped)
        write_checkpoint(model, folder / "last", state=state, start=start)
    trainer.accelerator.wait_for_everyone()
    return folder / "last"


def sft_config(settings: SFTSettings, *, folder: Path) -> SFTConfig:
    """TRL's config for these settings, checked.

    Raises:
        ValueError: an option that would change what is trained.
    """
    from accelerate import PartialState
    from trl.trainer.sft_config import SFTConfig

    from tirjudge_training.presets import check_sft, check_trl_options

    check_trl_options(settings.trl, known=SFTConfig)
    processes = PartialState(cpu=settings.device == "cpu").num_processes
    options: dict[str, Any] = {
        **settings.trainer_options(folder),
        "gradient_accumulation_steps": settings.grad_accumulation(sequences=settings.batch, num_processes=processes),
        "num_train_epochs": settings.epochs,
        "max_length": None,
        "packing": False,
        "loss_type": "nll",
        "dataset_kwargs": {"skip_prepare_dataset": True},
    }
    config = SFTConfig(**{**options, **settings.trl})
    check_sft(config, settings=settings)
    return config


def _dataset(rows: Sequence[SFTRow]) -> Any:
    from datasets import Dataset

    return Dataset.from_dict({"input_ids": [list(r.ids) for r in rows], "labels": [list(r.labels) for r in rows]})


def _metrics(found: Mapping[str, float]) -> dict[str, float]:
    names = {
        "loss": "train/loss",
        "grad_norm": "train/grad_norm",
        "learning_rate": "train/lr",
        "entropy": "train/entropy",
        "mean_token_accuracy": "train/token_accuracy",
    }
    return {ours: float(found[theirs]) for theirs, ours in names.items() if found.get(theirs) is not None}
