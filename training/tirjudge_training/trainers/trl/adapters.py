"""TRL's trainers with what they lack for us; the one module that imports TRL when it is loaded (about 5 s).

What differs from TRL: nothing is reported home, no model card is written, a gradient that is no number stops the run
before it reaches the weights, and the engine's log-probabilities are compared with the trainer's.
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
"""Files of a checkpoint that training does not change."""


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
"""TRL's name -> ours."""

Report = Callable[[int, Mapping[str, float]], None]
"""Told of the optimizer step and its metrics under our names, on every process."""

_KNOWN_WARNINGS = (
    "You are using 'rollout_func'",  # experimental; the version is pinned for it
    "`(is_)?gradient_checkpointing(_kwargs)?` is deprecated",  # TRL reads the names that transformers gave up
)


class _Reporting:
    """Reports the metrics of each step, and stops at a gradient that is not finite. No telemetry, no model cards."""

    def __init__(self, *, report: Report, **kwargs: Any) -> None:
        """`kwargs` are TRL's."""
        super().__init__(**kwargs)
        self._report = report
        trainer: Any = self
        trainer.add_callback(FiniteGradients())

    def _tell(self, step: int, logs: Mapping[str, float]) -> None:
        self._report(step, {ours: float(logs[name]) for name, ours in _METRICS.items() if logs.get(name) is not None})

    def _send_telemetry(self) -> None:
        pass

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        pass


class SFTTrainer(_Reporting, TRLSFTTrainer):
    """TRL's, quiet."""

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        super().log(logs, start_time)
        if "loss" in logs:
            self._tell(self.state.global_step, logs)


class RLTrainer(_Reporting, GRPOTrainer):
    """TRL's, which also compares what the engine and the trainer think of the sampled tokens."""

    def __init__(self, *, ratio_to_engine: bool, **kwargs: Any) -> None:
        """With `ratio_to_engine` the ratio is to the engine's probabilities instead of the trainer's own."""
        super().__init__(**kwargs)
        self._ratio_to_engine = ratio_to_engine
        self._logprobs: torch.Tensor | None = None
        self._gap = torch.zeros(3, dtype=torch.float64)  # sum, count, largest of |engine - trainer|

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int, **kwargs: Any
    ) -> Any:
        """TRL pads all rows of a step to the longest; here rows of like length are computed together, without padding.

        Of several processes each makes as many passes as the others, whatever its rows are: DDP and FSDP wait in each one
        for all of them.
        """
        kwargs.pop("batch_size", None)
        spread = LIKE_LENGTHS if self.accelerator.num_processes == 1 else math.inf
        parts: list[tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]] = []
        lengths = attention_mask.sum(dim=1).tolist()
        alike = rows_alike(lengths, most=self.args.per_device_train_batch_size, spread=spread)
        for rows in alike:
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
        back = torch.tensor([row for rows in alike for row in rows], device=input_ids.device).argsort()
        logprobs, entropies, aux_losses = zip(*parts, strict=True)
        found = (
            torch.cat(logprobs)[back],
            None if entropies[0] is None else torch.cat(entropies)[back],
            None if aux_losses[0] is None else torch.stack(aux_losses).mean(),
        )
        if torch.is_grad_enabled():  # the policy's own; old and reference ones are computed without
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
        super().log(logs, start_time)
        if "loss" not in logs:
            return
        gathered: Any = self.accelerator.gather(self._gap.float().to(self.accelerator.device))
        gaps = gathered.view(-1, 3).cpu()
        self._gap = torch.zeros(3, dtype=torch.float64)
        if self.temperature == 1.0 and gaps[:, 1].sum():  # engines tell log-probabilities at temperature 1
            logs["dlogp_mean"] = float(gaps[:, 0].sum() / gaps[:, 1].sum())
            logs["dlogp_max"] = float(gaps[:, 2].max())
        self._tell(self.state.global_step, logs)


LIKE_LENGTHS = 1.25
"""Rows are alike of which the longest has so many times the tokens of the shortest, or fewer."""


def rows_alike(lengths: Sequence[int], *, most: int, spread: float = LIKE_LENGTHS) -> list[list[int]]:
    """Indexes of rows in groups of at most `most`, in which none is longer than `spread` times the shortest.

    Without a limit to the spread, the number of groups follows from the number of rows alone.

    >>> rows_alike([100, 700, 110, 90], most=8)
    [[3, 0, 2], [1]]
    >>> rows_alike([100, 700, 110, 90], most=2, spread=math.inf)
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
    """Stops a run before a gradient that is no number reaches the weights."""

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        gradients = [p.grad for p in kwargs["model"].parameters() if p.grad is not None]
        if not all(bool(torch.isfinite(gradient).all()) for gradient in gradients):
            good = newest_checkpoint(Path(args.output_dir))
            raise NonFiniteLoss(step=state.global_step + 1, last_good=str(good) if good else None)


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint of a trainer in its folder; None if there is none.

    The trainer's state is written last, so a folder without it, or with half of it, is what a kill or a full disk left.
    """
    for path in sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]), reverse=True):
        try:
            json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        return path
    return None


def train(trainer: Any, folder: Path, *, start: Path) -> Path:
    """Train to the end, from the newest checkpoint in the folder if there is one. Returns the folder of the last weights."""
    found = newest_checkpoint(folder)
    trainer.train(resume_from_checkpoint=str(found) if found else None)
    weights = gathered_weights(trainer)
    if trainer.accelerator.is_main_process:
        write_checkpoint(trainer, folder / "last", weights=weights, start=start)
    trainer.accelerator.wait_for_everyone()
    return folder / "last"


def gathered_weights(trainer: Any) -> Mapping[str, Any]:
    """The whole weights. Every process takes part: shards are gathered."""
    return trainer.accelerator.get_state_dict(trainer.model_wrapped)


def open_model(start: Path, *, settings: OptimizerSettings) -> PreTrainedModel:
    """The model of a checkpoint folder. Its path stays with it: TRL reads the reference from there."""
    if not (start / "config.json").is_file():
        raise ValueError(f"{start}: no config.json there; training starts from a Hugging Face checkpoint folder")
    dtype = getattr(torch, settings.weights)
    return transformers.AutoModelForCausalLM.from_pretrained(str(start), dtype=dtype, local_files_only=True)


def open_tokenizer(start: Path) -> PreTrainedTokenizerFast:
    """What TRL pads and decodes with; nothing is ever encoded with it.

    It is made of tokenizer.json alone, which is what the judge has: transformers would otherwise guess by architecture.
    """
    eos = json.loads((start / "config.json").read_text(encoding="utf-8")).get("eos_token_id")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(start / "tokenizer.json"), padding_side="left")
    token = tokenizer.convert_ids_to_tokens(eos[0] if isinstance(eos, list) else eos or 0)
    tokenizer.eos_token = tokenizer.pad_token = token
    return tokenizer


def write_checkpoint(trainer: Any, folder: Path, *, weights: Mapping[str, Any], start: Path) -> None:
    """A Hugging Face folder of new weights: appears whole, in place of what was there, or not at all.

    Tokenizer and judge.json are the start's, byte for byte: a tokenizer that is saved anew is another file.
    """
    model = trainer.accelerator.unwrap_model(trainer.model_wrapped)
    with replacing(folder) as fresh:
        model.save_pretrained(fresh, state_dict=untied(model, weights))
        for path in start.iterdir():
            if path.is_file() and any(path.match(pattern) for pattern in _KEPT):
                shutil.copyfile(path, fresh / path.name)


def set_quiet(*, verbose: bool) -> None:
    """Whether transformers, datasets and TRL may speak."""
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
