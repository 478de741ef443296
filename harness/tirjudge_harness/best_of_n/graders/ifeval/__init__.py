"""Grade by verifiable instructions: a response is right if it strictly follows every instruction of its prompt.

The rules are IFEval's (arXiv 2311.07911); a grade is prompt-level strict accuracy. The detail of a grade says for each
instruction whether it is followed strictly and loosely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tirjudge_harness.best_of_n.graders.grade import Grade, read_facts, require
from tirjudge_harness.best_of_n.graders.ifeval.following import (
    Following,
    FollowingRates,
    Instructions,
    following,
    tally,
)

__all__ = ["Following", "FollowingRates", "IfevalGrader", "Instructions", "following", "tally"]


class IfevalGrader:
    """Facts: `instruction_id_list` and `kwargs`, as in the dataset. Grades have no answers to vote on."""

    def __init__(self) -> None:
        """Raises InputError if langdetect, nltk or punkt is not installed."""
        require("langdetect", "nltk", "punkt")

    async def grade(self, responses: Sequence[str], *, facts: Mapping[str, Any]) -> list[Grade]:
        instructions = read_facts(Instructions, facts)
        return [_grade(following(response, instructions)) for response in responses]


def _grade(followed: Following) -> Grade:
    return Grade(correct=all(followed.strict), detail={"strict": list(followed.strict), "loose": list(followed.loose)})
