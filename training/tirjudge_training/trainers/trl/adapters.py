"""Subclasses of TRL's trainers. This is the only module that imports TRL at import time (about 5 s).

Differences from TRL: no telemetry is sent, no model card is written, a gradient that is not finite stops the run before
it changes the weights, and the trainer's log-probabilities are compared with the engine's.
"""

from __future__ import annotations

import json
import logging
import math
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel, PreTrainedTokenizerFast, TrainerCallback
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.sft_trainer import SFTTrainer as TRLSFTTrainer

from tirjudge_training.checkpoints import replacing, untied
from tirjudge_training.dapo import NonFiniteLoss
from tirjudge_training.settings import OptimizerSettings
from tirjudge_training.trainers.trl.options import check_version

check_version(version("trl"))

_KEPT = (
    "judge.json",
    "generation_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template*",
)
"""Files of a checkpoint that training does not change; they are copied."""


_METRICS = {
    "loss": "train/loss",
    "kl": "train/kl",
    "grad_norm": "train/grad_norm",
    "learning_rate": "train/lr",
    "clip_ratio/region_mean": "train/clip_frac",
    "entropy": "train/entropy",
    "mean_token_accuracy": "train/token_accuracy",
    "dlogp_mean": "sync/dlogp_mean",
    "dlogp_max": "sync/dlogp_max",
}
"""Name of a metric in TRL -> name in metrics.jsonl."""

Report = Callable[[int, Mapping[str, float]], None]
"""Called with the optimizer step and its metrics (names of metrics.jsonl), in every process."""

_KNOWN_WARNINGS = (
    "You are using 'rollout_func'",  # experimental; the version is pinned for it
    "`(is_)?gradient_checkpointing(_kwargs)?` is deprecated",  # TRL uses names that are deprecated in transformers
)


class _Reporting:
    """Reports the metrics of each step, and stops at a gradient that is not finite. No telemetry, no model cards."""

    def __init__(self, *, report: Report, **kwargs: Any) -> None:
        """`kwargs` are passed to TRL."""
        super().__init__(**kwargs)
        self._report = report
        trainer: Any = self
        trainer.add_callback(FiniteGradients())

    def _report_step(self, step: int, logs: Mapping[str, float]) -> None:
        self._report(step, {ours: float(logs[name]) for name, ours in _METRICS.items() if logs.get(name) is not None})

    def _send_telemetry(self) -> None:
        pass

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        pass


