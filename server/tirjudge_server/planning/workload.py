"""What is judged in a simulation: the turns of a judgment, and how they vary."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnShape:
    """One request to an engine, and what follows it."""

    new_tokens: int
    """Behind the turn before: the prompt of the first, the output of a program of the others."""
    output_tokens: int
    program_s: float | None = None
    """Of the program that it writes; None: it writes none."""


JudgmentShape = tuple[TurnShape, ...]
"""The turns of one rollout. The last one may be the read of the verdict's probabilities, one token."""

Draw = Callable[[Random], JudgmentShape]
"""One judgment of many."""

READ = TurnShape(new_tokens=0, output_tokens=1)
"""Of the probabilities of the labels, where the verdict stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Judgments whose sizes vary around a mean, each part by itself, as log-normal numbers do."""

    prompt_tokens: float
    output_tokens: float
    """Of all turns together."""
    num_programs: float
    """Mean; each judgment has the whole number below or above it."""
    observation_tokens: float
    """Of each program's output, its fences included."""
    program_s: float
    prompt_spread: float = 0.8
    output_spread: float = 0.6
    program_spread: float = 1.0
    """Standard deviations of the logarithms; 0 is all alike."""
    max_tokens: int = 16_384
    """Of prompt and output together; longer ones are cut."""

    def draw(self, random: Random) -> JudgmentShape:
        """One judgment."""
        prompt = min(_draw(random, self.prompt_tokens, self.prompt_spread), self.max_tokens * 3 // 4)
        output = min(_draw(random, self.output_tokens, self.output_spread), self.max_tokens - prompt)
        below = math.floor(self.num_programs)
        programs = below + (random.random() < self.num_programs - below)
        each = max(1, output // (programs + 1))
        turns = [
            TurnShape(
                new_tokens=prompt if number == 0 else round(self.observation_tokens),
                output_tokens=each,
                program_s=self._program_s(random) if number < programs else None,
            )
            for number in range(programs + 1)
        ]
        return (*turns, READ)

    def _program_s(self, random: Random) -> float:
        return _vary(random, self.program_s, self.program_spread)


def trace(shapes: list[JudgmentShape]) -> Draw:
    """Judgments that were recorded, each as likely as any other."""
    return lambda random: random.choice(shapes)


def _draw(random: Random, mean: float, spread: float) -> int:
    return max(1, round(_vary(random, mean, spread)))


def _vary(random: Random, mean: float, spread: float) -> float:
    """Log-normal with that mean."""
    return mean * math.exp(random.gauss(0.0, spread) - spread * spread / 2) if spread else mean
