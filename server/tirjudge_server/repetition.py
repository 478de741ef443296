"""vLLM's repetition detection, for completions of the mini worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tirjudge.engines.tokenization import LocalTokenizer
from tirjudge.types import Completion


class RepetitionDetection(BaseModel):
    """vLLM's `RepetitionDetectionParams`: stops a completion that repeats a pattern of tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_pattern_size: int = Field(default=0, ge=0, le=256)
    """Maximum size of a pattern in tokens; 0: detection is off."""
    min_pattern_size: int = Field(default=0, ge=0)
    """Minimum size of a pattern in tokens; 0 means 1."""
    min_count: int = Field(default=0, ge=0)
    """Number of consecutive occurrences of a pattern that stop the completion."""

    @model_validator(mode="after")
    def _fields_fit_one_another(self) -> Self:
        if self.min_pattern_size > self.max_pattern_size or (self.max_pattern_size and self.min_count < 2):
            raise ValueError("min_pattern_size <= max_pattern_size and min_count >= 2 are needed")
        return self

    def ends_at(self, token_ids: Sequence[int]) -> int | None:
        """Number of leading ids after which a pattern has occurred often enough; None: no such pattern."""
        ends = []
        for size in range(max(1, self.min_pattern_size), self.max_pattern_size + 1):
            wanted, same = size * (self.min_count - 1), 0
            for at in range(size, len(token_ids)):
                same = same + 1 if token_ids[at] == token_ids[at - size] else 0
                if same == wanted:
                    ends.append(at + 1)
                    break
        return min(ends, default=None)


def cut_at_repetition(
    completion: Completion, *, detection: RepetitionDetection, tokenizer: LocalTokenizer
) -> Completion:
    """Cut a completion at the token where repetition is detected; return it unchanged if no token follows."""
    end = detection.ends_at(completion.token_ids)
    if end is None or end == len(completion.token_ids):
        return completion
    ids = completion.token_ids[:end]
    return replace(
        completion,
        text=tokenizer.decode(ids),
        token_ids=ids,
        logprobs=completion.logprobs[:end],
        finish_reason="repetition",
        stop=None,
    )