class SFTTrainer(_Reporting, TRLSFTTrainer):
    """TRL's trainer for SFT, with the reports and without TRL's output."""

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log as TRL does, and report the metrics of a training step."""
        super().log(logs, start_time)
        if "loss" in logs:
            self._report_step(self.state.global_step, logs)


class RLTrainer(_Reporting, GRPOTrainer):
    """TRL's trainer for RL, which also compares the engine's log-probabilities with the trainer's."""

    def __init__(self, *, ratio_to_engine: bool, **kwargs: Any) -> None:
        """`ratio_to_engine`: whether the old probabilities of the ratio come from the engine instead of the trainer."""
        super().__init__(**kwargs)
        self._ratio_to_engine = ratio_to_engine
        self._logprobs: torch.Tensor | None = None
        self._gap = torch.zeros(3, dtype=torch.float64)  # sum, count, largest of |engine - trainer|

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int, **kwargs: Any
    ) -> Any:
        """Compute rows of similar length together, with little padding. TRL pads all rows of a step to the longest.

        With several processes, every process makes the same number of passes, independent of its rows, because DDP and
        FSDP synchronize all processes in each pass.
        """
        kwargs.pop("batch_size", None)
        spread = MAX_LENGTH_RATIO if self.accelerator.num_processes == 1 else math.inf
        parts: list[tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]] = []
        lengths = attention_mask.sum(dim=1).tolist()
        groups = group_by_length(lengths, most=self.args.per_device_train_batch_size, spread=spread)
        for rows in groups:
            attended = attention_mask[rows].any(dim=0).nonzero().flatten()
            start, end = min(int(attended[0]), input_ids.shape[1] - logits_to_keep - 1), int(attended[-1]) + 1
            num_cut = input_ids.shape[1] - end
            *found, aux_loss = super()._get_per_token_logps_and_entropies(
                model,
                input_ids[rows, start:end],
                attention_mask[rows, start:end],
                logits_to_keep - num_cut,
                **kwargs,
            )
            logps, entropies = (None if one is None else torch.nn.functional.pad(one, (0, num_cut)) for one in found)
            assert logps is not None
            parts.append((logps, entropies, aux_loss))
        back = torch.tensor([row for rows in groups for row in rows], device=input_ids.device).argsort()
        logprobs, entropies, aux_losses = zip(*parts, strict=True)
        found = (
            torch.cat(logprobs)[back],
            None if entropies[0] is None else torch.cat(entropies)[back],
            None if aux_losses[0] is None else torch.stack(aux_losses).mean(),
        )
        if torch.is_grad_enabled():  # log-probabilities of the policy; old and reference ones need no gradient
            self._logprobs = found[0].detach()
        return found

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        if self._ratio_to_engine:
            inputs = {**inputs, "old_per_token_logps": inputs["sampling_per_token_logps"]}
        loss = super()._compute_loss(model, inputs)
        assert self._logprobs is not None
        gap = (inputs["sampling_per_token_logps"] - self._logprobs).abs()
        gap = gap[(inputs["completion_mask"] * inputs["tool_mask"] > 0) & ~gap.isnan()].double().cpu()
        if len(gap):
            largest = torch.maximum(self._gap[2], gap.max())
            self._gap = torch.stack([self._gap[0] + gap.sum(), self._gap[1] + len(gap), largest])
        return loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log as TRL does, and report the metrics of a training step.

        The report includes the mean and the largest difference of log-probabilities between engine and trainer.
        """
        super().log(logs, start_time)
        if "loss" not in logs:
            return
        gathered: Any = self.accelerator.gather(self._gap.float().to(self.accelerator.device))
        gaps = gathered.view(-1, 3).cpu()
        self._gap = torch.zeros(3, dtype=torch.float64)
        if self.temperature == 1.0 and gaps[:, 1].sum():  # engines report log-probabilities at temperature 1
            logs["dlogp_mean"] = float(gaps[:, 0].sum() / gaps[:, 1].sum())
            logs["dlogp_max"] = float(gaps[:, 2].max())
        self._report_step(self.state.global_step, logs)


MAX_LENGTH_RATIO = 1.25
"""Maximum ratio of the longest row to the shortest row in a group."""


def group_by_length(lengths: Sequence[int], *, most: int, spread: float = MAX_LENGTH_RATIO) -> list[list[int]]:
    """Group rows by length: each group has at most `most` rows, none longer than `spread` times the shortest.

    With infinite `spread`, the number of groups depends only on the number of rows.

    >>> group_by_length([100, 700, 110, 90], most=8)
    [[3, 0, 2], [1]]
    >>> group_by_length([100, 700, 110, 90], most=2, spread=math.inf)
    [[3, 0], [2, 1]]
    """
    groups: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lambda row: lengths[row]):
        if groups and len(groups[-1]) < most and lengths[row] <= spread * lengths[groups[-1][0]]:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


class FiniteGradients(TrainerCallback):
    """Stops a run before a gradient that is not finite changes the weights."""

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Raise NonFiniteLoss, with the newest complete checkpoint, if a gradient is not finite."""
        gradients = [p.grad for p in kwargs["model"].parameters() if p.grad is not None]
        if not all(bool(torch.isfinite(gradient).all()) for gradient in gradients):
            good = newest_checkpoint(Path(args.output_dir))
            raise NonFiniteLoss(step=state.global_step + 1, last_good=str(good) if good else None)


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint in the folder of a trainer, or None.

    The trainer writes its state last. So a folder with a missing or incomplete state is an unfinished checkpoint.
    """
    for path in sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]), reverse=True):
        try:
            json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        return path
    return None


def train(trainer: Any, folder: Path, *, start: Path) -> Path:
    """Train to the end and return the folder with the last weights. If the folder has a checkpoint, resume from it."""
    found = newest_checkpoint(folder)
    trainer.train(resume_from_checkpoint=str(found) if found else None)
    weights = gathered_weights(trainer)
    if trainer.accelerator.is_main_process:
        write_checkpoint(trainer, folder / "last", weights=weights, start=start)
    trainer.accelerator.wait_for_everyone()
    return folder / "last"


def gathered_weights(trainer: Any) -> Mapping[str, Any]:
    """Return the complete weights. All processes must call this, because it gathers shards."""
    return trainer.accelerator.get_state_dict(trainer.model_wrapped)


def open_model(start: Path, *, settings: OptimizerSettings) -> PreTrainedModel:
    """Load the model of a checkpoint folder. The model keeps the path, because TRL loads the reference model from it.

    Raises:
        ValueError: the folder has no config.json.
    """
    if not (start / "config.json").is_file():
        raise ValueError(f"{start}: no config.json; training needs a Hugging Face checkpoint folder")
    dtype = getattr(torch, settings.weights)
    return transformers.AutoModelForCausalLM.from_pretrained(str(start), dtype=dtype, local_files_only=True)


def open_tokenizer(start: Path) -> PreTrainedTokenizerFast:
    """Load the tokenizer that TRL uses for padding and decoding. It never encodes text.

    Only tokenizer.json is read, as in the judge. Otherwise transformers would choose a tokenizer class from the
    architecture.
    """
    eos = json.loads((start / "config.json").read_text(encoding="utf-8")).get("eos_token_id")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(start / "tokenizer.json"), padding_side="left")
    token = tokenizer.convert_ids_to_tokens(eos[0] if isinstance(eos, list) else eos or 0)
    tokenizer.eos_token = tokenizer.pad_token = token
    return tokenizer


def write_checkpoint(trainer: Any, folder: Path, *, weights: Mapping[str, Any], start: Path) -> None:
    """Write new weights as a Hugging Face folder, which replaces an existing one atomically.

    The tokenizer and judge.json are copied from the start checkpoint, because saving a tokenizer again changes its
    file.
    """
    model = trainer.accelerator.unwrap_model(trainer.model_wrapped)
    with replacing(folder) as fresh:
        model.save_pretrained(fresh, state_dict=untied(model, weights))
        for path in start.iterdir():
            if path.is_file() and any(path.match(pattern) for pattern in _KEPT):
                shutil.copyfile(path, fresh / path.name)


def set_quiet(*, verbose: bool) -> None:
    """Set whether transformers, datasets and TRL print messages and progress bars."""
    import datasets

    level = logging.INFO if verbose else logging.ERROR
    transformers.logging.set_verbosity(level)
    logging.getLogger("trl").setLevel(level)
    logging.getLogger("accelerate").setLevel(level)
    if not verbose:
        datasets.disable_progress_bars()
        transformers.logging.disable_progress_bar()
        for message in _KNOWN_WARNINGS:
            warnings.filterwarnings("ignore", message=message)
