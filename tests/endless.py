"""A turn that ends only at its limit."""

from __future__ import annotations

from tirjudge.types import Sampling


def endless(max_tokens: int) -> Sampling:
    """Return the parameters of a turn that draws from 32 ids at random.

    It neither ends by itself nor repeats itself: engines stop a turn that generates the same tokens 64 times in a row.
    """
    return Sampling(max_tokens=max_tokens, temperature=2.0, seed=0, allowed_token_ids=tuple(range(64, 96)))
