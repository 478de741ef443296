"""One example of a benchmark: a prompt, its responses, and the indexes of the right responses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tirjudge.types import AttachedStore, ChatMessage, Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleMetadata:
    """An example without its texts. Scoring needs only this part, and a run stores only this part."""

    id: str
    """Unique within the benchmark."""
    subset: str
    """The smallest group that has a row in tables."""
    num_responses: int
    """Number of responses, including responses that are not compared."""
    correct: tuple[int, ...]
    """Indexes of the right responses; all other responses are wrong. Empty: a single response, which is wrong."""
    cluster: str
    """Name of the cluster. All examples of one prompt have the same cluster. Confidence intervals of aggregates
    resample clusters."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Further groups for tables: name -> value, such as `difficulty`."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Further JSON data for the metrics of the benchmark."""
    lengths: tuple[int, ...] = ()
    """Length of each response in characters. Empty: unknown."""
    mode: Mode | None = None
    """Mode in which this example is judged. None: the mode of the run."""


def model_facts(first: str, second: str) -> dict[str, str]:
    """Return the facts of an example that name the models of its two responses."""
    return {"model_a": first, "model_b": second}


def models_of(outline: ExampleMetadata) -> tuple[str, str] | None:
    """Return the models of the two responses of an example; None: the example does not name two models."""
    first, second = outline.facts.get("model_a"), outline.facts.get("model_b")
    if not (isinstance(first, str) and isinstance(second, str) and outline.num_responses == 2):
        return None
    return first, second


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """An example with its texts."""

    outline: ExampleMetadata
    prompt: str | tuple[ChatMessage, ...]
    responses: tuple[str, ...]
    reference: str | None = None
    """A reference answer that the judge sees. None: no reference."""
    evidence: tuple[AttachedStore, ...] = ()
    """Stores of evidence that come with each request. Empty: none."""
    functions: tuple[str, ...] | None = None
    """Names of the functions that programs may call. None: all."""


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
    mode: Mode | None = None,
    reference: str | None = None,
) -> Example:
    """Return an example. The default cluster is the id.

    Raises:
        ValueError: `correct` contains an index outside of `responses`.
    """
    beyond = [index for index in correct if not 0 <= index < len(responses)]
    if beyond:
        raise ValueError(f"label: {beyond[0]} is not an index of the {len(responses)} responses (counted from 0)")
    outline = ExampleMetadata(
        id=id,
        subset=subset,
        num_responses=len(responses),
        correct=correct,
        cluster=cluster or id,
        tags=tags or {},
        facts=facts or {},
        lengths=tuple(map(len, responses)),
        mode=mode,
    )
    return Example(outline=outline, prompt=prompt, responses=responses, reference=reference)
