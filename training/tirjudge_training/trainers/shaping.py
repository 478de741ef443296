"""What a rollout is to the loss: which of its tokens count, and its reward less what its length costs."""

from __future__ import annotations

from collections.abc import Sequence

from tirjudge.types import StopReason
from tirjudge_training.dapo import overlong_penalty
from tirjudge_training.settings import RLSettings


def loss_mask(sampled: Sequence[int], *, stop_reason: StopReason, settings: RLSettings) -> list[int]:
    """1 for each token of the answer that carries loss; `sampled` is 1 for each that the policy sampled."""
    if settings.overlong == "mask" and stop_reason is StopReason.LENGTH:
        return [0] * len(sampled)
    return list(sampled) if settings.mask_observations else [1] * len(sampled)


def shaped_reward(total: float, *, sampled: Sequence[int], settings: RLSettings, max_tokens: int) -> float:
    """The reward, less the soft penalty for length if the settings ask for it; what programs printed costs nothing."""
    if settings.overlong != "penalty":
        return total
    return total + overlong_penalty(sum(sampled), max_tokens=max_tokens, buffer_tokens=settings.overlong_buffer_tokens)
