"""Prices of tokens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices per million tokens, in any currency. None: unknown."""

    input: float | None = None
    output: float | None = None
    cached: float | None = None
    """Price of the input tokens that the endpoint read from its prefix cache. None: that of other input tokens."""

    def cost_of(self, *, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> float | None:
        """Return the cost of the tokens. A single unknown price counts as 0; None if both prices are unknown.

        Args:
            input_tokens: tokens of the prompts, cached ones included.
            output_tokens: generated tokens.
            cached_tokens: tokens of the prompts that were read from a prefix cache.
        """
        if self.input is None and self.output is None:
            return None
        whole = self.input or 0.0
        cached = whole if self.cached is None else self.cached
        read = whole * (input_tokens - cached_tokens) + cached * cached_tokens
        return (read + (self.output or 0.0) * output_tokens) / 1e6
