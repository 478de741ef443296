"""One item of a benchmark: a prompt, its responses, and which of them are right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tirjudge.types import ChatMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleMetadata:
    """All of an example but its texts: what scoring needs, and what a run keeps."""

    id: str
    """Unique in its benchmark."""
    subset: str
    """The finest part that tables name."""
    num_responses: int
    correct: tuple[int, ...]
    """Indexes of the responses that are right; all others are wrong."""
    cluster: str
    """Examples of one prompt share it; intervals of aggregates resample clusters."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """What tables break down by besides, such as `difficulty`."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the benchmark's own metric needs besides; JSON."""
    lengths: tuple[int, ...] = ()
    """Of the responses, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """An outline with its texts."""

    outline: ExampleMetadata
    prompt: str | tuple[ChatMessage, ...]
    responses: tuple[str, ...]
    reference: str | None = None
    """An answer known to be good, if the benchmark's protocol shows it to the judge."""


def example(
    *,
    id: str,
    prompt: str | tuple[ChatMessage, ...],
    responses: tuple[str, ...],
    correct: tuple[int, ...],
    subset: str,
    cluster: str | None = None,
    tags: Mapping[str, str] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Example:
    """An example from its parts; its cluster is its id unless another is given.

    Raises:
        ValueError: `correct` names a response that there is not.
    """
    beyond = [index for index in correct if not 0 <= index < len(responses)]
    if beyond:
        raise ValueError(f"label {beyond[0]} given, there are {len(responses)} responses, counted from 0")
    outline = ExampleMetadata(
        id=id,
        subset=subset,
        num_responses=len(responses),
        correct=correct,
        cluster=cluster or id,
        tags=tags or {},
        facts=facts or {},
        lengths=tuple(map(len, responses)),
    )
    return Example(outline=outline, prompt=prompt, responses=responses)
