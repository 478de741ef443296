"""Prices of tokens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices per million tokens, in any currency. None: unknown."""

    input: float | None = None
    output: float | None = None

    def cost_of(self, *, input_tokens: int, output_tokens: int) -> float | None:
        """Return the cost of the tokens. A single unknown price counts as 0; None if both prices are unknown."""
        if self.input is None and self.output is None:
            return None
        return ((self.input or 0.0) * input_tokens + (self.output or 0.0) * output_tokens) / 1e6
