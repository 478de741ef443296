"""DAPO as one pure function on tensors: Eq. 2 of the paper. What TRL and verl compute is tested against it.

    J = E[ 1 / sum_i |o_i|  *  sum_i sum_t min( r A_i, clip(r, 1 - low, 1 + high) A_i ) - beta * KL ]

with r the ratio of new to old probability of a token, A_i the advantage of its rollout within its group, and only tokens
that the policy sampled in the sums. KL is k3: exp(ref - new) - (ref - new) - 1. The loss is -J.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tirjudge.errors import TirjudgeError

if TYPE_CHECKING:
    from torch import Tensor

Normaliser = Literal["token_mean", "group_mean"]


class NonFiniteLoss(TirjudgeError, ValueError):
    """The loss, or its gradient, is not a number any more."""

    def __init__(self, *, step: int, what: str = "loss", last_good: str | None = None) -> None:
        kept = f"the last good checkpoint is {last_good}" if last_good else "no checkpoint had been made yet"
        super().__init__(
            f"{what} is not finite at step {step}; {kept}; a lower learning_rate would do, or weights float32"
        )
        self.step = step


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The loss of one optimizer step, and what it is made of."""

    total: Tensor
    """(), what is minimised: policy + beta * kl."""
    policy: Tensor
    """()."""
    kl: Tensor
    """(), k3, averaged as the loss is; 0 without reference."""
    clip_frac: Tensor
    """(), share of tokens whose gradient was clipped away."""


def group_advantages(rewards: Tensor, *, eps: float = 1e-4) -> Tensor:
    """Rewards (N, G) -> advantages (N, G): less the group's mean, over its standard deviation (divisor G - 1) plus `eps`.

    TRL takes 1e-4 for `eps`, verl 1e-6.
    """
    return (rewards - rewards.mean(dim=1, keepdim=True)) / (rewards.std(dim=1, keepdim=True) + eps)


def token_weights(mask: Tensor, *, group_size: int, normaliser: Normaliser) -> Tensor:
    """What each token's loss counts for: (N*G, T), summing to 1; 0 where `mask` is.

    Args:
        mask: (N*G, T), 1 for a token that the policy sampled; the rows of a group stand together.
        group_size: G.
        normaliser: as in `dapo_loss`.
    """
    mask = mask.float()
    if normaliser == "token_mean":
        return mask / mask.sum().clamp(min=1.0)
    tokens = mask.reshape(-1, group_size * mask.shape[1]).sum(dim=1)
    num_groups = (tokens > 0).sum().clamp(min=1)
    return mask / (tokens.clamp(min=1.0) * num_groups).repeat_interleave(group_size).unsqueeze(1)


def dapo_loss(
    logprobs: Tensor,
    *,
    old_logprobs: Tensor,
    reference_logprobs: Tensor | None,
    advantages: Tensor,
    mask: Tensor,
    group_size: int,
    clip_low: float = 0.2,
    clip_high: float = 0.3,
    beta: float = 0.01,
    normaliser: Normaliser = "token_mean",
) -> Loss:
    """The loss of one mini-batch, Eq. 2.

    Args:
        logprobs: (B, T) of the sampled tokens under the policy; B = N * G, the rows of a group stand together.
        old_logprobs: (B, T) under the policy that sampled.
        reference_logprobs: (B, T) under the reference; None: no KL.
        advantages: (B,) one a rollout.
        mask: (B, T), 1 for a token that the policy sampled, 0 for padding, program output, whatever we put there.
        group_size: G; only `group_mean` needs it.
        clip_low: the ratio counts down to 1 - clip_low.
        clip_high: the ratio counts up to 1 + clip_high.
        beta: weight of the KL.
        normaliser: `token_mean`: mean over all tokens of the mini-batch. `group_mean`: mean over the tokens of each group,
            then over groups, Eq. 2 to the letter.

    Raises:
        ValueError: shapes that do not fit.
    """
    if not logprobs.shape == old_logprobs.shape == mask.shape or advantages.shape != logprobs.shape[:1]:
        raise ValueError(
            f"shapes: logprobs {tuple(logprobs.shape)}, old_logprobs {tuple(old_logprobs.shape)}, mask "
            f"{tuple(mask.shape)}, advantages {tuple(advantages.shape)} given; (B, T) three times and (B,) would do"
        )
    weights = token_weights(mask, group_size=group_size, normaliser=normaliser)
    ratio = (logprobs - old_logprobs).masked_fill(mask == 0, 0.0).exp()
    gain = ratio * advantages[:, None]
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high) * advantages[:, None]
    policy = -(gain.minimum(clipped) * weights).sum()
    kl = policy.new_zeros(())
    if reference_logprobs is not None:
        gap = (reference_logprobs - logprobs).masked_fill(mask == 0, 0.0)
        kl = ((gap.exp() - gap - 1.0) * weights).sum()
    return Loss(
        total=policy + beta * kl,
        policy=policy.detach(),
        kl=kl.detach(),
        clip_frac=((clipped < gain).float() * weights).sum().detach(),
    )


def overlong_penalty(num_tokens: int, *, max_tokens: int, buffer_tokens: int) -> float:
    """DAPO's soft punishment (its Eq. 13): 0 up to `max_tokens - buffer_tokens`, from there linear to -1 at `max_tokens`."""
    return -min(max(num_tokens - (max_tokens - buffer_tokens), 0) / buffer_tokens, 1.0)
