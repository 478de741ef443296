"""Preferences of judges and people between two responses, as numbers: 1 for the first, 0 for the second, 0.5 for a tie."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from tirjudge.right import ScoringRule, credit, scores_of
from tirjudge.verdict import TIED
from tirjudge_harness.benchmarks.human_votes import VOTES
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import ExampleMetadata
from tirjudge_harness.external import EVEN, chosen, read_decisions
from tirjudge_harness.items import InputError
from tirjudge_harness.run import load_run

_OVER_ORDERS = ScoringRule(orders="mean")


def judged_in(source: Path) -> list[JudgedExample]:
    """Return the examples of a run folder, or of a file of another program's decisions as for `tirjudge bench score`.

    Raises:
        InputError: the source is neither, or it cannot be read.
    """
    if source.is_file():
        return read_decisions(source, None)
    if not source.is_dir():
        raise InputError(f"{source}: not found; give the folder of a run, or a .jsonl file of decisions")
    return load_run(source).examples


def preference_of(judged: JudgedExample) -> float | None:
    """Return the judge's preference among the two responses of an example: the mean over the orders in which they were shown,
    or the comparison of their scores. None: no verdict, not judged, or not two responses.
    """
    if judged.outline.num_responses != 2:
        return None
    counted = credit(judged.decisions, (0, 1), right=frozenset({0}), mode=judged.mode, counting=_OVER_ORDERS)
    return None if counted is None or counted[0] == "none" else counted[1]


def preference_of_people(outline: ExampleMetadata) -> float | None:
    """Return people's preference among the two responses of an example, from its votes or its label: 1 for the first, 0 for
    the second, 0.5 for a tie. None: no label, or not two responses."""
    if outline.num_responses != 2:
        return None
    if votes := outline.facts.get(VOTES):
        return fmean(0.5 if vote == TIED else 1.0 - vote for vote in votes)
    if outline.facts.get(EVEN):
        return 0.5
    return 1.0 - outline.correct[0] if len(outline.correct) == 1 else None


def score_of(judged: JudgedExample, *, response: int) -> float | None:
    """Return the score that the judge gave to a response; None: no verdict, or not scored."""
    return scores_of(judged.decisions, expected=False).get(response)


def preference_in(text: str) -> float:
    """Parse a label of two responses: `A>B`, `A=B`, `B>A`, a letter, or the index 0 or 1 of the preferred response.

    Raises:
        ValueError: the label is none of these.
    """
    if text.strip() in ("0", "1"):
        return 1.0 - int(text)
    best = chosen(text, shown=(0, 1))
    return 0.5 if best is None else 1.0 - best
