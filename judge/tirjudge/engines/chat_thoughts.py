"""Thoughts inside the answer of a chat endpoint. Nothing in a thought is run, counted as a verdict or sent back.

Most endpoints return thoughts in a separate field. Others leave them at the start of the content, in tags. Templates
that open the thought in the prompt leave only the closing tag in the content.
"""

from __future__ import annotations

from tirjudge.thoughts import TAGS, ThoughtTags

THOUGHT_TAGS = (*TAGS, ThoughtTags("<thinking>", "</thinking>"))
"""Tags around a thought. The last ones are written by models without own tags that were told to think."""


def without_thought(content: str, *, ends_with: str | None = None) -> str | None:
    """Return the content after its leading thought; all of it if it begins without a thought; None if the thought is not
    closed.

    Args:
        content: content of a message.
        ends_with: closing tag of the thought that the template of the model opens in the prompt. None: it opens none.

    >>> without_thought("<think>A or B?</think>It is B.")
    'It is B.'
    >>> without_thought("<think>A or") is None
    True
    """
    text = content.lstrip()
    closing = next((tags.closing for tags in THOUGHT_TAGS if text.startswith(tags.opening)), ends_with)
    if closing is None:
        return content
    _, closed, answer = text.partition(closing)
    return answer if closed else None


def unopened_thought(content: str) -> str | None:
    """Return the closing tag of a thought that is closed in the content but opened nowhere; None if there is none."""
    unopened = (tags for tags in THOUGHT_TAGS if tags.closing in content and tags.opening not in content)
    return next((tags.closing for tags in unopened), None)
