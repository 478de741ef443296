"""Loss mask and shaped reward of a rollout: the tokens in the loss, and the penalty for the length of the rollout."""

from __future__ import annotations

from collections.abc import Sequence

from tirjudge.types import StopReason
from tirjudge_training.dapo import overlong_penalty
from tirjudge_training.settings import RLSettings


def loss_mask(sampled: Sequence[int], *, stop_reason: StopReason, settings: RLSettings) -> list[int]:
    """Return the loss mask of an answer: 1 for each token in the loss, otherwise 0.

    Args:
        sampled: 1 for each token that the policy sampled, 0 for outputs of programs.
        stop_reason: Reason why the rollout ended.
        settings: Settings of RL.
    """
    if settings.overlong == "mask" and stop_reason is StopReason.LENGTH:
        return [0] * len(sampled)
    return list(sampled) if settings.mask_observations else [1] * len(sampled)


def shaped_reward(total: float, *, sampled: Sequence[int], settings: RLSettings, max_tokens: int) -> float:
    """Return the reward, reduced by the soft length penalty if it is enabled. Outputs of programs do not count as
    length.

    Args:
        total: Total reward of the rollout.
        sampled: 1 for each token that the policy sampled, 0 for outputs of programs.
        settings: Settings of RL.
        max_tokens: Maximum number of tokens that the policy may sample.
    """
    if settings.overlong != "penalty":
        return total
    return total + overlong_penalty(sum(sampled), max_tokens=max_tokens, buffer_tokens=settings.overlong_buffer_tokens)
