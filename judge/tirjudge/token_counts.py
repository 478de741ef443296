"""Token counts of rollouts: those that a chat endpoint reports, or else the number of ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tirjudge.types import Rollout, TokenUsage


def total_of(counts: Iterable[int | None]) -> int | None:
    """Return the sum of counts; None if one of them is not known."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def counts_of(rollouts: Sequence[Rollout]) -> TokenUsage:
    """Return the token counts of rollouts.

    A prompt counts once per rollout, or at every turn if an endpoint counts it.
    """
    completions = [completion for rollout in rollouts for completion in rollout.completions]
    counted = [completion.counted for completion in completions if completion.counted is not None]
    if not counted:
        return TokenUsage(
            prompt=sum(len(rollout.prompt_ids) for rollout in rollouts),
            completion=sum(len(completion.token_ids) for completion in completions),
            cached=sum(completion.num_cached for completion in completions),
        )
    costs = [tokens.cost_usd for tokens in counted]
    known = [cost for cost in costs if cost is not None]
    return TokenUsage(
        prompt=total_of(tokens.prompt for tokens in counted),
        completion=total_of(tokens.completion for tokens in counted),
        cached=total_of(tokens.cached for tokens in counted),
        cost_usd=sum(known) if len(known) == len(costs) else None,
    )
