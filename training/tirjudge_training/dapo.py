"""DAPO (Eq. 2 of the paper) as a pure function on tensors. Tests compare TRL and verl with this function.

    J = E[ 1 / sum_i |o_i|  *  sum_i sum_t min( r A_i, clip(r, 1 - low, 1 + high) A_i ) - beta * KL ]

Here r is the ratio of the new to the old probability of a token, and A_i is the advantage of its rollout within its
group. The sums run over tokens that the policy sampled. KL is the k3 estimate: exp(ref - new) - (ref - new) - 1. The
loss is -J.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tirjudge.errors import TirjudgeError

if TYPE_CHECKING:
    from torch import Tensor

Normaliser = Literal["token_mean", "group_mean"]


class NonFiniteLoss(TirjudgeError, ValueError):
    """The loss, or its gradient, is not finite."""

    def __init__(self, *, step: int, what: str = "loss", last_good: str | None = None) -> None:
        kept = f"the last good checkpoint is {last_good}" if last_good else "no checkpoint was saved yet"
        super().__init__(
            f"{what} is not finite at step {step}; {kept}; set a lower learning_rate, or weights to float32"
        )
        self.step = step


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The loss of one optimizer step, and its parts."""

    total: Tensor
    """(), minimized loss: policy + beta * kl."""
    policy: Tensor
    """(), policy part of the loss."""
    kl: Tensor
    """(), k3 divergence, averaged like the loss; 0 without a reference."""
    clip_frac: Tensor
    """(), share of tokens whose gradient was clipped to zero."""


def group_advantages(rewards: Tensor, *, eps: float = 1e-4) -> Tensor:
    """Normalize rewards (N, G) to advantages (N, G): subtract the group's mean, divide by its standard deviation +
    `eps`.

    The standard deviation has divisor G - 1. `eps` is 1e-4 in TRL and 1e-6 in verl.
    """
    return (rewards - rewards.mean(dim=1, keepdim=True)) / (rewards.std(dim=1, keepdim=True) + eps)


def token_weights(mask: Tensor, *, group_size: int, normaliser: Normaliser) -> Tensor:
    """Return the weight of each token's loss: (N*G, T), with sum 1, and 0 where `mask` is 0.

    Args:
        mask: (N*G, T), 1 for a token that the policy sampled. The rows of a group are adjacent.
        group_size: G.
        normaliser: As in `dapo_loss`.
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
        logprobs: (B, T), log-probabilities under the policy; B = N * G, the rows of a group are adjacent.
        old_logprobs: (B, T), log-probabilities under the policy that sampled.
        reference_logprobs: (B, T), log-probabilities under the reference. None: no KL.
        advantages: (B,), one per rollout.
        mask: (B, T), 1 for a token that the policy sampled, 0 for padding, program output and other inserted tokens.
        group_size: G. Only `group_mean` uses it.
        clip_low: The ratio is clipped at 1 - clip_low from below.
        clip_high: The ratio is clipped at 1 + clip_high from above.
        beta: Weight of the KL.
        normaliser: `token_mean`: mean over all tokens of the mini-batch. `group_mean`: mean over the tokens of each
            group, then over groups, exactly as in Eq. 2.

    Raises:
        ValueError: the shapes do not match.
    """
    if not logprobs.shape == old_logprobs.shape == mask.shape or advantages.shape != logprobs.shape[:1]:
        raise ValueError(
            f"shapes: logprobs {tuple(logprobs.shape)}, old_logprobs {tuple(old_logprobs.shape)}, mask "
            f"{tuple(mask.shape)}, advantages {tuple(advantages.shape)} given; expected (B, T) for the first three and "
            "(B,) for advantages"
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
    """Return DAPO's soft length penalty (its Eq. 13).

    The penalty is 0 up to `max_tokens - buffer_tokens` tokens, and falls linearly from there to -1 at `max_tokens`.
    """
    return -min(max(num_tokens - (max_tokens - buffer_tokens), 0) / buffer_tokens, 1.0)
