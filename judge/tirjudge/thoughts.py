"""Thoughts of reasoning models: text between two tags that is neither run nor read as a verdict.

Qwen3 opens a thought itself, the templates of DeepSeek's distilled models open it in the prompt, and a template with
thinking switched off writes an empty thought into the prompt. The tags of a model are those that its tokenizer has as
tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tirjudge.engines.base import Tokenizer


@dataclass(frozen=True, slots=True)
class ThoughtTags:
    """Tags around a thought."""

    opening: str
    closing: str

    @property
    def ending(self) -> str:
        """Text that closes a thought that the model did not close."""
        return f"\n{self.closing}\n\n"


TAGS = (
    ThoughtTags("<think>", "</think>"),
    ThoughtTags("[THINK]", "[/THINK]"),
    ThoughtTags("<thought>", "</thought>"),
    ThoughtTags("<seed:think>", "</seed:think>"),
)
"""Tags of known model families: Qwen, DeepSeek, GLM and others; Mistral; EXAONE; Seed."""

TAIL_IDS = 16
"""Number of ids at the end of a prompt in which a thought is searched. It covers an empty thought."""


class Thinking(Enum):
    """Whether a prompt lets the model think."""

    OFF = "off"
    """The model has no thoughts, or the prompt ends with a closed thought."""
    POSSIBLE = "possible"
    """The model may open a thought."""
    OPEN = "open"
    """The prompt ends inside a thought."""


async def thinking_after(prompt_ids: Sequence[int], *, tokenizer: Tokenizer) -> tuple[Thinking, ThoughtTags]:
    """Return whether a prompt lets the model think, and the tags of its thoughts.

    Args:
        prompt_ids: ids of the rendered prompt, up to the start of the answer.
        tokenizer: tokenizer of the served model.
    """
    tokens = await tokenizer.tokens_of([tag for tags in TAGS for tag in (tags.opening, tags.closing)])
    found = next((tags for tags in TAGS if tokens[tags.opening] and tokens[tags.closing]), None)
    if found is None:
        return Thinking.OFF, TAGS[0]
    opened, closed = set(tokens[found.opening]), set(tokens[found.closing])
    marks = [token_id for token_id in prompt_ids[-TAIL_IDS:] if token_id in opened | closed]
    if not marks:
        return Thinking.POSSIBLE, found
    return (Thinking.OPEN if marks[-1] in opened else Thinking.OFF), found
