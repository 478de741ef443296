"""A small random Qwen3 with the bundled judge's tokenizer and profile, and made-up trajectories."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from tirjudge.model import bundled_checkpoint
from tirjudge.types import Mode, StopReason
from tirjudge_training.groups import Collected, RolloutGroup
from tirjudge_training.rewards import RolloutReward
from tirjudge_training.training_samples import TrainingSample

VOCABULARY = 2048
EOS = 2


def save_tiny(folder: Path, *, seed: int = 0, hidden_size: int = 32) -> Path:
    """Write a checkpoint folder with random weights that the serving loop can load."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=3072,
        tie_word_embeddings=True,
        eos_token_id=EOS,
        bos_token_id=None,
        pad_token_id=None,
        initializer_range=0.2,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "judge.json", "generation_config.json"):
        shutil.copy(bundled_checkpoint() / name, folder / name)
    return folder


def trajectory(
    *,
    ids: Sequence[int],
    mask: Sequence[int],
    reward: float,
    logprobs: Sequence[float] | None = None,
    prompt_ids: Sequence[int] = (5, 6, 7),
    stop_reason: StopReason = StopReason.VERDICT,
    number: int = 0,
) -> TrainingSample:
    return TrainingSample(
        item_id="made-up",
        source="made-up",
        task="math",
        mode=Mode.PAIRWISE,
        shown=(0, 1),
        number=number,
        weights_version=0,
        prompt_ids=tuple(prompt_ids),
        ids=tuple(ids),
        mask=tuple(mask),
        logprobs=tuple(logprobs or (0.0 for _ in ids)),
        label="A",
        stop_reason=stop_reason,
        num_calls=0,
        num_failed_calls=0,
        verifiable=True,
        sandbox_s=0.0,
        wall_s=0.0,
        reward=RolloutReward(total=reward, correct=float(reward > 0), format=True, tool=True),
    )


def made_up_groups(*, num_groups: int, group_size: int, seed: int = 0) -> list[RolloutGroup]:
    """Return groups of random ids: two turns with an observation between them, and prompts and answers of many lengths."""
    rng = random.Random(seed)

    def ids(low: int, high: int) -> list[int]:
        return [rng.randrange(10, VOCABULARY - 1) for _ in range(rng.randint(low, high))]

    def one(prompt: Sequence[int], number: int) -> TrainingSample:
        first, observed, second = ids(2, 6), ids(1, 5), [*ids(1, 4), EOS]
        mask = [1] * len(first) + [0] * len(observed) + [1] * len(second)
        return trajectory(
            ids=[*first, *observed, *second],
            mask=mask,
            reward=rng.choice((0.0, 0.1, 1.0)),
            logprobs=[-rng.uniform(6.0, 9.0) if m else 0.0 for m in mask],
            prompt_ids=prompt,
            number=number,
        )

    prompts = [ids(3, 8) for _ in range(num_groups)]
    return [RolloutGroup(trajectories=tuple(one(prompt, k) for k in range(group_size))) for prompt in prompts]


class FixedCollector:
    """Returns the same made-up groups in every step. Each process gets a different part of them."""

    def __init__(self, groups: Sequence[RolloutGroup]) -> None:
        self.groups = tuple(groups)

    async def collect(self, *, step: int, num_groups: int, rank: int = 0) -> Collected:
        return Collected(groups=self.groups[rank * num_groups :][:num_groups], draws=(), stats={"reward/total": 0.5})
