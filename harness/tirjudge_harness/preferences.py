"""Preferences of judges and people between two responses, as numbers: 1 for the first, 0 for the second, 0.5 for a tie."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from tirjudge.right import ScoringRule, credit, scores_of
from tirjudge.verdict import TIED
from tirjudge_harness.benchmarks.human_votes import VOTES
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import ExampleMetadata
from tirjudge_harness.external import EVEN, read_decisions
from tirjudge_harness.items import InputError
from tirjudge_harness.output import is_output, judged_in_output
from tirjudge_harness.own_data.labels import label_value
from tirjudge_harness.own_data.mapping import TIE
from tirjudge_harness.run import load_run
from tirjudge_harness.verdict_table import refuse_table

_OVER_ORDERS = ScoringRule(orders="mean")

_FORMS = '"A>B", "A=B", "B>A", "A", "model_a", "first", "tie", or an index from 0 (0 and 1) or from 1 (1 and 2)'
"""Labels of two responses, for messages."""


def judged_in(source: Path) -> list[JudgedExample]:
    """Return the examples of a run folder, of an output file of `tirjudge judge`, or of a file of another program's decisions
    as for `tirjudge bench score`.

    Raises:
        InputError: the source is none of these, or it cannot be read.
    """
    if source.is_file():
        refuse_table(source)
        return judged_in_output(source) if is_output(source) else read_decisions(source, None)
    if not source.is_dir():
        raise InputError(
            f"{source}: not found; give the folder of a run, an output file of `tirjudge judge`, or a .jsonl file of "
            "decisions"
        )
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


def preference_in(label: str, *, meanings: Mapping[str, str]) -> float:
    """Return the preference that a label of two responses names.

    Args:
        label: the label, as in the file.
        meanings: normalized value -> `A`, `B` or `tie`, for all labels of the file, see `meanings_of`.

    Raises:
        ValueError: the meaning of the label is not known.
    """
    meaning = meanings.get(label_value(label) or "")
    if meaning is None:
        unclear = "; the numbers do not show whether they count from 0 or from 1" if label.isdecimal() else ""
        raise ValueError(f"expected {_FORMS}; got {label[:40]!r}{unclear}")
    return {TIE: 0.5, "A": 1.0, "B": 0.0}[meaning]
